"""Contraction: multiply and sum. Matrix products, batched ones, convolutions in any layout.

    C[i, j] += A[i, k] * B[k, j]

One axis of the result is contiguous in memory, regular in one operand, and absent from the other: its elements are a
vector. An axis that is absent from the vector operand gives rows. A tile of rows and vectors stays in registers while
all of the reduction runs: each step loads the vectors of one operand, and multiplies each with the rows' elements of
the other. What is computed from the result elementwise follows tile by tile, out of the registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...arith import Analyzer
from ...ir.expr import IntImm, PrimExpr, Var, as_int, const
from ...target.cpu import CPUInfo, cpu_info
from ...target.target import Target
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import BufferStore, Evaluate
from ...tir.stmt_functor import loads, substitute
from ..analysis.contraction import is_contraction, operands
from ..analysis.leaves import Leaf, extent_of, leaves, leaves_of
from .bands import begin_bands, has_bands, with_joined_bands
from .base import CPUScheduleRule, parallelize
from .contraction_axes import (
    ROWS_IF_UNKNOWN,
    Axes,
    Dots,
    axis_of_rows,
    contraction_axes,
    in_memory_order,
    is_row,
    row_operand,
    variables_of,
    vector_operand,
)
from .fewer_rows import mark_tile, with_fewer_rows
from .flat_rows import with_flat_rows
from .prefetch import in_front, next_panel
from .register_tile import Tile, panel_of_rows, register_tile, row_bytes, sum_bytes, vectors_stay_in_cache
from .skip_padding import without_padding
from .spatial import inline_elementwise, schedule_leaf
from .whole_tiles import computing_whole_tiles
from .wide_rows import with_wide_rows


class Contraction(CPUScheduleRule):
    """Multiply and sum, with a tile of the result in registers."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        found = leaves_of(func)
        if found is None or not any(map(is_contraction, found)):
            return None
        sch, info = Schedule(func), cpu_info(target)
        inline_elementwise(sch)
        for name in [leaf.block.name_hint for leaf in leaves(sch) or () if is_contraction(leaf)]:
            copy_into_panels(sch, name, info)
            sch = with_flat_rows(widen_rows(sch, name, info), name, info)
        sch = round_up(sch, info)
        found = leaves(sch) or []
        followers = {id(leaf): main for main in found for leaf in found if follows(sch, main, leaf)}
        moved = begin_bands(sch, found)
        prefetches: list[tuple[Var, list[Evaluate]]] = []
        for leaf in found:
            plan = plan_of(leaf, info)
            if leaf.block.name_hint in moved:
                continue
            if plan is not None:
                epilogue = [other for other in found if followers.get(id(other)) is leaf]
                if (panels := tile_in_registers(sch, leaf, *plan, epilogue, info)) is not None:
                    prefetches.append(panels)
            elif not isinstance(leaf.block.body, BufferStore):
                moved |= tile_by_tile(sch, leaf)
            elif id(leaf) not in followers or plan_of(followers[id(leaf)], info) is None:
                schedule_leaf(sch, leaf, info.vector_bytes)
        func = sch.mod["main"]
        for loop_var, calls in prefetches:
            func = in_front(func, loop_var, calls)
        return Schedule(with_joined_bands(with_fewer_rows(without_padding(func))))


def tile_by_tile(sch: Schedule, leaf: Leaf) -> set[str]:
    """Parallelizes a block that computes vectors of whole tiles, and moves its elementwise consumer into its loops.

    Returns the names of the blocks that were moved.
    """
    result = leaf.block.writes[0]
    size = math.prod(as_int(r.extent) or 1 for r in result.region)
    last = leaf.loops[-1] if has_bands(leaf) else parallelize(sch, leaf.loops[:-1], leaf.work * size * 4)
    followers = sch.get_consumers(leaf.handle)
    if len(followers) != 1 or last is None:
        return set()
    follower = sch.get(followers[0])
    if not isinstance(follower.body, BufferStore) or any(
        iv.iter_type == IterVar.CommReduce for iv in follower.iter_vars
    ):
        return set()
    sch.set_scope(leaf.handle, 0, "local")
    sch.reverse_compute_at(followers[0], leaf.loops[-1])
    sch.vectorize(sch.get_loops(followers[0])[-1])
    return {follower.name_hint}


def plan_of(leaf: Leaf, info: CPUInfo) -> tuple[Axes, Tile] | None:
    """The roles of the loops of a contraction, and its tile; None for another block, and where no axis can be
    vectorized.
    """
    axes = contraction_axes(leaf, info) if is_contraction(leaf) else None
    tile = None if axes is None else register_tile(leaf, axes, info)
    return None if axes is None or tile is None else (axes, tile)


