"""RemoveNoOp: takes out statements that do nothing.

if n > 0:
    T.evaluate(0)    ->    A[0] = 1.0
A[0] = 1.0
"""

from __future__ import annotations

from typing import Any

from ...ir.container import map_array
from ...ir.expr import IntImm, PrimExpr
from ...ir.transform import Pass
from ...ir.visitor import Mapper
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import (
    Allocate,
    AllocateConst,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    flat_seq,
    is_no_op,
)
from .analyzed import has_effect
from .pass_base import function_pass
from .simplify import stores_what_is_there

_NOTHING = Evaluate(0)


def _effects_of(*exprs: PrimExpr) -> Stmt:
    """Only what evaluating the expressions does."""
    return flat_seq([Evaluate(e) for e in exprs if has_effect(e)])


class _RemoveNoOp(Mapper):
    def visit(self, node: Any) -> Any:
        return node if isinstance(node, (PrimExpr, Buffer)) else super().visit(node)

    def visit_Evaluate(self, node: Evaluate) -> Any:
        return node if is_no_op(node) or has_effect(node.value) else _NOTHING

    def visit_BufferStore(self, node: BufferStore) -> Any:
        return _NOTHING if stores_what_is_there(node) else node

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        seq = map_array(node.seq, self.visit)
        return node if seq is node.seq and not any(is_no_op(s) for s in seq) else flat_seq(seq)

    def visit_For(self, node: For) -> Any:
        if isinstance(node.extent, IntImm) and node.extent.value <= 0:
            return _effects_of(node.min)
        new = self.generic_visit(node)
        return _effects_of(node.min, node.extent) if is_no_op(new.body) else new

    def visit_While(self, node: While) -> Any:
        if isinstance(node.condition, IntImm) and not node.condition.value:
            return _NOTHING
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        if isinstance(node.condition, IntImm):
            case = node.then_case if node.condition.value else node.else_case
            return _NOTHING if case is None else self.visit(case)
        new = self.generic_visit(node)
        else_case = None if new.else_case is None or is_no_op(new.else_case) else new.else_case
        if is_no_op(new.then_case) and else_case is None:
            return _effects_of(node.condition)
        return new.replace(else_case=else_case)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        new = self.generic_visit(node)
        return _effects_of(node.value) if is_no_op(new.body) else new

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key == "pragma_debug_skip_region":
            return _NOTHING
        new = self.generic_visit(node)
        return _effects_of(node.value) if is_no_op(new.body) else new

    def around(self, node: Allocate | AllocateConst | DeclBuffer) -> Any:
        new = self.generic_visit(node)
        return _NOTHING if is_no_op(new.body) else new

    visit_Allocate = visit_AllocateConst = visit_DeclBuffer = around


def remove_no_op(func: PrimFunc) -> PrimFunc:
    """The function without statements that do nothing."""
    return func.with_body(_RemoveNoOp()(func.body))


def RemoveNoOp() -> Pass:
    """Takes out loops, branches and definitions around nothing, pure evaluations, stores of what is there already."""
    return function_pass(remove_no_op, "tir.RemoveNoOp")
