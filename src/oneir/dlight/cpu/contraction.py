"""Contraction: multiply and sum. Matrix products, batched ones, convolutions in any layout.

    C[i, j] += A[i, k] * B[k, j]

One axis of the result is contiguous in memory, regular in one operand, and absent from the other: its elements are a
vector. An axis that is absent from the vector operand gives rows. A tile of rows and vectors stays in registers while
all of the reduction runs: each step loads the vectors of one operand, and multiplies each with the rows' elements of
the other. What is computed from the result elementwise follows tile by tile, out of the registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.expr import Add, Cast, IntImm, Mul, PrimExpr, Var
from ...ir.structural import structural_equal
from ...target.cpu import CPUInfo, cpu_info
from ...target.target import Target
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import Block, BufferStore
from .base import CPUScheduleRule, Leaf, largest_divisor, leaves, loads, parallelize, static, variables
from .spatial import inline_elementwise, schedule_leaf


@dataclass(slots=True)
class Axes:
    """The loops of a contraction by their part in it, as positions in the nest."""

    vector: int
    rows: int | None
    columns: int | None
    """A further axis of the vector operand that is no vector: output rows of a convolution."""
    others: list[int]
    reduction: list[int]


class Contraction(CPUScheduleRule):
    """Multiply and sum, with a tile of the result in registers."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        found = leaves(sch)
        if found is None or not any(map(is_contraction, found)):
            return None
        info = cpu_info(target)
        inline_elementwise(sch)
        sch = round_up(sch, info)
        found = leaves(sch) or []
        followers = {id(leaf): main for main in found for leaf in found if follows(sch, main, leaf)}
        for leaf in found:
            plan = plan_of(leaf, info)
            if plan is not None:
                epilogue = [other for other in found if followers.get(id(other)) is leaf]
                tile_in_registers(sch, leaf, *plan, epilogue)
            elif id(leaf) not in followers or plan_of(followers[id(leaf)], info) is None:
                schedule_leaf(sch, leaf)
        return sch


def plan_of(leaf: Leaf, info: CPUInfo) -> tuple[Axes, Tile] | None:
    """The parts of a contraction's loops and its tile; None for what is none, or has no axis for vectors."""
    axes = contraction_axes(leaf) if is_contraction(leaf) else None
    tile = None if axes is None else register_tile(leaf, axes, info)
    return None if axes is None or tile is None else (axes, tile)


def round_up(sch: Schedule, info: CPUInfo) -> Schedule:
    """A schedule in which the contractions compute whole tiles: rows and columns beyond the end, which nobody reads."""
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
            sch = Schedule(computing_whole_tiles(sch.mod["main"], leaf.block.name_hint, whole))
    return sch


def operands(block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """The two loads that a block multiplies and adds to its result; None for another block."""
    body = block.body
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return None
    total, product = body.value.a, body.value.b
    if not (isinstance(total, BufferLoad) and total.buffer is body.buffer and isinstance(product, Mul)):
        return None
    a, b = without_cast(product.a), without_cast(product.b)
    return (a, b) if isinstance(a, BufferLoad) and isinstance(b, BufferLoad) else None


def without_cast(expr: PrimExpr) -> PrimExpr:
    """What is cast."""
    return expr.value if isinstance(expr, Cast) else expr


def is_contraction(leaf: Leaf) -> bool:
    """Whether a block multiplies and sums."""
    return leaf.reduces and leaf.block.init is not None and operands(leaf.block) is not None


def contraction_axes(leaf: Leaf) -> Axes | None:
    """The parts that the loops play; None where no axis can be a vector."""
    found = operands(leaf.block)
    store = leaf.block.body
    if found is None or not isinstance(store, BufferStore) or not store.indices:
        return None
    last = store.indices[-1]
    positions = {iv.var: i for i, iv in enumerate(leaf.block.iter_vars)}
    if not isinstance(last, Var) or last not in positions:
        return None
    vectors = [op for op in found if is_strided_in(op, last)]
    scalars = [op for op in found if last not in variables_of(op)]
    if len(vectors) != 1 or len(scalars) != 1:
        return None
    vector_uses, scalar_uses = variables_of(vectors[0]), variables_of(scalars[0])
    spatial = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.DataPar]
    reduction = [i for i, iv in enumerate(leaf.block.iter_vars) if iv.iter_type == IterVar.CommReduce]
    rows = _largest(leaf, [v for v in spatial if v in scalar_uses and v not in vector_uses], positions)
    along = [v for v in spatial if v is not last and v in vector_uses and v not in scalar_uses]
    columns = _largest(leaf, along, positions)
    taken = {positions[last], rows, columns}
    others = [positions[v] for v in spatial if positions[v] not in taken]
    return Axes(positions[last], rows, columns, others, reduction)


def variables_of(load: BufferLoad) -> set[Var]:
    """The variables that a load's indices depend on."""
    return {v for index in load.indices for v in variables(index)}


def is_strided_in(load: BufferLoad, var: Var) -> bool:
    """Whether a step of the variable is a step to the next element, or a known number of elements further."""
    if not load.indices or any(var in variables(index) for index in load.indices[:-1]):
        return False
    last = load.indices[-1]
    while isinstance(last, Add):
        last = last.a if var in variables(last.a) else last.b
    return last is var or (isinstance(last, Mul) and last.a is var and isinstance(last.b, IntImm))


