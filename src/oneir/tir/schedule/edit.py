"""Rewriting statements while recording which new block replaces which old one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.expr import Var
from ...ir.visitor import Mapper
from ..block_scope import StmtSRef
from ..stmt import (
    AllocateConst,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)
from .error import PrimitiveError
from .state import ScheduleState


class BlockEdit(Mapper):
    """A mutator that keeps in `reuse` the new block for each old one that changed, for `ScheduleState.replace`."""

    def __init__(self) -> None:
        super().__init__()
        self.reuse: dict[Block, Block] = {}

    def visit_Block(self, block: Block) -> Any:
        return self.changed(block, self.generic_visit(block))

    def changed(self, old: Block, new: Block) -> Block:
        """Records the replacement of a block."""
        if new is not old:
            self.reuse[old] = new
        return new


class SubstituteEdit(BlockEdit):
    """Substitutes variables."""

    def __init__(self, values: Mapping[Var, Any]):
        super().__init__()
        self.values = values

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)


class ScopeEdit:
    """Changes among the statements directly below a block.

    Parameters
    ----------
    replaced: the replacements of statements, or of blocks inside of their realizations; None removes.
    inserted: for a loop, or the block itself, the position in its body of a statement to add, and the statement.
    """

    def __init__(self, replaced: Mapping[Stmt, Stmt | None], inserted: Mapping[Stmt, tuple[int, Stmt]] | None = None):
        self.replaced, self.inserted = replaced, inserted or {}

    def __call__(self, block: Block) -> Block:
        """The block with the changes."""
        return block.replace(body=self._body(block))

    def _body(self, owner: Any) -> Stmt | None:
        body = self.visit(owner.body)
        if owner in self.inserted:
            return insert(body, *self.inserted[owner])
        return body

    def visit(self, stmt: Any) -> Any:
        """A statement with the changes; None if nothing is left of it."""
        if stmt in self.replaced:
            return self.replaced[stmt]
        if isinstance(stmt, BlockRealize):
            block = self.replaced.get(stmt.block, stmt.block)
            return stmt.replace(block=block) if isinstance(block, Block) else block
        if isinstance(stmt, SeqStmt):
            stmts = [new for child in stmt.seq for new in as_list(self.visit(child))]
            same = len(stmts) == len(stmt.seq) and all(a is b for a, b in zip(stmts, stmt.seq, strict=True))
            return stmt if same else stmts[0] if len(stmts) == 1 else SeqStmt(stmts) if stmts else None
        if isinstance(stmt, IfThenElse):
            then, other = self.visit(stmt.then_case), stmt.else_case and self.visit(stmt.else_case)
            return stmt.replace(then_case=Evaluate(0) if then is None else then, else_case=other)
        if isinstance(stmt, (BufferStore, Evaluate)):
            return stmt
        body = self._body(stmt)
        return None if body is None else stmt.replace(body=body)


def insert(body: Any, position: int, stmt: Stmt) -> Stmt:
    """A body with a statement added; declarations stay around all of it."""
    if isinstance(body, (AllocateConst, DeclBuffer)):
        return body.replace(body=insert(body.body, position, stmt))
    stmts = as_list(body)
    return SeqStmt([*stmts[:position], *as_list(stmt), *stmts[position:]])


def as_list(stmt: Stmt | None) -> list[Stmt]:
    """The statements of a sequence, or one other statement; an empty list for None."""
    return [] if stmt is None else list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]


def removable(state: ScheduleState, block: StmtSRef) -> Stmt:
    """The outermost statement that holds a block and no other.

    Raises `PrimitiveError` for the only block of a scope.
    """
    last, above = block.stmt, block.parent
    stmt: Any = state.realize_of(block)
    while isinstance(above.stmt, For) and above.stmt.body is stmt:
        stmt, above = above.stmt, above.parent
    if above.stmt.body is stmt:
        raise PrimitiveError(
            state.mod,
            "The block {0} is the only leaf in the scope {1}, which cannot be removed; Otherwise the scope will be "
            "empty.",
            last,
            above.stmt,
        )
    return stmt
