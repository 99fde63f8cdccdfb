"""Statements: loops, stores, blocks, allocations and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from ..ir import operators as ops
from ..ir.container import EMPTY, Array
from ..ir.dtype import DataType
from ..ir.expr import ConstExpr, ExprOp, PrimExpr, Range, Var, as_expr
from ..ir.node import Node, as_array, attr, binder, child
from .buffer import Buffer, BufferRegion, Stmt
from .buffer import BufferStore as BufferStore
from .expr import IterVar, expr_array


class LetStmt(Stmt):
    """`body` with `var` standing for `value`, which is computed once."""

    var: Var = binder()
    value: PrimExpr = child(converter=as_expr)
    body: Stmt


class AssertStmt(Stmt):
    """Stops with `message` unless `condition` holds; then `body`."""

    condition: PrimExpr = child(converter=ops.as_bool)
    message: PrimExpr = child(converter=ops.as_argument)
    body: Stmt


class ForKind(IntEnum):
    """How the iterations of a loop run."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


class For(Stmt):
    """`for loop_var in [min, min + extent)`; `kind` says how it runs."""

    loop_var: Var = binder()
    min: PrimExpr = child(converter=as_expr)
    extent: PrimExpr = child(converter=as_expr)
    kind: ForKind = attr(converter=ForKind)
    body: Stmt
    thread_binding: IterVar | None = None
    annotations: Mapping[str, Any] = attr(default=EMPTY)

    def _derive(self) -> None:
        dtype = self.loop_var.dtype
        if self.min.dtype is not dtype:
            self.min = ops.cast(dtype, self.min)
        if self.extent.dtype is not dtype:
            self.extent = ops.cast(dtype, self.extent)


class While(Stmt):
    """`body` as long as `condition` holds."""

    condition: PrimExpr = child(converter=ops.as_bool)
    body: Stmt


class BufferRealize(Stmt):
    """`body` with memory for `buffer` in the given bounds."""

    buffer: Buffer = binder()
    bounds: Array[Range] = child(converter=as_array)
    condition: PrimExpr = child(converter=ops.as_bool)
    body: Stmt


class Allocate(Stmt):
    """`body` with fresh memory of `extents` elements behind `buffer_var`."""

    buffer_var: Var = binder()
    dtype: DataType = attr(converter=DataType)
    extents: Array[PrimExpr] = child(converter=expr_array)
    condition: PrimExpr = child(converter=ops.as_bool)
    body: Stmt
    annotations: Mapping[str, Any] = attr(default=EMPTY)


class AllocateConst(Stmt):
    """`body` with constant data behind `buffer_var`; `data` is a runtime tensor."""

    buffer_var: Var = binder()
    dtype: DataType = attr(converter=DataType)
    extents: Array[PrimExpr] = child(converter=expr_array)
    data: Any = attr(alias="data_or_idx")
    body: Stmt
    annotations: Mapping[str, Any] = attr(default=EMPTY)

    @property
    def irmod_storage_idx(self) -> int | None:
        """The number of the data among the module's "constants", once `ExtractPrimFuncConstants` has put it there."""
        return self.annotations.get("irmod_storage_idx")


class DeclBuffer(Stmt):
    """`body` with `buffer` as a view of memory that is there already."""

    buffer: Buffer = binder()
    body: Stmt


class AttrStmt(Stmt):
    """`body` with an attribute: `attr_key` of `node` is `value`; a thread's extent, for instance."""

    node: Any = child()
    attr_key: str
    value: PrimExpr = child(converter=ops.as_argument)
    body: Stmt


class SeqStmt(Stmt):
    """Two or more statements, one after the other."""

    seq: Array[Stmt] = child(converter=as_array)

    def __getitem__(self, index: int) -> Stmt:
        return self.seq[index]

    def __len__(self) -> int:
        return len(self.seq)


class IfThenElse(Stmt):
    """One of two statements; without `else_case`, one or none."""

    condition: PrimExpr = child(converter=ops.as_bool)
    then_case: Stmt
    else_case: Stmt | None = None


class Evaluate(Stmt):
    """Evaluates an expression for its effect."""

    value: PrimExpr = child(converter=as_expr)


class MatchBufferRegion(Node):
    """`buffer` as a view of the region `source`."""

    buffer: Buffer = binder()
    source: BufferRegion


class Block(Stmt):
    """A computation over iteration variables, with the regions that it reads and writes; the unit that schedules move.

    `init` runs where every reduction variable is at its minimum, before the body.
    """

    iter_vars: Array[IterVar] = binder(converter=as_array)
    reads: Array[BufferRegion] = child(converter=as_array)
    writes: Array[BufferRegion] = child(converter=as_array)
    name_hint: str = attr(compared=False)
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: Array[Buffer] = binder(default=(), converter=as_array)
    match_buffers: Array[MatchBufferRegion] = binder(default=(), converter=as_array)
    annotations: Mapping[str, Any] = attr(default=EMPTY)


class BlockRealize(Stmt):
    """One instance of a block: a value for each of its iteration variables; it runs where `predicate` holds."""

    iter_values: Array[PrimExpr] = child(converter=expr_array)
    predicate: PrimExpr = child(converter=ops.as_bool)
    block: Block


def stmt_seq(*args: Any) -> Stmt:
    """Statements one after the other; expressions are evaluated."""
    stmts = [Evaluate(a) if isinstance(a, (ExprOp, int)) else a for a in args]
    return stmts[0] if len(stmts) == 1 else SeqStmt(stmts)


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements that a statement runs one after the other."""
    if isinstance(stmt, SeqStmt):
        return [s for inner in stmt.seq for s in stmt_list(inner)]
    return [stmt]


def flat_seq(stmts: Any) -> Stmt:
    """Statements one after the other, nested sequences spliced in and no-ops left out; a lone statement stays
    itself.
    """
    flat = [s for stmt in stmts for s in stmt_list(stmt) if not is_no_op(s)]
    return flat[0] if len(flat) == 1 else SeqStmt(flat) if flat else Evaluate(0)


def is_no_op(stmt: Stmt) -> bool:
    """Whether a statement only evaluates a constant."""
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, ConstExpr)
