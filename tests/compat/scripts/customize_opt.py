"""A pipeline of one's own: a pattern that is rewritten to a registered function, loops for one device, the rest by default."""

import numpy as np
import tvm
from relax_creation import RelaxModule
from tvm import dlight as dl
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard


@tvm.register_global_func("env.linear", override=True)
def linear(x, w, out):
    out.copyfrom(x.numpy() @ w.numpy())


@tvm.transform.module_pass(opt_level=0, name="Dispatch")
class Dispatch:
    def transform_module(self, mod, ctx):
        x, w = wildcard(), wildcard()
        pattern = is_op("relax.matmul")(x, w)

        def rewriter(expr, matchings):
            return relax.call_dps_packed("env.linear", [matchings[x], matchings[w]], expr.struct_info)

        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                mod[var] = rewrite_call(pattern, rewriter, func)
        return mod


@relax.register_pipeline("mine")
def pipeline():
    return tvm.transform.Sequential(
        [
            Dispatch(),
            relax.transform.LegalizeOps(),
            dl.ApplyDefaultSchedule(dl.cpu.GEMV()),
            relax.get_pipeline("default_build"),
        ]
    )


with tvm.target.Target("llvm"):
    ex = tvm.compile(RelaxModule, target="llvm", relax_pipeline=relax.get_pipeline("mine"))
vm = relax.VirtualMachine(ex, tvm.cpu())
x, w, b = (np.random.randn(*shape).astype("float32") for shape in ((5, 784), (32, 784), (32,)))
out = vm["forward"](*[tvm.runtime.tensor(v) for v in (x, w, b)]).numpy()
np.testing.assert_allclose(out, np.maximum(x @ w.T + b, 0), rtol=1e-3, atol=1e-3)
