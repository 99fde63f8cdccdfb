"""Attention: sums of values, weighted with the softmax of scores, which are products of queries and keys.

    scores[i, j] += Q[i, k] * K[j, k]            for rows in T.parallel(heads * queries // 64):
    top[i] = max(top[i], scores[i, j])               for keys in range(n // 256):
    e[i, j] = exp(scores[i, j] - top[i])     ->          scores of some queries and keys
    total[i] += e[i, j]                                  their largest so far, exponentials, their sum so far
    out[i, d] += e[i, j] / total[i] * V[j, d]            sums of values, rescaled to the largest so far
                                                     out = sums of values / sums of exponentials

So all that belongs to some queries and some keys stays in the second-level cache, and memory does not depend on the
numbers of them (FlashAttention; Dao et al., 2022). The loops are written, since no sequence of primitives makes an
online softmax of a two-pass one: `attention_loops.py` says how.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import FloorDiv, IntImm, Range, Var, as_int, const
from ...ir.visitor import post_order_visit
from ...target.cpu import CPUInfo, cpu_info
from ...target.target import Target
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import IfThenElse
from ..analysis.attention import Parts, parts_of
from ..analysis.contraction import is_contraction
from ..analysis.leaves import leaves_of, plain_schedule
from ..analysis.values import root_block
from .attention_loops import Loops, Sizes, lies_along
from .base import PARALLEL_WORK, CPUScheduleRule, largest_divisor

QUERIES, KEYS = 64, 256
"""About the rows and keys of a block, in whole panels: their scores take 64 KiB."""
MANY_BLOCKS = 32
"""From so many blocks on, they have twice the rows, and their scores take 128 KiB: keys and values are copied for each
block."""
FEW_ROWS = 4
"""The most rows for which keys and values are read as they lie, instead of copied into panels for products of tiles."""
LONGEST = 512
"""The longest head: a block's keys and values are copied."""
_DTYPES = ("float32", "float16", "bfloat16")
"""The dtypes of queries, keys and values; all is computed in float32."""


