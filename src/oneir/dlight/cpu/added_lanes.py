"""Sums over the lanes of vectors, of as many vectors at once as each has lanes.

    for i, j in T.grid(4, 4):               square[i * 4 + j, 0:16] = A[i, j, 0:16]        for each i and j
        for lane in range(16):        ->    vectors whose lanes are sums of halves of two, by log2(16) steps of shuffles
            C[i, j] += A[i, j, lane]        C[i, 0:4] = square[0, i * 4 : i * 4 + 4]       for each i

So a sum takes three instructions, where adding up one vector after the other takes eight.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ...ir.expr import Add, PrimExpr, Var, as_int, const
from ...ir.visitor import Mapper
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import Shuffle
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, Stmt, flat_seq
from ...tir.stmt_functor import substitute
from ...topi.loops import allocate, loop
from .transposition import crossed, vectors

ADDED = "cpu.added_lanes"
"""Annotation of the outermost loop around a block that adds up the lanes of vectors."""


def added_up(square: Buffer) -> Stmt:
    """What makes the first row of a square the sums of all of its rows, which are vectors."""
    lanes, dtype = as_int(square.shape[0]) or 1, square.shape[0].dtype
    rows, half = vectors(square, lanes, dtype), lanes // 2
    steps: list[Stmt] = []
    while half:
        # Of a pair, sums of lanes that are `half` apart: those of the first where that bit of the lane is 0.
        low, high = crossed(lanes, half)
        for i in range(half):
            pair = [rows[i], rows[i + half]]
            steps.append(BufferStore(square, Shuffle(pair, low) + Shuffle(pair, high), rows[i].indices))
        half //= 2
    return flat_seq(steps)


def mark_lanes(sch: Schedule, outermost: LoopRV) -> None:
    """Marks loops over sums, the innermost of which are neighbours, around one over the lanes of a vector, the last
    index of what is summed. The number of sums is a multiple of the lanes, and these of the innermost loop's extent.
    """
    sch.annotate(outermost, ADDED, 1)


def with_added_lanes(func: PrimFunc) -> PrimFunc:
    """The function with the lanes of vectors added up by shuffles in the marked loops, which are no longer marked."""
    return func.replace(body=_Sums()(func.body))


class _Sums(Mapper):
    def visit_For(self, loop: For) -> Any:
        return _sums(loop) if ADDED in loop.annotations else self.generic_visit(loop)


def _sums(outermost: For) -> Stmt:
    """The sums of the marked loops, as a block without axes."""
    loops, realize = [outermost], outermost.body
    while isinstance(realize, For):
        loops.append(realize)
        realize = realize.body
    assert isinstance(realize, BlockRealize)
    *outer, neighbours, within = loops
    block, dtype = realize.block, within.loop_var.dtype
    axes = [iv.var for iv in block.iter_vars]
    store = substitute(block.body, dict(zip(axes, realize.iter_values, strict=True)))
    assert isinstance(store, BufferStore) and isinstance(store.value, Add)
    vector, width, lanes = store.value.b, as_int(neighbours.extent) or 1, as_int(within.extent) or 1
    square = decl_buffer([const(lanes, dtype)] * 2, store.buffer.dtype, "square", scope="local")

    def over(count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop(const(0, dtype), const(count, dtype), body, "lane", ForKind.VECTORIZED)

    def loaded(row: int, at: dict[Var, PrimExpr]) -> Stmt:
        return over(
            lanes,
            lambda lane: BufferStore(
                square, substitute(vector, {**at, within.loop_var: lane}), [const(row, dtype), lane]
            ),
        )

    def stored(first: int, at: dict[Var, PrimExpr]) -> Stmt:
        def element(lane: PrimExpr) -> Stmt:
            indices = [substitute(index, {**at, neighbours.loop_var: lane}) for index in store.indices]
            return BufferStore(store.buffer, square[const(0, dtype), lane + const(first, dtype)], indices)

        return over(width, element)

    places = [
        {x.loop_var: const(i, dtype) for x, i in zip(outer, at, strict=True)}
        for at in itertools.product(*(range(as_int(x.extent) or 1) for x in outer))
    ]
    steps: list[Stmt] = []
    for start in range(0, len(places), lanes // width):
        some = places[start : start + lanes // width]
        for i, at in enumerate(some):
            steps += [loaded(i * width + j, {**at, neighbours.loop_var: const(j, dtype)}) for j in range(width)]
        steps.append(added_up(square))
        steps += [stored(i * width, at) for i, at in enumerate(some)]
    reads, writes = ([BufferRegion.full(r.buffer) for r in regions] for regions in (block.reads, block.writes))
    body = allocate([square], *steps)
    return BlockRealize([], const(True), Block([], reads, writes, block.name_hint, body))
