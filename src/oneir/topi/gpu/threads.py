"""Statements that blocks of threads execute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import operators as ops
from ...ir.expr import PrimExpr, Range, Var, as_expr, const
from ...tir.expr import IterVar
from ...tir.stmt import For, ForKind, Stmt


def launch(blocks: Any, threads: int, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
    """A kernel of so many blocks of threads: `body(block, thread)`, in int32. What follows it waits until all are done.

    All that `body` computes from these and from extents should be in int32, as far as it fits: not all devices have
    int64, and those that do are slower.
    """
    block, thread = Var("block", "int32"), Var("thread", "int32")
    stmt = body(block, thread)
    for var, extent, tag in ((thread, threads, "threadIdx.x"), (block, blocks, "blockIdx.x")):
        count = ops.cast("int32", as_expr(extent))
        axis = IterVar(Range(0, count), Var(tag, "int32"), IterVar.ThreadIndex, tag)
        stmt = For(var, const(0, "int32"), count, ForKind.THREAD_BINDING, stmt, thread_binding=axis)
    return stmt


def ceil_div(a: Any, b: int) -> PrimExpr:
    """a / b, rounded up."""
    a = as_expr(a)
    return ops.floordiv(ops.add(a, const(b - 1, a.dtype)), const(b, a.dtype))