class Attention(CPUScheduleRule):
    """Products of queries and keys, softmax, and products with values, some queries and some keys at a time."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        found = leaves_of(func)
        if found is None or [is_contraction(leaf) for leaf in found if leaf.reduces] != [True, False, False, True]:
            return None
        parts = parts_of(plain_schedule(func))
        depth, width = (None, None) if parts is None else (as_int(parts.depth), as_int(parts.width))
        if parts is None or depth is None or width is None or max(depth, width) > LONGEST:
            return None
        zero = const(0, parts.queries.dtype)
        at = [zero] * len(parts.batch)
        if any(part(at, zero, zero).dtype not in _DTYPES for part in (parts.query, parts.key, parts.value)):
            return None
        info = cpu_info(target)
        group = group_of(parts)
        rows = parts.queries * group
        few, many = few_rows(parts, group, depth, width, info), many_rows(parts, group, depth, width, info)
        known = as_int(rows)
        if few is None:
            body = many.body()
        elif known is not None:
            body = few.body() if known <= few.sizes.rows else many.body()
        else:
            body = IfThenElse(ops.less_equal(rows, few.sizes.rows), few.body(), many.body())
        return Schedule(func.replace(body=root_block(body)))


def group_of(parts: Parts) -> int:
    """How many neighbours along the last axis of the batch have the same keys and values: heads of queries that share
    one.
    """
    outer, inner = Var("outer", parts.batch[-1].dtype), Var("inner", parts.batch[-1].dtype)
    others = [Var(f"at{i}", extent.dtype) for i, extent in enumerate(parts.batch[:-1])]
    own = Var("own", outer.dtype)
    j, k = Var("j", parts.keys.dtype), Var("k", parts.keys.dtype)
    candidates: set[int] = set()

    def collect(node: object) -> None:
        if isinstance(node, FloorDiv) and isinstance(node.b, IntImm):
            candidates.add(node.b.value)

    for load in (parts.key([*others, own], j, k), parts.value([*others, own], j, k)):
        for index in load.indices:
            post_order_visit(index, collect)
    for group in sorted(candidates, reverse=True):
        analyzer = Analyzer()
        if group < 2 or not analyzer.can_prove_equal(ops.floormod(parts.batch[-1], group), 0):
            continue
        analyzer.bind(outer, Range(const(0, outer.dtype), parts.batch[-1] // group))
        analyzer.bind(inner, Range(const(0, inner.dtype), const(group, inner.dtype)))
        at = [*others, outer * group + inner]
        loads = parts.key(at, j, k), parts.value(at, j, k)
        if all(inner not in variables(analyzer.simplify(index)) for load in loads for index in load.indices):
            return group
    return 1


def many_rows(parts: Parts, group: int, depth: int, width: int, info: CPUInfo) -> Loops:
    """The loops over tiles of rows and vectors."""
    lanes = max(1, info.vector_bytes // 4)
    keys, rows = as_int(parts.keys), as_int(parts.queries)
    vectors = _vectors(-(-(keys or 4 * lanes) // lanes), info.vector_registers)
    panel = vectors * lanes
    of_values = _vectors(-(-width // lanes), info.vector_registers)
    tiles = [_rows_of_tile(count, info.vector_registers) for count in (vectors, of_values)]
    multiple = max(tiles)
    rows = None if rows is None else rows * group
    heads = math.prod(as_int(extent) or 1 for extent in parts.batch) // group
    most = 2 * QUERIES if rows is not None and heads * rows >= MANY_BLOCKS * QUERIES else QUERIES
    sizes = Sizes(
        rows=_even(rows, most, multiple),
        keys=_even(keys, KEYS, panel),
        panel=panel,
        lanes=lanes,
        score_rows=tiles[0],
        value_rows=tiles[1],
        value_lanes=of_values * lanes,
    )
    return Loops(parts, group, depth, width, sizes, copied=True, parallel=_parallel(parts, depth, width))


def few_rows(parts: Parts, group: int, depth: int, width: int, info: CPUInfo) -> Loops | None:
    """The loops over keys and values as they lie; None where no vectors can be made of them, or for too many rows."""
    queries = as_int(parts.queries)
    rows = group if queries is None else queries * group
    lanes, of_values = (_lanes(extent, info.vector_bytes // 4) for extent in (depth, width))
    if rows > FEW_ROWS or min(lanes, of_values) < 4 or rows * depth // lanes > 32:
        return None
    if not _contiguous(parts, parts.key) or not _contiguous(parts, parts.value):
        return None
    sizes = Sizes(
        rows=rows,
        keys=_even(as_int(parts.keys), 2 * KEYS, lanes),
        panel=lanes,
        lanes=lanes,
        score_rows=rows,
        value_rows=rows,
        value_lanes=of_values * largest_divisor(width // of_values, max(1, 16 // rows if rows > 1 else 8)),
    )
    return Loops(parts, group, depth, width, sizes, copied=False, parallel=_parallel(parts, depth, width))


def _parallel(parts: Parts, depth: int, width: int) -> bool:
    work = depth + width
    for extent in (*parts.batch, parts.queries, parts.keys):
        work *= as_int(extent) or 64
    return work >= PARALLEL_WORK


def _vectors(needed: int, registers: int) -> int:
    """The vectors of a tile's row: several, unless many of the last tile were padding.

    On Zen 4 heads of 80 in tiles of 5 vectors take 0.9 of the time that they take in tiles of 2, and 77 keys 0.93.
    """
    slower = {1: 1.3, 2: 1.05}
    counts = [count for count in (4, 6, 5, 3, 2, 1) if _rows_of_tile(count, registers) >= 4]
    return min(counts, key=lambda count: -(-needed // count) * count * slower.get(count, 1.0))


def _rows_of_tile(vectors: int, registers: int) -> int:
    """The rows of a tile whose sums, and what is multiplied, fit into registers."""
    return next(rows for rows in (8, 4, 2, 1) if rows == 1 or vectors * (rows + 1) + 1 <= registers)


def _even(extent: int | None, most: int, multiple: int) -> int:
    """The extent of blocks that are about equal, at most about `most`."""
    count = 1 if extent is None else -(-extent // most)
    whole = most if extent is None else -(-extent // count)
    return -(-whole // multiple) * multiple


def _lanes(extent: int, most: int) -> int:
    """The widest vector that whole ones of make an extent."""
    return max(1, min(most, extent & -extent))


def _contiguous(parts: Parts, part: Callable[..., BufferLoad]) -> bool:
    """Whether the elements of a key or value are neighbours in memory."""
    j, k = Var("j", parts.keys.dtype), Var("k", parts.keys.dtype)
    return lies_along(part([Var(f"at{i}", extent.dtype) for i, extent in enumerate(parts.batch)], j, k), k)
