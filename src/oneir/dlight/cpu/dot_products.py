"""Products with a matrix whose rows lie along the sum, as the matrix is stored.

    C[i, j] += A[i, k] * B[j, k]

Each sum is a vector until its row is done.

Of a few rows, as of a matrix times a vector, every element of the matrix is used once for each, so what counts is how
fast it is read: in vectors along the sum, from several rows far apart at once. Rows that are neighbours would share
pages, and processors fetch ahead in one order within a page.

Of more rows, a tile of sums stays in registers, whose vectors are added up together. A long sum takes less time so than
copying the matrix into panels and reading these would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.expr import PrimExpr, Var
from ...target.cpu import CPUInfo, cpu_info
from ...target.target import Target
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, Schedule
from ...tir.stmt import BufferStore
from ..analysis.contraction import is_contraction, operands
from ..analysis.leaves import Leaf, leaves, leaves_of
from .added_lanes import mark_lanes, with_added_lanes
from .base import CPUScheduleRule, largest_divisor, parallelize
from .contraction import follows, in_vectors
from .contraction_axes import variables_of
from .register_tile import FMA_LATENCY, FMAS_PER_CYCLE, L2_CYCLES, LOADS_PER_CYCLE, MOST_ROWS, in_registers
from .spatial import inline_elementwise, schedule_leaf

FEW_ROWS = 4
"""The most rows of the other operand for which the matrix is read as it is stored, instead of copied into panels."""
LEAST_FOR_EACH_ROW = 4
"""Of more rows, how many products a sum must have for each row, so that adding up lanes takes less time than panels.

Measured on an Emerald Rapids: of four, sums in vectors take 0.7 to 0.9 of the time (sums of only 64 products 0.9 and
1.3 in two runs), of two 0.75 to 1.2.
"""
MOST_WAITING = 1.25
"""How many times the time of its products a step of a tile may take."""
STREAMS = 4
"""How many rows of the matrix are read at once."""
SHORT = 4
"""The length to which a vector of sums is halved before its elements are added one by one."""


class DotProducts(CPUScheduleRule):
    """A few rows times a matrix whose rows lie along the sum."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        contractions = [leaf for leaf in leaves_of(func) or () if is_contraction(leaf)]
        # Inlining takes most of the time here, and changes neither the axes of a block nor where it stores.
        if not contractions or not all(map(_sums_along_last, contractions)):
            return None
        sch, info = Schedule(func), cpu_info(target)
        inline_elementwise(sch)
        found = leaves(sch) or []
        plans = {id(leaf): plan_of(leaf, info) for leaf in found if is_contraction(leaf)}
        if None in plans.values():
            return None
        followers = {id(leaf): main for main in found for leaf in found if follows(sch, main, leaf)}
        for leaf in found:
            plan = plans.get(id(leaf))
            if plan is not None:
                after = next((other.handle for other in found if followers.get(id(other)) is leaf), None)
                last = sch.cache_write(leaf.handle, 0, "local") if after is None else after
                if isinstance(plan, Tiles):
                    sum_in_tiles(sch, leaf, plan, last)
                else:
                    sum_in_vectors(sch, leaf, plan, last)
            elif id(leaf) not in followers:
                schedule_leaf(sch, leaf, info.vector_bytes)
        return Schedule(with_added_lanes(sch.mod["main"]))


@dataclass(slots=True)
class Streams:
    """A product of a few rows: the roles of the axes, as dimensions of its result, and what one step computes."""

    rows: list[int]
    main: int
    """The longest axis of the matrix that does not index the rows."""
    streams: int
    """Rows of the matrix that are read at once."""
    width: int
    """Partial sums of each row."""


@dataclass(slots=True)
class Tiles:
    """A product of more rows: the axes whose loops are split into tiles, and how many of each a tile has."""

    axes: tuple[int, int]
    """Of the rows and of the matrix's rows, as dimensions of the result."""
    extents: tuple[int, int]
    lanes: int


