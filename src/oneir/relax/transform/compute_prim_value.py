"""ComputePrimValue: symbolic expressions are computed by PrimFuncs.

R.f(R.prim_value(n * 2))    ->    k = cls.compute_symbolic_expr(R.prim_value(n)); R.f(k)
"""

from __future__ import annotations

from ...ir.expr import FloatImm, IntImm
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.type import PrimType
from ...tir.analysis import undefined_vars
from ...tir.function import PrimFunc
from ...tir.op import ret
from ...tir.stmt import Evaluate
from ...tir.stmt_functor import substitute
from ..expr import Call, Expr, PrimValue
from ..expr_functor import PyExprMutator


class ComputePrimValue(ModulePass):
    """Computes numbers by calls of PrimFuncs, unless they are constants or symbolic variables."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Computer(mod).transform_functions(mod)


class _Computer(PyExprMutator):
    def visit_prim_value_(self, op: PrimValue) -> Expr:
        value = op.value
        if isinstance(value, (IntImm, FloatImm, TirVar)):
            return op
        used = undefined_vars(value)
        params = {var: var.copy_with_name(var.name) for var in used}
        body = Evaluate(ret(substitute(value, params)))
        func = PrimFunc(list(params.values()), body, PrimType(value.dtype), attrs={"tir.is_host_func": True})
        callee = self.builder_.add_func(func, "compute_symbolic_expr")
        return Call(callee, [PrimValue(var) for var in used])
