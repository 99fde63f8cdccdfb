"""InstrumentBoundCheckers: native code asserts that indices lie within their buffers.

A[i + 1] = B[i]   ->   assert i + 1 < 16, "ValueError: ..."
                       A[i + 1] = B[i]

Only what the ranges of loops and the conditions around an access do not prove is checked. Runs before buffers are
flattened.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Broadcast, Call, IntImm, Let, PrimExpr, Ramp
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Visitor
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import AssertStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt
from .analyzed import AnalyzedMapper
from .pass_base import PrimFuncPass

register_config_option("tir.instrument_bound_checkers", bool)


class InstrumentBoundCheckers(PrimFuncPass):
    """Asserts before each access that its indices are in bounds, unless that is proven."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Instrument()(func.body))


class _Accesses(Visitor):
    """Collects, for the accesses in an expression, the conditions under which they are in bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.guards: list[PrimExpr] = []
        self.checks: list[tuple[PrimExpr, str]] = []

    def access(self, node: BufferLoad | BufferStore) -> None:
        """Notes the smallest and largest index of each dimension."""
        for axis, (index, dim) in enumerate(zip(node.indices, node.buffer.shape, strict=True)):
            low, high = _ends(index)
            inside = ops.logical_and(ops.greater_equal(low, 0), ops.less(high, ops.cast(high.dtype, dim)))
            for guard in reversed(self.guards):
                inside = ops.logical_or(ops.logical_not(guard), inside)
            message = f"ValueError: dimension {axis} of `{node.buffer.name}` has {dim} elements; the index is {index}"
            self.checks.append((inside, message))

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        for index in node.indices:
            self.visit(index)
        if node.predicate is None:
            self.access(node)

    def visit_Call(self, node: Call) -> None:
        name = node.op.name if isinstance(node.op, Op) else ""
        if name != "tir.if_then_else":
            for arg in node.args:
                self.visit(arg)
            return
        condition, then, otherwise = node.args
        self.visit(condition)
        for guard, value in ((condition, then), (ops.logical_not(condition), otherwise)):
            self.guards.append(guard)
            self.visit(value)
            self.guards.pop()

    def visit_Let(self, node: Let) -> None:
        """Leaves out the body of a `Let`, whose variable a check before the statement cannot use."""
        self.visit(node.value)


def _ends(index: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    if isinstance(index, Broadcast):
        return index.value, index.value
    if isinstance(index, Ramp):
        last = ops.add(index.base, ops.multiply(index.stride, index.dtype.lanes - 1))
        if isinstance(index.stride, IntImm):
            return (index.base, last) if index.stride.value >= 0 else (last, index.base)
        return ops.minimum(index.base, last), ops.maximum(index.base, last)
    return index, index


class _Instrument(AnalyzedMapper):
    def checked(self, stmt: Stmt, *parts: Any) -> Stmt:
        """`stmt` behind assertions for the accesses in `parts`, which it evaluates first."""
        accesses = _Accesses()
        for part in parts:
            if isinstance(part, BufferStore):
                accesses.access(part)
            elif part is not None:
                accesses.visit(part)
        for condition, message in reversed(accesses.checks):
            if not self.analyzer.can_prove(condition):
                stmt = AssertStmt(condition, message, stmt)
        return stmt

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        own = (node,) if node.predicate is None else ()
        return self.checked(node, *node.indices, node.value, *own)

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        return self.checked(node, node.value)

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        return self.checked(super().visit_LetStmt(node), node.value)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        return self.checked(super().visit_IfThenElse(node), node.condition)

    def visit_For(self, node: For) -> Stmt:
        return self.checked(super().visit_For(node), node.min, node.extent)

    def visit_AssertStmt(self, node: AssertStmt) -> Stmt:
        return self.checked(super().visit_AssertStmt(node), node.condition)

    def visit_PrimExpr(self, expr: Any) -> Any:
        return expr
