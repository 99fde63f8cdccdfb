"""Statements for operators that are loops over elements, which no tensor expression describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir import operators as ops
from ..ir.expr import PrimExpr, Var, as_expr, const
from ..tir.buffer import Buffer, decl_buffer
from ..tir.stmt import Allocate, BufferStore, DeclBuffer, For, ForKind, LetStmt, Stmt, flat_seq
from .index import is_empty, size_of, unravel


def loop(begin: Any, end: Any, body: Callable[[Var], Stmt], name: str = "i", kind: ForKind = ForKind.SERIAL) -> Stmt:
    """`for name in range(begin, end)`"""
    begin, end = ops.match_types(begin, end)
    var = Var(name, end.dtype)
    return For(var, begin, ops.difference(end, begin), kind, body(var))


def for_each(
    shape: Sequence[Any], body: Callable[[list[PrimExpr]], Stmt], name: str = "fused", parallel: bool = False
) -> Stmt:
    """One loop over all indices of a shape, in row-major order; `parallel` if the iterations do not depend on each
    other.
    """
    if not shape:
        return body([])
    kind, inner = ForKind.PARALLEL if parallel else ForKind.SERIAL, shape[1:]

    def at(position: Var) -> Stmt:
        # Positions are inside, so the first index is a quotient, without a remainder.
        first = const(0) if is_empty(inner) else ops.floordiv(position, size_of(inner))
        return body([first, *unravel(position, inner)])

    return loop(const(0), size_of(shape), at, name, kind)


def store(buffer: Buffer, indices: Sequence[Any], value: Any) -> Stmt:
    """`buffer[indices] = value`, converted to the dtype of the buffer."""
    return BufferStore(buffer, ops.cast(buffer.dtype, as_expr(value)), list(indices))


def let(name: str, value: PrimExpr, body: Callable[[Var], Stmt]) -> Stmt:
    """A name for a value, which is computed once."""
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


def scalar(name: str, dtype: str) -> Buffer:
    """Local memory for one value, to be allocated."""
    return decl_buffer((1,), dtype, name, scope="local")


def allocate(buffers: Sequence[Buffer], *body: Stmt) -> Stmt:
    """Statements in which the buffers exist."""
    stmt = flat_seq(body)
    for buffer in reversed(buffers):
        stmt = Allocate(buffer.data, buffer.dtype, buffer.shape, True, DeclBuffer(buffer, stmt))
    return stmt
