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
from dataclasses import dataclass

from ...arith import Analyzer
from ...ir.expr import Add, IntImm, Mul, PrimExpr, Var, as_int, const
from ...target.cpu import CPUInfo, cpu_info
from ...target.target import Target
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import Block, BufferStore, Evaluate
from ...tir.stmt_functor import loads, substitute
from ...tir.tensor_intrin.x86 import VECTOR_BYTES, BFLOAT16_PAIRS_DOT_16x2_INTRIN, byte_dot_name
from ..analysis.contraction import dot_length, is_contraction, operands, panel_width, summed_in_words
from ..analysis.leaves import Leaf, extent_of, leaves, variables
from .base import CPUScheduleRule, parallelize
from .fewer_rows import mark_tile, with_fewer_rows
from .prefetch import in_front, next_panel
from .spatial import inline_elementwise, schedule_leaf
from .whole_tiles import computing_whole_tiles
from .wide_rows import with_wide_rows


@dataclass(slots=True)
class Axes:
    """The role of each loop of a contraction, as its position in the nest."""

    vector: int
    rows: int | None
    columns: int | None
    """A further axis of the vector operand, such as the output rows of a convolution."""
    others: list[int]
    reduction: list[int]
    panel: int | None
    """The number of elements of a panel, if the vector operand is stored in panels."""
    dots: Dots | None = None
    """The dot products that compute it, if the processor has some."""


@dataclass(slots=True)
class Dots:
    """An instruction that adds a few products to each sum of a vector."""

    intrin: str
    axis: int
    """The axis of the sum along which the elements of a word lie together."""
    lanes: int
    """The sums of a vector."""
    length: int
    """The products for each sum."""


class Contraction(CPUScheduleRule):
    """Multiply and sum, with a tile of the result in registers."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        found = leaves(sch)
        if found is None or not any(map(is_contraction, found)):
            return None
        info = cpu_info(target)
        inline_elementwise(sch)
        for name in [leaf.block.name_hint for leaf in leaves(sch) or () if is_contraction(leaf)]:
            copy_into_panels(sch, name, info)
            sch = widen_rows(sch, name, info)
        sch = round_up(sch, info)
        found = leaves(sch) or []
        followers = {id(leaf): main for main in found for leaf in found if follows(sch, main, leaf)}
        moved: set[str] = set()
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
        return Schedule(with_fewer_rows(func))


def tile_by_tile(sch: Schedule, leaf: Leaf) -> set[str]:
    """Parallelizes a block that computes vectors of whole tiles, and moves its elementwise consumer into its loops.

    Returns the names of the blocks that were moved.
    """
    result = leaf.block.writes[0]
    size = math.prod(as_int(r.extent) or 1 for r in result.region)
    last = parallelize(sch, leaf.loops[:-1], leaf.work * size * 4)
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
    if not all(isinstance(index, Var) for index in vector.indices) or len(used) != len(vector.indices):
        return
    # Axes of extent 1 are left out of the copy. A vector needs no panels, nor does a product without a sum.
    used = {v for v in used if extents[v] != 1}
    if len(used) < 2 or channel not in used:
        return
    spatial = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.DataPar]
    rows = math.prod(extents[v] or ROWS_IF_UNKNOWN for v in spatial if v not in used)
    extent, itemsize = extents[channel], store.buffer.dtype.itemsize
    lanes = max(1, info.vector_bytes // itemsize)
    if vector.indices[-1] is channel and extent is not None and extent % lanes == 0:
        size = math.prod(extents[v] or ROWS_IF_UNKNOWN for v in used) * itemsize
        pays = size > 2 * info.l2_bytes and rows >= ROWS_OF_LARGE_PANELS
    else:
        pays = rows >= ROWS_OF_PANELS and (extent is None or 2 * extent >= lanes)
    if not pays:
        return
    depth = math.prod(extents[v] or 1 for v in extents if v not in spatial)
    panel = panel_of_rows(rows, extent or ROWS_IF_UNKNOWN, depth, info, itemsize)
    index = next(i for i, region in enumerate(leaf.block.reads) if region.buffer is vector.buffer)
    copy = sch.reindex(leaf.handle, ("read", index))
    position = [v for v in extents if v in used].index(channel)

    def panels(*axes: Var) -> list[PrimExpr]:
        *outer, last = (axis for i, axis in enumerate(axes) if i != position)
        return [*outer, axes[position] // panel, last, axes[position] % panel]

    sch.transform_layout(copy, ("write", 0), panels, pad_value=const(0, vector.buffer.dtype))
    if extent is not None and extent % panel == 0:
        sch.transform_block_layout(copy, panels)


ROWS_OF_PANELS, ROWS_OF_LARGE_PANELS = 8, 64
"""From how many rows of the result on a copy pays, of a matrix without whole vectors and of a large one.