def _largest(leaf: Leaf, candidates: list[Var], positions: dict[Var, int]) -> int | None:
    """The axis of the largest known extent above 1."""
    known = [(leaf.extents[positions[v]] or 0, -positions[v]) for v in candidates]
    best = max(known, default=(0, 0))
    return -best[1] if best[0] > 1 else None


def follows(sch: Schedule, main: Leaf, leaf: Leaf) -> bool:
    """Whether a block alone uses a contraction's result, and computes its elements from those at the same place."""
    store, result = leaf.block.body, main.block.writes[0].buffer
    if leaf is main or leaf.reduces or not is_contraction(main) or not isinstance(store, BufferStore):
        return False
    reads = [load for load in loads(store.value) if load.buffer is result]
    if not reads or not all(_same(load.indices, store.indices) for load in reads):
        return False
    # One that pads has elements more, which no tile of the contraction has.
    if not structural_equal(store.buffer.shape, result.shape):
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


def register_tile(leaf: Leaf, axes: Axes, info: CPUInfo) -> Tile | None:
    """The tile whose sums fit into the registers, beside the vectors of one row and one broadcast element."""
    lanes = max(1, info.vector_bytes // leaf.block.writes[0].buffer.dtype.itemsize)
    extent = leaf.extents[axes.vector]
    if extent is None or extent < 2:
        return None
    width = vector_width(extent, lanes)
    if width is None:
        return None
    vectors = -(-width // lanes)
    row_extent = leaf.extents[axes.rows] if axes.rows is not None else 1
    column_extent = leaf.extents[axes.columns] if axes.columns is not None else 1
    best = Tile(width, 1, 1)
    score = 0.0
    for rows in _divisors(row_extent or 1, 16):
        for columns in _divisors(column_extent or 1, 8):
            registers = rows * columns * vectors + columns * vectors + 1
            if registers > info.vector_registers:
                continue
            # Products for each load; more sums than the multiplier's latency needs do not help.
            products = rows * columns * vectors
            quality = min(products, 16) + products / (rows * columns + columns * vectors)
            if quality > score:
                best, score = Tile(width, rows, columns), quality
    return best


def vector_width(extent: int, lanes: int) -> int | None:
    """How many elements of an axis are one step; None where none fills enough of a register.

    That is some whole registers, or a part of one that divides the extent: code for a register and a part is slow.
    """
    if extent % lanes == 0:
        return largest_divisor(extent // lanes, 4) * lanes
    part = largest_divisor(extent, lanes)
    return part if part == extent or 2 * part >= lanes else None


def _divisors(extent: int, most: int) -> list[int]:
    return [d for d in range(1, min(extent, most) + 1) if extent % d == 0]


def rows_are_larger(main: Leaf) -> bool:
    """Whether the operand that gives the rows has more elements than the one that gives the vectors."""
    found = operands(main.block)
    assert found is not None
    store = main.block.body
    assert isinstance(store, BufferStore)
    sizes = {}
    for operand in found:
        size = 1
        for extent in operand.buffer.shape:
            size *= static(extent) or 64
        sizes[store.indices[-1] in variables_of(operand)] = size
    return sizes.get(False, 0) > sizes.get(True, 0)


def tile_in_registers(sch: Schedule, main: Leaf, axes: Axes, tile: Tile, epilogue: list[Leaf]) -> None:
    """Splits the loops into tiles, keeps a tile's sums in registers and lets the epilogue follow each tile."""
    block, loops = main.handle, main.loops
    around: dict[str, LoopRV] = {}
    inner: list[LoopRV] = []
    for name in ("columns", "rows", "vector"):
        position, factor = getattr(axes, name), getattr(tile, name)
        if position is None:
            continue
        if main.extents[position] == factor:
            inner.append(loops[position])
        elif factor == 1:
            around[name] = loops[position]
        else:
            around[name], within = sch.split(loops[position], [None, factor])
            inner.append(within)
    # The larger operand is read once: its panel stays in the cache while the other runs past it.
    order = ("rows", "columns", "vector") if rows_are_larger(main) else ("columns", "vector", "rows")
    outer = [*(loops[i] for i in axes.others), *(around[name] for name in order if name in around)]
    reduction = [loops[i] for i in axes.reduction]
    sch.reorder(*outer, *reduction, *inner)
    for loop in inner[:-1]:
        sch.unroll(loop)
    sch.vectorize(inner[-1])
    last = parallelize(sch, outer, main.work)
    if epilogue:
        # What follows reads the sums from the registers.
        sch.set_scope(block, 0, "local")
        followers = [leaf.handle for leaf in epilogue]
    else:
        followers = [sch.cache_write(block, 0, "local")]
    for follower in followers:
        if last is not None:
            sch.reverse_compute_at(follower, last)
        *rows, vector = sch.get_loops(follower)[-len(inner) :]
        for loop in rows:
            sch.unroll(loop)
        sch.vectorize(vector)
    sch.decompose_reduction(block, reduction[0])
