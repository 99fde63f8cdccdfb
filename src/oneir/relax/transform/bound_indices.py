"""BoundIndices: indices that are data lie inside of the tensor that they index.

R.take(x, ids, axis=0)   ->   R.take(x, ids, axis=0, mode="clip")

An index that a user gives must not read or write memory that is not the tensor's. As in XLA, the nearest element stands
for one outside. Constant indices that lie inside stay as they are. How a call is bounded stands where its operator is
defined.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..expr import Call, Expr, Function
from ..expr_functor import PyExprMutator
from ..operator_facts import FBoundIndices
from .pass_base import FunctionPass


class BoundIndices(FunctionPass):
    """Keeps indices that are data inside of the tensors that they index."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Bound(mod).visit_expr(func)


class _Bound(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call):
            return call
        rule = FBoundIndices.of(call.op)
        return call if rule is None else rule(self.builder_, call)