A copy reads and writes each element once, and each row of the result reads it once more. That copies pay for 128 rows
was measured (docs/architecture.md); from how many on is an estimate.
"""


def widen_rows(sch: Schedule, name: str, info: CPUInfo) -> Schedule:
    """The schedule with a copy in float32 of a contraction's operand of rows, if that is shorter and the copy pays."""
    leaf = next(leaf for leaf in leaves(sch) or () if leaf.block.name_hint == name)
    plan = plan_of(leaf, info)
    if plan is None or plan[0].dots is not None or leaf.block.writes[0].buffer.dtype != "float32":
        return sch
    vectors, pair = _vector_operand(leaf).buffer, operands(leaf.block)
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
            if accumulator in sch.mod["main"].buffer_map.values():
                sch.cache_write(leaf.handle, 0, "global")
            sch = Schedule(computing_whole_tiles(sch.mod["main"], [leaf.block.name_hint], whole))
    return sch


def contraction_axes(leaf: Leaf, info: CPUInfo) -> Axes | None:
    """The role of each loop; None where no axis can be vectorized."""
    found = operands(leaf.block)
    store = leaf.block.body
    if found is None or not isinstance(store, BufferStore) or not store.indices:
        return None
    last = store.indices[-1]
    positions = {iv.var: i for i, iv in enumerate(leaf.block.iter_vars)}
    if not isinstance(last, Var) or last not in positions:
        return None
    vectors = [op for op in found if is_strided_in(op, last) or panel_width(op, last)]
    scalars = [op for op in found if last not in variables_of(op)]
    if len(vectors) != 1 or len(scalars) != 1:
        return None
    vector_uses, scalar_uses = variables_of(vectors[0]), variables_of(scalars[0])
    spatial = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.DataPar]
    reduction = [i for i, iv in enumerate(leaf.block.iter_vars) if iv.iter_type == IterVar.CommReduce]
    rows = _rows(leaf, [v for v in spatial if v in scalar_uses and v not in vector_uses], positions)
    along = [v for v in spatial if v is not last and v in vector_uses and v not in scalar_uses]
    columns = _largest(leaf, along, positions)
    taken = {positions[last], rows, columns}
    others = [positions[v] for v in spatial if positions[v] not in taken]
    dots = dots_of(vectors[0], scalars[0], positions, info)
    return Axes(positions[last], rows, columns, others, reduction, panel_width(vectors[0], last), dots)


