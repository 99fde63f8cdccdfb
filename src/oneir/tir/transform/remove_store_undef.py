"""RemoveStoreUndef: removes stores of `T.undef()`, which may leave any value behind."""

from __future__ import annotations

from ...ir import operators as ops
from ...ir.expr import Call, PrimExpr
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import post_order_visit
from ...runtime.error import WellFormedError
from ..function import PrimFunc
from ..stmt import BufferStore, Evaluate, Stmt
from .pass_base import PrimFuncPass
from .remove_assume import Removing

_UNDEF = ops.as_op("tir.undef")


class RemoveStoreUndef(PrimFuncPass):
    """Removes stores of undefined values. Raises `WellFormedError` where a function uses one for anything else."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_RemoveStores()(func.body))


class _RemoveStores(Removing):
    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        if not _undefined(store.value):
            return self.generic_visit(store)
        for index in store.indices:
            self.visit(index)
        return Evaluate(0)

    def visit_Call(self, call: Call) -> PrimExpr:
        if call.op is _UNDEF:
            raise WellFormedError("T.undef() can only be the value of a store; here it decides what the program does")
        return self.generic_visit(call)


def _undefined(value: PrimExpr) -> bool:
    """Whether a value depends on `T.undef()`."""
    found = False

    def look(node: object) -> None:
        nonlocal found
        found = found or (isinstance(node, Call) and node.op is _UNDEF)

    post_order_visit(value, look)
    return found
