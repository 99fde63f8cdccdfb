"""RemovePurityChecking: purity is no longer tracked.

    y = R.call_pure_packed("f", x)    ->    y = R.call_packed("f", x)

in a function that gets the attribute `relax.force_pure`. An operator that only says of a call that it is pure has the
fact FImpureForm: `rule(call) -> call`, the call without that.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..expr import Call, Expr, Function
from ..expr_functor import PyExprMutator
from ..operator_facts import FImpureForm
from .pass_base import FunctionPass

FORCE_PURE = "relax.force_pure"


class RemovePurityChecking(FunctionPass):
    """Makes all pure functions pure by declaration, and undoes what makes single calls pure."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _PurityRemover(mod).visit_expr(func)


class _PurityRemover(PyExprMutator):
    def visit_function_(self, op: Function) -> Expr:
        func = super().visit_function_(op)
        assert isinstance(func, Function)
        return func if not func.is_pure or func.attrs.get(FORCE_PURE) is True else func.with_attr(FORCE_PURE, True)

    def visit_call_(self, op: Call) -> Expr:
        rule = FImpureForm.of(op.op)
        return super().visit_call_(op if rule is None else rule(op))
