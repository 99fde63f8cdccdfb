"""Rows by a matrix in registers, for GPUs that load vectors but have slow shared memory.

    kernel 1:  P[i / 16, k, i % 16] = A[i, k]                     16 neighbouring rows in one vector load
    kernel 2:  C[i, j] = sum of P[i / 16, k, i % 16] * B[k, j]    a thread: 16 rows of 8 neighbouring columns

A thread loads a vector of the rows and one of the matrix for each element of the sum, and multiplies them all. What
unpacks the matrix is computed in registers, and what it reads is loaded as seldom as it changes along the sum: the
eight elements of a word once for eight, the scale of 32 elements once for 32.
"""

from __future__ import annotations

import math

from ...arith import Analyzer
from ...arith.iter_map import is_number
from ...ir.expr import PrimExpr, Range, Var, as_int
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.stmt import Block
from ...tir.stmt_functor import substitute
from ..analysis import get_root_block
from ..analysis.gemm import IterKind, detect_iter_traits, get_reduction_blocks
from ..base.sizes import get_extent
from .base import GPUScheduleRule
from .inlining import auto_inline_consumer_chain, auto_inline_producers
from .matrix_vector import is_adreno

_ROWS, _VECTOR = 16, 8
"""Of the result, what a thread computes."""
_THREADS_X, _THREADS_Y = 32, 4
_SUM = (4, 8)
"""How the sum is cut: the elements that one word or one scale unpacks."""


class MatmulPackedRows(GPUScheduleRule):
    """A product of a symbolic number of rows and a matrix whose columns are neighbours in memory, for an Adreno.

    It is not for extents that vectors, or the pieces of the sum, do not divide. What computes the rows goes into the
    kernel that packs them, and what is computed from the result into its stores.
    """

    def is_target_available(self, target: Target) -> bool:
        return super().is_target_available(target) and is_adreno(target)

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        found = get_reduction_blocks(sch, sch.get_child_blocks(get_root_block(sch)))
        if found is None:
            return None
        (block,) = found
        *rows, columns, summed = sch.get_loops(block)
        *_, count, width, length = [None, *(as_int(get_extent(sch, loop)) for loop in (*rows, columns, summed))]
        if count is not None or not rows or not width or not length or not _is_rows_by_matrix(sch.get(block)):
            return None
        if width % _VECTOR or length % math.prod(_SUM):
            return None
        sch.reindex(block, ("read", 0))
        sch.pad_einsum(block, [*[1] * (len(rows) - 1), _ROWS, 1, 1])
        pack, unpack = _producer(sch, block, 0), _producer(sch, block, 1)
        if pack is None:
            return None
        for producer in (pack, unpack):
            if producer is not None:
                auto_inline_producers(sch, producer)
        consumers = sch.get_consumers(block)
        if len(consumers) != 1 or not auto_inline_consumer_chain(sch, consumers[0]):
            return None
        _multiply(sch, block, consumers[0], pack, unpack)
        return sch


def _multiply(sch: Schedule, block: BlockRV, result: BlockRV, pack: BlockRV, unpack: BlockRV | None) -> None:
    """Cuts the product into what a thread computes, and brings its factors and its result there."""
    sch.transform_layout(pack, ("write", 0), _neighbouring_rows)
    vector = sch.cache_read(block, 0, "local")
    _pack(sch, pack)
    *outer, rows, columns, summed = sch.get_loops(block)
    mo, mi, mu = sch.split(rows, [None, _THREADS_Y, _ROWS])
    no, ni, nv = sch.split(columns, [None, _THREADS_X, _VECTOR])
    k0, k1, k2 = sch.split(summed, [None, *_SUM])
    sch.reorder(*outer, no, mo, ni, mi, k0, k1, k2, mu, nv)
    _bind_batches(sch, outer)
    for loop, axis in ((no, "blockIdx.x"), (mo, "blockIdx.y"), (ni, "threadIdx.x"), (mi, "threadIdx.y")):
        sch.bind(loop, axis)
    if unpack is not None:
        sch.compute_at(unpack, k2)
        sch.set_scope(unpack, 0, "local")
        sch.vectorize(sch.get_loops(unpack)[-1])
    sch.reverse_compute_at(result, mi)
    sch.set_scope(block, 0, "local")
    sch.compute_at(vector, k2, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(vector)[-1])
    if unpack is not None:
        _load_seldom(sch, unpack, (k0, k1))
    for copy in (block, result):
        row, column = sch.get_loops(copy)[-2:]
        sch.unroll(row)
        sch.vectorize(column)
    sch.unroll(k2)
    sch.decompose_reduction(block, k0)


