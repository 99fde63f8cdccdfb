"""FastMathTransform: mathematical functions become PrimFuncs that are faster and less exact.

R.exp(x)   ->   R.call_tir(cls.fast_exp, (x,), ...)

Which functions these are stands where the operators are defined.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..expr import Call, Expr
from ..expr_functor import PyExprMutator
from ..operator_facts import FFastMath


class FastMathTransform(ModulePass):
    """Computes operators by their fast forms, where they have one."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _FastMath(mod).transform_functions(mod)


class _FastMath(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call):
            return call
        fast = FFastMath.of(call.op)
        return call if fast is None else fast(self.builder_, call)
