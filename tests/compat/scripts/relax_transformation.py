"""Passes over graphs: those that there are, in sequence, and one of one's own."""

import tvm
from relax_creation import RelaxModule
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator


@mutator
class ReluToGelu(PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op == tvm.ir.Op.get("relax.nn.relu"):
            return relax.op.nn.gelu(call.args[0])
        return call


@tvm.transform.module_pass(opt_level=0, name="ReluToGelu")
class ReluToGeluPass:
    def transform_module(self, mod, ctx):
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                rewriter = ReluToGelu(mod)
                rewriter.builder_.update_func(var, rewriter.visit_expr(func))
                mod = rewriter.builder_.get()
        return mod


after = ReluToGeluPass()(RelaxModule)
assert "R.nn.gelu" in after.script() and "R.nn.relu" not in after.script()
fused = tvm.transform.Sequential(
    [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
)(RelaxModule)
assert any("fused" in v.name_hint for v in fused.get_global_vars())
with tvm.transform.PassContext(instruments=[tvm.ir.instrument.PassTimingInstrument()]):
    relax.get_pipeline()(after)
