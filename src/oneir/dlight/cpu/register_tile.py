"""The tile of a contraction that stays in registers: that of the least estimated time.

A step of the sum multiplies the vectors of one operand with the elements of a few rows of the other. More rows use each
vector more often, and more vectors each element; the sums of both have to fit into the registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...arith import Analyzer
from ...ir.expr import Range, Var, as_int, const
from ...target.cpu import CPUInfo
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.stmt import Block
from ...tir.stmt_functor import substitute
from ..analysis.contraction import operands
from ..analysis.leaves import Leaf, extent_of
from .contraction_axes import (
    MOST_VECTORS,
    ROWS_IF_UNKNOWN,
    Axes,
    axis_of_rows,
    row_operand,
    variables_of,
    vector_operand,
)
from .fewer_rows import rows_of_last_tile


@dataclass(slots=True)
class Tile:
    """Elements of each axis that one step of the kernel computes."""

    vector: int
    rows: int
    columns: int
    cycles: float = 0.0
    """What is estimated for a step along the sum, for all vectors and columns: of all rows, or of one where their
    number is unknown.
    """


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
    rows = 1 if axes.rows is None else leaf.extents[axes.rows]
    columns = 1 if axes.columns is None else leaf.extents[axes.columns] or 1
    of_rows = None if axes.rows is None else row_bytes(row_operand(leaf), leaf.block.iter_vars[axes.rows].var)
    # Without columns, rows need not be divided evenly.
    most = min(rows or MOST_ROWS, MOST_ROWS)
    row_tiles = range(1, most + 1) if columns == 1 or rows is None else _divisors(rows, MOST_ROWS)
    tiles = [
        Tile(width, row_tile, column_tile)
        for width in widths
        for row_tile in row_tiles
        for column_tile in _divisors(columns, 8)
    ]

    def vectors_of(tile: Tile) -> Vectors:
        vectors = vectors_for(tile.vector, lanes, info)
        return replace(vectors, count=vectors.count * tile.columns)

    def time(tile: Tile) -> float:
        vectors = vectors_of(tile)
        count = -(-extent // tile.vector) * -(-columns // tile.columns)
        return count * time_of_rows(rows, tile.rows, vectors, depth * tile.vector * itemsize, of_rows, info)

    fitting = [t for t in tiles if in_registers(t.rows, vectors_of(t).count, info)]
    best = min(fitting, key=lambda t: (time(t), -t.rows * vectors_of(t).count), default=None)
    return None if best is None else replace(best, cycles=time(best))


@dataclass(frozen=True, slots=True)
class Vectors:
    """The registers of a row of a tile."""

    count: int
    part: float = 1.0
    """How much of a whole register each of them is."""


def vectors_for(width: int, lanes: int, info: CPUInfo) -> Vectors:
    """The registers of a row of so many elements: of `lanes` elements each or, where these are not filled, of half."""
    if width % lanes and has_halves(info) and width % (lanes // 2) == 0:
        return Vectors(width // (lanes // 2), 0.5)
    return Vectors(-(-width // lanes))


def has_halves(info: CPUInfo) -> bool:
    """Whether half a vector is multiplied in half the time.

    On Zen 4 a layer of 144 to 24 channels of 56×56 pixels takes 0.76 of the time in panels of 24 that it takes in those
    of 32, one of 72 to 40 channels of 28×28 pixels 0.83, and one of 64 to 8 channels 0.6.
    """
    return info.multiply_adds == 1


MOST_ROWS = 16
"""A limit of a tile, beside `MOST_VECTORS`. Eight sums keep the processor busy (`FMAS_PER_CYCLE` times `FMA_LATENCY`);
much larger tiles only make the code of the unrolled loops longer."""


LIKELY_ROWS = (8, 16, 32, 64, 128, 512)
"""What an unknown number of rows is taken to be, each as likely: what batches and sentences often are. Few of them make
tiles that divide them better than tiles that are a little faster for many."""


def time_of_rows(
    rows: int | None, of_tile: int, vectors: Vectors, panel: int, of_rows: int | None, info: CPUInfo
) -> float:
    """Estimated cycles that tiles of so many rows by `vectors` take for a step along the sum for all rows; for an
    unknown number of them, for a row of the likely numbers.
    """
    if rows is not None:
        return -(-rows // of_tile) * step_time(of_tile, vectors, panel, of_rows, info)
    of_whole = step_time(of_tile, vectors, panel, of_rows, info)
    cycles = 0.0
    for count in LIKELY_ROWS:
        whole, rest = divmod(count, of_tile)
        last = step_time(rows_of_last_tile(rest, of_tile), vectors, panel, of_rows, info) if rest else 0
        cycles += (whole * of_whole + last) / count
    return cycles / len(LIKELY_ROWS)


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


WAY_BYTES = 4096
"""Of the first-level data cache: its lines that lie so far apart are in the same set. A page on x86, where sets are
found while the address is translated. Those of Arm are larger, and their number of lines in a set is smaller.
"""


def rows_in_cache(of_rows: int | None, info: CPUInfo) -> int:
    """Of how many rows, which begin so many bytes apart, a line of each can be in the first-level cache at a time."""
    if of_rows is None:
        return MOST_ROWS
    return info.l1_bytes // WAY_BYTES * (WAY_BYTES // math.gcd(of_rows, WAY_BYTES))


def step_time(rows: int, vectors: Vectors, panel: int, of_rows: int | None, info: CPUInfo) -> float:
    """Estimated cycles for one step along the reduction of a tile of `rows`, whose sums are in `vectors` each.

    A step is as slow as the slowest of its products, its load instructions, reading its vectors, and the wait for the
    sums of the step before. `panel` is the size in bytes of the panel of vectors, which all row tiles read; beyond half
    of the second-level cache it is taken not to stay there, beside the other operand and the result. A tile whose
    products take less time than reading its vectors asks for these before the processor has fetched them ahead. And
    rows `of_rows` bytes apart that the first-level cache has too few lines for are read from the second in each step:
    196 rows of 1,024 floats in tiles of 14 by 2 vectors run at 89 GFLOP/s on Zen 4, in tiles of 7 at 114.
    """
    count, part = vectors.count, vectors.part
    products, loads = rows * count * part / FMAS_PER_CYCLE, (rows + count) * part / LOADS_PER_CYCLE
    wait = FMA_LATENCY * part
    too_early = max(products, wait) < count * part * L2_CYCLES
    cycles = WAITING_CYCLES if too_early else L2_CYCLES
    if 2 * panel > info.l2_bytes:
        cycles = max(cycles, L3_CYCLES * info.vector_bytes / 64)
    reading = cycles * count * part + (L2_CYCLES * rows if rows > rows_in_cache(of_rows, info) else 0)
    return max(products, loads, reading, wait) + ROW_COST * rows + VECTOR_COST * reading


def vector_widths(extent: int, lanes: int) -> list[int]:
    """How many elements of an axis may be one step: whole registers, or else as large a part of one as divides it."""
    if extent % lanes == 0:
        return [vectors * lanes for vectors in range(1, 9) if extent // lanes % vectors == 0]
    part = min(extent & -extent, lanes)
    return [part] if part > 1 else []


def _divisors(extent: int, most: int) -> list[int]:
    return [d for d in range(1, min(extent, most) + 1) if extent % d == 0]


def vectors_stay_in_cache(leaf: Leaf, info: CPUInfo) -> bool:
    """Whether the operand of the vectors stays in the second-level cache while all rows run past it."""
    vector = vector_operand(leaf)
    size = vector.buffer.dtype.itemsize
    for extent in vector.buffer.shape:
        size *= as_int(extent) or ROWS_IF_UNKNOWN
    return 2 * size <= info.l2_bytes


def row_bytes(load: BufferLoad, var: Var, order: Sequence[int] | None = None) -> int | None:
    """How many bytes of memory the first step of a variable is, with dimensions in that order; None if that is not
    known. Later steps may be none, at the end of rows.
    """
    size = load.buffer.dtype.itemsize
    for axis in reversed(range(len(load.indices)) if order is None else order):
        if var in variables(load.indices[axis]):
            first, second = (substitute(load.indices[axis], {var: const(i, var.dtype)}) for i in (0, 1))
            analyzer = Analyzer()
            for other in variables(second):
                # Where rows of several dimensions are one axis, quotients and remainders by unknown extents say which.
                analyzer.bind(other, Range(const(2, other.dtype), const(ROWS_IF_UNKNOWN, other.dtype)))
            step = as_int(analyzer.simplify(second - first))
            return None if step is None else step * size
        extent = as_int(load.buffer.shape[axis])
        if extent is None:
            return None
        size *= extent
    return None


def panel_for(block: Block, channel: Var, order: Sequence[int], info: CPUInfo, steps: int = 1) -> int | None:
    """How many elements a panel of weights has along an axis; None for an axis of unknown extent.

    `order` is that of the dimensions of the other operand in memory, and `steps` how many products of a sum one
    instruction computes.
    """
    extents = {iv.var: as_int(extent_of(iv)) for iv in block.iter_vars}
    found = operands(block)
    extent = extents[channel]
    if found is None or extent is None:
        return None
    shared = {v: extents[v] for v in extents if _gives_rows(block, found, v, channel)}
    axis = axis_of_rows(shared)
    rows = 1 if axis is None else shared[axis]
    depth = math.prod(extents[iv.var] or 1 for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce)
    data = next(load for load in found if channel not in variables_of(load))
    of_rows = None if axis is None else row_bytes(data, axis, order)
    depth = -(-depth // steps)
    return panel_of_rows(rows, of_rows, extent, depth, info, sum_bytes(block.writes[0].buffer), steps)


def panel_of_rows(
    rows: int | None, of_rows: int | None, extent: int, depth: int, info: CPUInfo, itemsize: int, steps: int = 1
) -> int:
    """The width of panels with which so many rows of a product, None for any number, are computed fastest.

    `of_rows` are the bytes from a row to the next, if they are known; for `steps` see `panel_for`.
    """
    lanes = max(1, info.vector_bytes // itemsize)
    widths = [count * lanes for count in range(1, MOST_VECTORS + 1)]
    if steps == 1 and has_halves(info) and (rows is None or rows >= ROWS_OF_HALVES):
        widths += [width - lanes // 2 for width in widths]

    def time(width: int) -> tuple[float, int]:
        vectors = vectors_for(width, lanes, info)
        best = min(
            (
                time_of_rows(rows, count, vectors, depth * width * itemsize, of_rows, info)
                for count in range(1, min(rows or MOST_ROWS, MOST_ROWS) + 1)
                if in_registers(count, vectors.count, info)
            ),
            default=math.inf,
        )
        return -(-extent // width) * best, -width

    return min(widths, key=time)


ROWS_OF_HALVES = 8
"""From how many rows on panels may be of half vectors. An estimate: fewer take about as long as reading them does.
"""


def sum_bytes(result: Buffer) -> int:
    """The size of a sum in registers: those of short floats are float32 (`WideAccumulators`)."""
    return max(result.dtype.itemsize, 4) if result.dtype.is_float else result.dtype.itemsize


def _gives_rows(block: Block, found: tuple[BufferLoad, BufferLoad], var: Var, channel: Var) -> bool:
    """Whether an axis indexes the result and the operand without the channel, but not the other operand."""
    data, weight = found if channel in variables_of(found[1]) else found[::-1]
    spatial = any(iv.var is var and iv.iter_type == IterVar.DataPar for iv in block.iter_vars)
    return spatial and var in variables_of(data) and var not in variables_of(weight)