def dots_of(vector: BufferLoad, scalar: BufferLoad, positions: dict[Var, int], info: CPUInfo) -> Dots | None:
    """The dot products of operands in words along a sum; None for others, and on a processor without them."""
    depth, length = summed_in_words(vector), dot_length(vector.buffer.dtype)
    if depth is None or length is None or _addend(scalar, depth) is not depth:
        return None
    if vector.buffer.dtype == "bfloat16":
        name, vector_bytes = BFLOAT16_PAIRS_DOT_16x2_INTRIN if info.has_bfloat16_dots else None, 64
    else:
        name = None if info.byte_dots is None else byte_dot_name(info.byte_dots)
        vector_bytes = VECTOR_BYTES.get(info.byte_dots or "", 0)
    return None if name is None else Dots(name, positions[depth], vector_bytes // 4, length)


def variables_of(load: BufferLoad) -> set[Var]:
    """The variables that a load's indices depend on."""
    return {v for index in load.indices for v in variables(index)}


def is_strided_in(load: BufferLoad, var: Var) -> bool:
    """Whether a step of the variable is a step to the next element, or a known number of elements further."""
    last = _addend(load, var)
    return last is var or (isinstance(last, Mul) and last.a is var and isinstance(last.b, IntImm))


def _addend(load: BufferLoad, var: Var) -> PrimExpr | None:
    """What the variable adds to the last index; None if another index depends on it, too."""
    if not load.indices or any(var in variables(index) for index in load.indices[:-1]):
        return None
    last = load.indices[-1]
    while isinstance(last, Add):
        last = last.a if var in variables(last.a) else last.b
    return last


def _rows(leaf: Leaf, candidates: list[Var], positions: dict[Var, int]) -> int | None:
    """The axis of which several rows share the vectors: the innermost one, unless another is much larger."""
    extents = {positions[v]: leaf.extents[positions[v]] or ROWS_IF_UNKNOWN for v in candidates}
    most = max(extents.values(), default=1)
    enough = [i for i, extent in extents.items() if extent >= min(most, 4) and extent > 1]
    return max(enough, default=None)


def _largest(leaf: Leaf, candidates: list[Var], positions: dict[Var, int]) -> int | None:
    """The axis of the largest known extent above 1."""
    known = [(leaf.extents[positions[v]] or 0, -positions[v]) for v in candidates]
    best = max(known, default=(0, 0))
    return -best[1] if best[0] > 1 else None


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


@dataclass(slots=True)
class Tile:
    """Elements of each axis that one step of the kernel computes."""

    vector: int
    rows: int
    columns: int


LEAST_PRODUCTS = 12
"""Of vectors in a step of a sum that asks for the next panel."""
ROWS_IF_UNKNOWN = 1 << 10
"""The extent that a symbolic one is taken to be. A guess: large enough that whole tiles are what counts."""


def register_tile(leaf: Leaf, axes: Axes, info: CPUInfo) -> Tile | None:
    """The tile with the least estimated time for the whole contraction (`step_time`); None where there is no tile."""
    itemsize = leaf.block.writes[0].buffer.dtype.itemsize
    lanes = max(1, info.vector_bytes // itemsize)
    extent = leaf.extents[axes.vector]
    if axes.panel and extent is None:
        extent = ROWS_IF_UNKNOWN
    if extent is None or extent < 2:
        return None
    widths = [axes.panel] if axes.panel else vector_widths(extent, lanes)
    depth = math.prod(leaf.extents[i] or 1 for i in axes.reduction) // (1 if axes.dots is None else axes.dots.length)
    rows = 1 if axes.rows is None else leaf.extents[axes.rows] or ROWS_IF_UNKNOWN
    columns = 1 if axes.columns is None else leaf.extents[axes.columns] or 1
    # Without columns, rows need not be divided evenly.
    row_tiles = range(1, min(rows, MOST_ROWS) + 1) if columns == 1 else _divisors(rows, MOST_ROWS)
    tiles = [
        Tile(width, row_tile, column_tile)
        for width in widths
        for row_tile in row_tiles
        for column_tile in _divisors(columns, 8)
    ]

    def time(tile: Tile) -> tuple[float, int]:
        vectors = -(-tile.vector // lanes) * tile.columns
        count = -(-extent // tile.vector) * -(-rows // tile.rows) * -(-columns // tile.columns)
        return count * step_time(tile.rows, vectors, depth * tile.vector * itemsize, info), -tile.rows * vectors

    fitting = [t for t in tiles if in_registers(t.rows, -(-t.vector // lanes) * t.columns, info)]
    return min(fitting, key=time, default=None)


MOST_ROWS, MOST_VECTORS = 16, 8
"""Limits of a tile. Eight sums keep the processor busy (`FMAS_PER_CYCLE` times `FMA_LATENCY`); much larger tiles only
make the code of the unrolled loops longer."""


def in_registers(rows: int, vectors: int, info: CPUInfo) -> bool:
    """Whether the sums of a tile fit into the registers, beside the vectors of one step and one broadcast element."""
    return rows * vectors + vectors + 1 <= info.vector_registers


# A machine for which `step_time` estimates. What counts are the ratios: they choose a tile, and no time is promised.

FMAS_PER_CYCLE, LOADS_PER_CYCLE, FMA_LATENCY = 2, 2, 4
"""Vector instructions that start in a cycle, and cycles until a sum can be added to.

From A. Fog, Instruction tables: Intel's server processors since Skylake, AMD's since Zen 3. Zen 4 does half of it with
vectors of 64 bytes, loads from the second-level cache included, so its ratios are the same. Arm was not measured.
"""

L2_CYCLES, WAITING_CYCLES, L3_CYCLES = 1.0, 2.0, 4.0
"""Cycles for a vector from the second-level cache, from there if it was not fetched ahead, and for 64 bytes from
further away.

Measured on Zen 5 with matrix-vector products of 256 KiB to 64 MiB, whose time is that of reading the matrix. One core
of Zen 4 reads a vector of 64 bytes in 2.0 cycles from its second-level cache, in 2.4 from the third, in 8 from memory;
so 4.0 stands for a third level that other cores use as well, and for memory.
"""

ROW_COST, VECTOR_COST = 0.05, 0.1
"""Cycles that each row and each cycle of waiting adds: they choose the smaller of two tiles of the same estimated time.

Set by hand and not measured. That smaller tiles are faster then, by a few percent, was measured for the products of
BERT-base and ResNet-50 on Zen 5.
"""


def step_time(rows: int, vectors: int, panel: int, info: CPUInfo) -> float:
    """Estimated cycles for one step along the reduction of a tile of `rows` by `vectors` sums.

    A step is as slow as the slowest of its products, its load instructions, reading its vectors, and the wait for the
    sums of the step before. `panel` is the size in bytes of the panel of vectors, which all row tiles read; beyond half
    of the second-level cache it is taken not to stay there, beside the other operand and the result. A tile whose
    products take less time than reading its vectors asks for these before the processor has fetched them ahead.
    """
    products, loads = rows * vectors / FMAS_PER_CYCLE, (rows + vectors) / LOADS_PER_CYCLE
    too_early = max(products, FMA_LATENCY) < vectors * L2_CYCLES
    cycles = WAITING_CYCLES if too_early else L2_CYCLES
    if 2 * panel > info.l2_bytes:
        cycles = max(cycles, L3_CYCLES * info.vector_bytes / 64)
    reading = cycles * vectors
    return max(products, loads, reading, FMA_LATENCY) + ROW_COST * rows + VECTOR_COST * reading


def vector_widths(extent: int, lanes: int) -> list[int]:
    """How many elements of an axis may be one step: whole registers, or else as large a part of one as divides it."""
    if extent % lanes == 0:
        return [vectors * lanes for vectors in range(1, 9) if extent // lanes % vectors == 0]
    part = min(extent & -extent, lanes)
    return [part] if part > 1 else []


def _divisors(extent: int, most: int) -> list[int]:
    return [d for d in range(1, min(extent, most) + 1) if extent % d == 0]


def _vector_operand(leaf: Leaf) -> BufferLoad:
    """The operand that is read in vectors: the one that the last index of the result occurs in."""
    found = operands(leaf.block)
    store = leaf.block.body
    assert found is not None and isinstance(store, BufferStore)
    return next(op for op in found if store.indices[-1] in variables_of(op))


def vectors_stay_in_cache(leaf: Leaf, info: CPUInfo) -> bool:
    """Whether the operand of the vectors stays in the second-level cache while all rows run past it."""
    vector = _vector_operand(leaf)
    size = vector.buffer.dtype.itemsize
    for extent in vector.buffer.shape:
        size *= as_int(extent) or ROWS_IF_UNKNOWN
    return 2 * size <= info.l2_bytes


def prefetches_of_panels(
    sch: Schedule, main: Leaf, axes: Axes, tile: Tile, depth: LoopRV, info: CPUInfo
) -> tuple[Var, list[Evaluate]] | None:
    """The variable of `depth`, the innermost loop over the sum of a contraction in tiles, and what its steps ask for.

    None where panels stay in the cache or do not fit, where one tile has all rows, and where a step computes so few
    products that LLVM would unroll the loop, which a prefetch in each step keeps it from.
    """
    if axes.panel is None or axes.rows is None or axes.columns is not None:
        return None
    rows, load = [*axes.others, axes.rows], _vector_operand(main)
    if load.buffer not in sch.mod["main"].buffer_map.values() or not all(is_row(main, i) for i in rows):
        return None
    products = tile.rows * axes.panel * _sum_bytes(main.block.writes[0].buffer) // info.vector_bytes
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


def in_memory_order(leaf: Leaf, axes: Axes) -> list[int]:
    """The axes of a reduction in the order in which the operand that is read in vectors lies in memory."""
    vector = _vector_operand(leaf)
    place = {var: i for i, index in enumerate(vector.indices) for var in variables(index)}
    return sorted(axes.reduction, key=lambda i: place.get(leaf.block.iter_vars[i].var, -1))


def is_row(leaf: Leaf, position: int) -> bool:
    """Whether the operand that is read in vectors does not depend on an axis."""
    return leaf.block.iter_vars[position].var not in variables_of(_vector_operand(leaf))


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
    shared = [loops[i] for i in axes.others if not is_row(main, i)]
    rows = [loops[i] for i in axes.others if is_row(main, i)]
    rows += [outer_loops[name] for name in ("rows",) if name in outer_loops]
    panels = [outer_loops[name] for name in ("columns", "vector") if name in outer_loops]
    outer = [*shared, *(rows + panels if vectors_stay_in_cache(main, info) else panels + rows)]
    reduction = [loops[i] for i in in_memory_order(main, axes)]
    sch.reorder(*outer, *reduction, *inner)
    if axes.dots is None:
        in_vectors(sch, inner, tile.vector)
    last = parallelize(sch, outer, main.work)
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


def panel_for(block: Block, channel: Var, info: CPUInfo, steps: int = 1) -> int | None:
    """How many elements a panel of weights has along an axis; None for an axis of unknown extent.

    `steps` is how many products of a sum one instruction computes.
    """
    extents = {iv.var: as_int(extent_of(iv)) for iv in block.iter_vars}
    found = operands(block)
    extent = extents[channel]
    if found is None or extent is None:
        return None
    rows = max((extents[v] or ROWS_IF_UNKNOWN for v in extents if _gives_rows(block, found, v, channel)), default=1)
    depth = math.prod(extents[iv.var] or 1 for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce)
    return panel_of_rows(rows, extent, -(-depth // steps), info, _sum_bytes(block.writes[0].buffer))


def _sum_bytes(result: Buffer) -> int:
    """The size of a sum in registers: those of short floats are float32 (`WideSums`)."""
    return max(result.dtype.itemsize, 4) if result.dtype.is_float else result.dtype.itemsize


def panel_of_rows(rows: int, extent: int, depth: int, info: CPUInfo, itemsize: int) -> int:
    """The width of panels with which so many rows of a product are computed fastest."""
    lanes = max(1, info.vector_bytes // itemsize)

    def time(vectors: int) -> tuple[float, int]:
        best = min(
            (
                -(-rows // count) * step_time(count, vectors, depth * vectors * lanes * itemsize, info)
                for count in range(1, min(rows, MOST_ROWS) + 1)
                if in_registers(count, vectors, info)
            ),
            default=math.inf,
        )
        return -(-extent // (vectors * lanes)) * best, -vectors

    return lanes * min(range(1, MOST_VECTORS + 1), key=time)


def _gives_rows(block: Block, found: tuple[BufferLoad, BufferLoad], var: Var, channel: Var) -> bool:
    """Whether an axis indexes the result and the operand without the channel, but not the other operand."""
    data, weight = found if channel in variables_of(found[1]) else found[::-1]
    spatial = any(iv.var is var and iv.iter_type == IterVar.DataPar for iv in block.iter_vars)
    return spatial and var in variables_of(data) and var not in variables_of(weight)