def _is_rows_by_matrix(product: Block) -> bool:
    """Whether a product is `C[.., i, j] += A[.., i, k] * B[k, j]`, with the axes in this order."""
    traits = detect_iter_traits(product)
    if traits is None or len(product.reads) != 2:
        return False
    *rows, column, summed = (trait.kind for trait in traits[3])
    a, b = (region.region for region in product.reads)
    *_, j, k = (iv.var for iv in product.iter_vars)
    in_order = (
        column is IterKind.kIter_J
        and summed is IterKind.kIter_K
        and all(r in (IterKind.kIter_I, IterKind.kIter_T) for r in rows)
    )
    return in_order and a[-1].min is k and b[-1].min is j


def _producer(sch: Schedule, block: BlockRV, position: int) -> BlockRV | None:
    """The block that writes what another reads at that position."""
    buffer = sch.get(block).reads[position].buffer
    for producer in sch.get_producers(block):
        if sch.get(producer).writes[0].buffer is buffer:
            return producer
    return None


def _neighbouring_rows(*index: PrimExpr) -> list[PrimExpr]:
    """Where an element of the rows lies in the packed ones."""
    *outer, i, k = index
    return [*outer, i // _ROWS, k, i % _ROWS]


def _pack(sch: Schedule, pack: BlockRV) -> None:
    """Packs a vector of rows a thread."""
    *outer, i, k = sch.get_loops(pack)
    by, ty, v = sch.split(i, [None, _THREADS_Y, _ROWS])
    bx, tx = sch.split(k, [None, _THREADS_X])
    sch.reorder(by, bx, ty, tx, v)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, axis)
    _bind_batches(sch, outer)
    sch.vectorize(v)


def _bind_batches(sch: Schedule, loops: list[LoopRV]) -> None:
    if loops:
        sch.bind(sch.fuse(*loops) if len(loops) > 1 else loops[0], "blockIdx.z")


def _load_seldom(sch: Schedule, unpack: BlockRV, loops: tuple[LoopRV, LoopRV]) -> None:
    """Loads what a block reads at the outermost of some loops along the sum inside of which it stays the same."""
    stmt = sch.get(unpack)
    k, j = (iv.var for iv in stmt.iter_vars)
    for position, region in enumerate(stmt.reads):
        indices = [part.min for part in region.region]
        if indices[-1] is not j or not all(is_number(part.extent, 1) for part in region.region):
            continue
        place = next((p for p in range(2) if _stays(indices, k, _SUM[p:])), None)
        if place is not None:
            copy = sch.cache_read(unpack, position, "local")
            sch.compute_at(copy, loops[place], preserve_unit_loops=True)
            sch.vectorize(sch.get_loops(copy)[-1])


def _stays(indices: list[PrimExpr], k: Var, inner: tuple[int, ...]) -> bool:
    """Whether indices are the same for all of the inner steps of a sum."""
    count = math.prod(inner)
    outer, step = Var("outer", k.dtype), Var("step", k.dtype)
    analyzer = Analyzer()
    analyzer.bind(step, Range(0, count))
    return all(
        analyzer.can_prove_equal(substitute(index, {k: outer * count + step}), substitute(index, {k: outer * count}))
        for index in indices
    )