def plan_of(leaf: Leaf, info: CPUInfo) -> Streams | Tiles | None:
    """How a product is computed; None where panels take less time, and for a matrix stored otherwise."""
    *axes, summed = leaf.block.iter_vars
    *extents, depth = leaf.extents
    pair, store = operands(leaf.block), leaf.block.body
    if pair is None or not all(_lies_along(load, summed.var) for load in pair) or not isinstance(store, BufferStore):
        return None
    if not _sums_along_last(leaf) or depth is None:
        return None
    a, b = (variables_of(load) for load in pair)
    own = [
        [i for i, iv in enumerate(axes) if iv.var in used and iv.var not in other] for used, other in ((a, b), (b, a))
    ]
    rows, columns = sorted(own, key=lambda part: math.prod(extents[i] or 1 << 20 for i in part))
    count = math.prod(extents[i] or 1 << 20 for i in rows)
    main = max(columns, key=lambda i: extents[i] or 0, default=0)
    extent = extents[main] if columns else None
    itemsize = store.buffer.dtype.itemsize
    most = max(1, info.vector_bytes // itemsize)
    lanes = min(most, depth & -depth)
    if extent is None or lanes < min(most, 4) or depth < 2 * lanes:
        return None
    if count > FEW_ROWS:
        narrow = any(load.buffer.dtype.itemsize < itemsize for load in pair)
        # The rows are to stay in the cache while the matrix is read once.
        large = 2 * count * depth * itemsize > info.l2_bytes
        if lanes < most or narrow or large or depth < LEAST_FOR_EACH_ROW * count:
            return None
        row = max(rows, key=lambda i: extents[i] or 0)
        tile = tile_of_sums(extents[row] or 1, extent, depth * itemsize, lanes, info)
        return None if tile is None else Tiles((row, main), tile, lanes)
    streams = largest_divisor(extent, max(1, STREAMS // count))
    vectors = largest_divisor(depth // lanes, max(1, STREAMS // (streams * count)))
    return Streams(rows, main, streams, vectors * lanes)


def tile_of_sums(rows: int, columns: int, row_bytes: int, lanes: int, info: CPUInfo) -> tuple[int, int] | None:
    """The rows and columns of a tile, divisors of their numbers, whose sums are vectors in registers, a multiple of the
    lanes of them. None where the processor would wait for loads or for sums. `row_bytes` are those of a whole row.
    """

    def waiting(tile: tuple[int, int]) -> tuple[float, int]:
        products, loads = math.prod(tile) / FMAS_PER_CYCLE, sum(tile)
        # The rows of the matrix are read again and again; other rows come from the second-level cache.
        far = tile[0] if loads * row_bytes <= info.l1_bytes else loads
        return max(loads / LOADS_PER_CYCLE, far * L2_CYCLES, FMA_LATENCY, products) / products, loads

    tiles = [
        (r, c)
        for r in range(1, min(rows, MOST_ROWS) + 1)
        for c in range(1, lanes + 1)
        if rows % r == columns % c == lanes % c == r * c % lanes == 0 and in_registers(max(r, c), min(r, c), info)
    ]
    best = min(tiles, key=waiting, default=None)
    return None if best is None or waiting(best)[0] > MOST_WAITING else best


def _lies_along(load: BufferLoad, axis: Var) -> bool:
    """Whether an operand is contiguous along an axis: it is the last index, and in no other."""
    *others, last = load.indices or [None]
    return last is axis and all(axis not in variables(index) for index in others)


def _sums_along_last(leaf: Leaf) -> bool:
    """Whether a block stores at all of its axes but the last one, in order, and these are spatial."""
    store, axes = leaf.block.body, leaf.block.iter_vars[:-1]
    if not isinstance(store, BufferStore) or len(store.indices) != len(axes):
        return False
    spatial = all(iv.iter_type == IterVar.DataPar for iv in axes)
    return spatial and all(index is iv.var for index, iv in zip(store.indices, axes, strict=True))


def sum_in_tiles(sch: Schedule, leaf: Leaf, plan: Tiles, last: BlockRV) -> None:
    """Adds up vectors for a tile of sums, and then their elements; lets the block that follows do so tile by tile."""
    total, count = leaf.handle, len(leaf.extents) - 1
    _, within = sch.split(sch.get_loops(total)[-1], [None, plan.lanes])
    part = sch.rfactor(within, count)
    loops = sch.get_loops(last)
    outer = [loop for i, loop in enumerate(loops) if i not in plan.axes]
    inner = []
    for axis, extent in reversed(list(zip(plan.axes, plan.extents, strict=True))):
        tile, within = sch.split(loops[axis], [None, extent])
        outer.append(tile)
        inner.insert(0, within)
    sch.reorder(*outer, *inner)
    around = parallelize(sch, outer, leaf.work)
    assert around is not None
    for handle in (total, part):
        sch.set_scope(handle, 0, "local")
        sch.compute_at(handle, around, preserve_unit_loops=True)
    within, *elements, step = sch.get_loops(part)[-count - 2 :]
    sch.reorder(step, *elements, within)
    in_vectors(sch, [*elements, within], plan.lanes)
    sch.decompose_reduction(part, step)
    lanes, *elements = sch.get_loops(total)[-count - 1 :]
    elements.append(elements.pop(plan.axes[1]))
    sch.reorder(*elements, lanes)
    mark_lanes(sch, elements[0])
    if plan.axes[1] == count - 1:
        sch.vectorize(inner.pop())
    for loop in inner:
        sch.unroll(loop)


def sum_in_vectors(sch: Schedule, leaf: Leaf, plan: Streams, last: BlockRV) -> None:
    """Adds up vectors for some rows of the matrix, and then their elements; lets what follows do so at once."""
    total, main = leaf.handle, plan.main
    part = (leaf.extents[main] or 1) // plan.streams

    def far_apart(*axes: PrimExpr) -> list[PrimExpr]:
        return [*axes[:main], axes[main] // part, axes[main] % part, *axes[main + 1 :]]

    # The rows that are read at once are a dimension of the sums.
    sch.transform_block_layout(total, far_apart)
    sch.transform_layout(total, ("write", 0), far_apart)
    sch.transform_block_layout(last, far_apart)
    count = len(leaf.extents)
    steps = [total]
    # Vectors of products are added up to one, that one to a short one, and its elements to the sum.
    widths = plan.width, min(plan.width, SHORT)
    for width in widths:
        _, within = sch.split(sch.get_loops(total)[-1], [None, width])
        steps.insert(1, sch.rfactor(within, count))
    loops = sch.get_loops(last)
    at_once = [main, *(i + (i > main) for i in plan.rows)]
    outer = [loop for i, loop in enumerate(loops) if i not in at_once]
    inner = [loops[i] for i in at_once]
    sch.reorder(*outer, *inner)
    around = parallelize(sch, outer, leaf.work)
    assert around is not None
    for handle in steps:
        sch.set_scope(handle, 0, "local")
        sch.compute_at(handle, around, preserve_unit_loops=True)
    within, *elements = sch.get_loops(total)[-count - 1 :]
    sch.reorder(*elements, within)
    for loop in (*elements, *inner):
        sch.unroll(loop)
    sch.decompose_reduction(total, within)
    _, short, long = steps
    within, step, *elements = sch.get_loops(short)[-count - 2 :]
    sch.reorder(step, *elements, within)
    in_vectors(sch, [step, *elements, within], widths[1])
    sch.decompose_reduction(short, sch.get_loops(short)[-count - 2])
    within, *elements, step = sch.get_loops(long)[-count - 2 :]
    sch.reorder(step, *elements, within)
    in_vectors(sch, [*elements, within], widths[0])
    sch.decompose_reduction(long, step)