def copy_into_panels(sch: Schedule, name: str, info: CPUInfo) -> None:
    """Copies the operand of a contraction's vectors into panels, with zeros at their ends, where that pays.

    It does for matrices whose rows are no multiple of vectors, or of unknown length, for those that lie transposed, and
    for large ones, whose columns are far apart in memory. Enough rows of the result must share the copy.
    """
    leaf = next(leaf for leaf in leaves(sch) or () if leaf.block.name_hint == name)
    store = leaf.block.body
    if not isinstance(store, BufferStore) or not store.indices:
        return
    channel = store.indices[-1]
    vectors = [op for op in operands(leaf.block) or () if channel in variables_of(op)]
    extents = {iv.var: as_int(extent_of(iv)) for iv in leaf.block.iter_vars}
    if len(vectors) != 1 or not isinstance(channel, Var) or channel not in extents:
        return
    (vector,) = vectors
    used = variables_of(vector)
    # Each element is copied once; a convolution's windows would be copied again and again.
    places = [index for index in vector.indices if not isinstance(index, IntImm)]
    if not all(isinstance(index, Var) for index in places) or len(used) != len(places):
        return
    # A vector needs no panels, nor does a product without a sum.
    if len([v for v in used if extents[v] != 1]) < 2 or extents[channel] == 1:
        return
    spatial = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.DataPar]
    of_rows = {v: extents[v] for v in spatial if v not in used}
    rows = math.prod(extent or ROWS_IF_UNKNOWN for extent in of_rows.values())
    extent, itemsize = extents[channel], store.buffer.dtype.itemsize
    lanes = max(1, info.vector_bytes // itemsize)
    if vector.indices[-1] is channel and extent is not None and extent % lanes == 0:
        size = math.prod(extents[v] or ROWS_IF_UNKNOWN for v in used) * itemsize
        pays = size > 2 * info.l2_bytes and rows >= ROWS_OF_LARGE_PANELS
    else:
        in_parts = extent is not None and vector.indices[-1] is channel and 4 * (extent & -extent) <= lanes
        pays = rows >= (ROWS_OF_PARTS if in_parts else ROWS_OF_PANELS)
        pays = pays and (extent is None or 2 * extent >= lanes or (in_parts and extent > 2))
    if not pays:
        return
    depth = math.prod(extents[v] or 1 for v in extents if v not in spatial)
    row = axis_of_rows(of_rows)
    apart = None if row is None else row_bytes(row_operand(leaf), row)
    panel = panel_of_rows(rows, apart, extent or ROWS_IF_UNKNOWN, depth, info, itemsize)
    index = next(i for i, region in enumerate(leaf.block.reads) if region.buffer is vector.buffer)
    copy = sch.reindex(leaf.handle, ("read", index))
    position = [v for v in extents if v in used].index(channel)

    def panels(*axes: Var) -> list[PrimExpr]:
        *outer, last = (axis for i, axis in enumerate(axes) if i != position)
        return [*outer, axes[position] // panel, last, axes[position] % panel]

    sch.transform_layout(copy, ("write", 0), panels, pad_value=const(0, vector.buffer.dtype))
    if extent is not None and extent % panel == 0:
        sch.transform_block_layout(copy, panels)


ROWS_OF_PARTS, ROWS_OF_PANELS, ROWS_OF_LARGE_PANELS = 2, 8, 64
"""From how many rows of the result on a copy pays, of a matrix whose rows are quarters of vectors or less, of one
without whole vectors and of a large one.

A copy reads and writes each element once, and each row of the result reads it once more. That copies pay for 128 rows
was measured (docs/architecture.md); from how many on is an estimate.
"""


def widen_rows(sch: Schedule, name: str, info: CPUInfo) -> Schedule:
    """The schedule with a copy in float32 of a contraction's operand of rows, if that is shorter and the copy pays."""
    leaf = next(leaf for leaf in leaves(sch) or () if leaf.block.name_hint == name)
    plan = plan_of(leaf, info)
    if plan is None or plan[0].dots is not None or leaf.block.writes[0].buffer.dtype != "float32":
        return sch
    vectors, pair = vector_operand(leaf).buffer, operands(leaf.block)
    assert pair is not None
    rows = next((op.buffer for op in pair if op.buffer is not vectors), vectors)
    steps = math.prod(extent or ROWS_IF_UNKNOWN for extent in leaf.extents) // plan[1].vector
    elements = math.prod(as_int(extent) or ROWS_IF_UNKNOWN for extent in rows.shape)
    if rows is vectors or not rows.dtype.is_float or rows.dtype.bits >= 32 or steps < USES_OF_WIDE_ROWS * elements:
        return sch
    return with_wide_rows(sch, leaf, rows)


USES_OF_WIDE_ROWS = 4
"""How often each element of a row is broadcast, from which on a copy in float32 pays. An estimate: the copy reads and
writes an element once, and each use saves two instructions."""


def round_up(sch: Schedule, info: CPUInfo) -> Schedule:
    """The schedule of a function whose contractions compute whole tiles, padded at the end of rows and columns."""
    for leaf in leaves(sch) or ():
        plan = plan_of(leaf, info)
        if plan is None:
            continue
        axes, tile = plan
        whole = {}
        for position, factor in ((axes.rows, tile.rows), (axes.vector, tile.vector)):
            extent = None if position is None else leaf.extents[position]
            if position is not None and (extent is None or extent % factor):
                whole[leaf.block.iter_vars[position].var] = factor
        if whole:
            accumulator = leaf.block.writes[0].buffer
            if accumulator.data in [buffer.data for buffer in sch.mod["main"].buffer_map.values()]:
                sch.cache_write(leaf.handle, 0, "global")
            sch = Schedule(computing_whole_tiles(sch.mod["main"], [leaf.block.name_hint], whole))
    return sch


def follows(sch: Schedule, main: Leaf, leaf: Leaf) -> bool:
    """Whether a block is the epilogue of a contraction: the only consumer of its result, and elementwise."""
    store, result = leaf.block.body, main.block.writes[0].buffer
    if leaf is main or leaf.reduces or not is_contraction(main) or not isinstance(store, BufferStore):
        return False
    reads = [load for load in loads(store.value) if load.buffer is result]
    if not reads or not all(_same(load.indices, store.indices) for load in reads):
        return False
    # A block that pads its input writes elements that no tile of the contraction has, so it may not be larger.
    analyzer = Analyzer()
    if not all(analyzer.can_prove(x <= y) for x, y in zip(store.buffer.shape, result.shape, strict=True)):
        return False
    return len(sch.get_consumers(main.handle)) == 1


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def prefetches_of_panels(
    sch: Schedule, main: Leaf, axes: Axes, tile: Tile, depth: LoopRV, info: CPUInfo
) -> tuple[Var, list[Evaluate]] | None:
    """The variable of `depth`, the innermost loop over the sum of a contraction in tiles, and what its steps ask for.

    None where panels stay in the cache or do not fit, where one tile has all rows, and where a step computes so few
    products that LLVM would unroll the loop, which a prefetch in each step keeps it from.
    """
    if axes.panel is None or axes.rows is None or axes.columns is not None:
        return None
    rows, load = [*axes.others, axes.rows], vector_operand(main)
    if load.buffer not in sch.mod["main"].buffer_map.values() or not all(is_row(main, i) for i in rows):
        return None
    products = tile.rows * axes.panel * sum_bytes(main.block.writes[0].buffer) // info.vector_bytes
    if vectors_stay_in_cache(main, info) or products < LEAST_PRODUCTS:
        return None
    reduction, length = in_memory_order(main, axes), 1 if axes.dots is None else axes.dots.length
    of_sum = [extent for i in reduction if (extent := main.extents[i]) is not None]
    panel_bytes = math.prod(of_sum) * axes.panel * load.buffer.dtype.itemsize
    if len(of_sum) < len(reduction) or 2 * panel_bytes > info.l2_bytes:
        return None
    loop_vars = [sch.get(loop).loop_var for loop in sch.get_loops(main.handle)]
    loop_var = sch.get(depth).loop_var
    first = {var: const(0, var.dtype) for var in loop_vars[loop_vars.index(loop_var) + 1 :]}
    values = [substitute(value, first) for value in sch.state.realize_of(sch.get_sref(main.handle)).iter_values]
    start: dict[Var, PrimExpr] = {iv.var: const(0, iv.var.dtype) for iv in main.block.iter_vars}
    start[main.block.iter_vars[axes.vector].var] = values[axes.vector] + axes.panel
    count = main.extents[axes.rows]
    tiles = [(values[i], main.extents[i]) for i in axes.others]
    tiles.append((values[axes.rows] // tile.rows, None if count is None else -(-count // tile.rows)))
    if all(extent == 1 for _, extent in tiles):
        return None
    steps = list(zip((values[i] for i in reduction), of_sum, strict=True))
    steps[-1] = values[reduction[-1]] // length, of_sum[-1] // length
    return loop_var, next_panel(load, start, tiles, steps, axes.panel * length)


LEAST_PRODUCTS = 12
"""Of vectors in a step of a sum that asks for the next panel."""


def tile_in_registers(
    sch: Schedule, main: Leaf, axes: Axes, tile: Tile, epilogue: list[Leaf], info: CPUInfo
) -> tuple[Var, list[Evaluate]] | None:
    """Splits the loops into tiles, keeps a tile's sums in registers and lets the epilogue follow each tile. Returns
    what `prefetches_of_panels` does.
    """
    block, loops = main.handle, main.loops
    outer_loops: dict[str, LoopRV] = {}
    inner: list[LoopRV] = []
    rows_place: int | None = None
    """The place among the inner loops of that over rows, if their number is unknown."""
    for name in ("columns", "rows", "vector"):
        position, factor = getattr(axes, name), getattr(tile, name)
        if position is None:
            continue
        if name == "rows" and factor > 1 and main.extents[position] is None:
            rows_place = len(inner)
        if main.extents[position] == factor:
            inner.append(loops[position])
        elif factor == 1 and name != "vector":  # the last loop of a tile is the vector, even of one element
            outer_loops[name] = loops[position]
        else:
            outer_loops[name], within = sch.split(loops[position], [None, factor])
            inner.append(within)
    # Vectors that do not stay in the cache are read once, panel by panel, while the rows run past them.
    others = axes.others[1:] if has_bands(main) else axes.others
    shared = [loops[i] for i in others if not is_row(main, i)]
    rows = [loops[i] for i in others if is_row(main, i)]
    rows += [outer_loops[name] for name in ("rows",) if name in outer_loops]
    panels = [outer_loops[name] for name in ("columns", "vector") if name in outer_loops]
    outer = [*shared, *(rows + panels if vectors_stay_in_cache(main, info) else panels + rows)]
    reduction = [loops[i] for i in in_memory_order(main, axes)]
    sch.reorder(*outer, *reduction, *inner)
    if axes.dots is None:
        in_vectors(sch, inner, tile.vector)
    last = outer[-1] if has_bands(main) else parallelize(sch, outer, main.work)
    if epilogue:
        # The epilogue reads the sums from the registers.
        sch.set_scope(block, 0, "local")
        followers = [leaf.handle for leaf in epilogue]
    else:
        followers = [sch.cache_write(block, 0, "local")]
    # Sums that are read in wider vectors than products write would be put together and taken apart in each step.
    most = None if axes.dots is None else axes.dots.lanes
    rows_loops = [] if rows_place is None else [inner[rows_place]]
    for follower in followers:
        if last is not None:
            sch.reverse_compute_at(follower, last)
        within = sch.get_loops(follower)[-len(inner) :]
        rows_loops += [] if rows_place is None else [within[rows_place]]
        in_vectors(sch, within, tile.vector, most)
    lanes = None if axes.dots is None else in_words(sch, inner, reduction, axes.dots)
    ahead = prefetches_of_panels(sch, main, axes, tile, reduction[-1], info)
    init = sch.decompose_reduction(block, reduction[0])
    if axes.dots is not None and lanes is not None:
        for loop in sch.get_loops(init)[-len(inner) - 1 :]:
            sch.unroll(loop)
        sch.tensorize(lanes, axes.dots.intrin)
    if rows_place is not None and last is not None:
        zeroed = sch.get_loops(init)
        depth = [sch.get(loop) for loop in zeroed].index(sch.get(last)) + 1
        mark_tile(sch, last, [*rows_loops, zeroed[depth + rows_place]])
    return ahead


def in_words(sch: Schedule, inner: list[LoopRV], reduction: list[LoopRV], dots: Dots) -> LoopRV:
    """Splits the loops of a tile whose vector operand lies in words, so that the last two compute what an instruction
    does. The last one of `reduction` becomes that over words. Returns the loop over the lanes of a vector.
    """
    reduction[-1], within = sch.split(reduction[-1], [None, dots.length])
    *rows, vector = inner
    vectors, lanes = sch.split(vector, [None, dots.lanes])
    sch.reorder(*reduction, *rows, vectors, lanes, within)
    for loop in (*rows, vectors):
        sch.unroll(loop)
    return lanes


def in_vectors(sch: Schedule, tile: list[LoopRV], width: int, most: int | None = None) -> None:
    """Unrolls the loops of a tile and makes the last one vectors, of a power of two elements, at most `most`: other
    types are slow.
    """
    *rows, vector = tile
    lanes = min(width & -width, most or width)
    if lanes != width:
        vectors, vector = sch.split(vector, [None, lanes])
        rows.append(vectors)
    for loop in rows:
        sch.unroll(loop)
    sch.vectorize(vector)
