"""An estimate of the number of arithmetic operations of a program."""

from __future__ import annotations

from typing import Any

from ...ir.expr import BinaryOpExpr, Call, CallEffectKind, IntImm, LogicalExpr, Select
from ...ir.module import IRModule
from ...ir.visitor import Visitor
from .. import op
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse, Stmt


class _Operations(Visitor):
    """Counts the operations in what is stored; arithmetic on indices does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0.0

    def of(self, node: Any) -> float:
        outer, self.count = self.count, 0.0
        self.visit(node)
        inner, self.count = self.count, outer
        return inner

    def visit_For(self, loop: For) -> None:
        self.count += self.of(loop.body) * (loop.extent.value if isinstance(loop.extent, IntImm) else 1)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        times = node.value.value if node.attr_key == "thread_extent" and isinstance(node.value, IntImm) else 1
        self.count += self.of(node.body) * times

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        self.visit(realize.block)

    def visit_Block(self, block: Block) -> None:
        self.visit(block.body)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.visit(node.condition)
        self.count += max(self.of(node.then_case), 0.0 if node.else_case is None else self.of(node.else_case))

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit(store.value)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        """A load computes nothing."""

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> None:
        self.count += node.dtype.lanes
        self.generic_visit(node)

    def visit_LogicalExpr(self, node: LogicalExpr) -> None:
        self.count += node.dtype.lanes
        self.generic_visit(node)

    def visit_Select(self, node: Select) -> None:
        self.visit(node.condition)
        self.count += max(self.of(node.true_value), self.of(node.false_value))

    def visit_Call(self, call: Call) -> None:
        self.count += call.dtype.lanes if op.effect_of(call) is CallEffectKind.Pure else 0
        self.generic_visit(call)


def estimate_tir_flops(stmt_or_mod: Stmt | PrimFunc | IRModule) -> float:
    """The number of arithmetic operations; a loop of unknown extent counts once, a branch as its larger side."""
    operations = _Operations()
    if isinstance(stmt_or_mod, IRModule):
        bodies: list[Any] = [f.body for f in stmt_or_mod.functions.values() if isinstance(f, PrimFunc)]
    else:
        bodies = [stmt_or_mod.body if isinstance(stmt_or_mod, PrimFunc) else stmt_or_mod]
    for body in bodies:
        operations(body)
    return operations.count
