"""Blocks by themselves: elementwise code, layout changes, reductions.

Outer loops run on threads; what is only passed on is inlined. LLVM makes vectors of the inner loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ir.expr import Add, Call, FloorMod, Mul, PrimExpr, Sub, Var, as_int, const
from ...ir.op import Op
from ...ir.structural import structural_equal
from ...ir.visitor import Visitor
from ...runtime.error import ScheduleError
from ...target.cpu import cpu_info
from ...target.target import Target
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.op import TBranchesOnVectors
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.stmt import Block, BufferStore
from ...tir.stmt_functor import loads
from ...tir.transform.loop_partition import HINT
from ..analysis.leaves import Leaf, extent_of, is_copy, leaves, likely_extent, plain_schedule, reduces
from ..analysis.recomputation import stays_small
from .base import PARALLEL_WORK, CPUScheduleRule, largest_divisor, parallelize
from .flat_rows import with_flat_axes
from .transposition import mark_squares, rows_of_squares, transposes

CHUNK = 1 << 13
"""Elements of a long loop that are one task."""

TILE = 16
"""Elements along each of two axes that are read and written together where a block transposes."""


class Spatial(CPUScheduleRule):
    """Any sequence of loop nests: elementwise blocks inlined, the outer loops of each parallel."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = plain_schedule(func)
        if leaves(sch) is None:
            return None
        inline_elementwise(sch)
        sch = with_flat_axes(sch)
        for leaf in leaves(sch) or ():
            schedule_leaf(sch, leaf, cpu_info(target).vector_bytes)
        return sch


class Calls(Visitor):
    """The calls in an expression, and the variables in the conditions of its selections, as in padding."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False
        self.branches_on_vectors = False
        self.choosing: set[Var] = set()

    def visit_Call(self, call: Call) -> None:
        self.any = True
        self.branches_on_vectors = self.branches_on_vectors or bool(TBranchesOnVectors.of(call.op))
        if isinstance(call.op, Op) and call.op.name == "tir.if_then_else":
            self.choosing |= variables(call.args[0])
        self.generic_visit(call)


def calls_in(expr: Any) -> Calls:
    """The calls in an expression."""
    calls = Calls()
    calls(expr)
    return calls


def inline_elementwise(sch: Schedule) -> None:
    """Inlines the blocks whose values are cheap to compute where they are used, or used in one place.

    Blocks come after those that they read. Those that stay are looked at again if others went, since these then read
    them elsewhere.
    """
    left, before = leaves(sch) or [], -1
    while len(left) != before:
        before = len(left)
        left = [leaf for leaf in left if not _inlined(sch, leaf)]


def _inlined(sch: Schedule, leaf: Leaf) -> bool:
    """Inlines a block if it is worth it."""
    leaf.block = sch.get(leaf.handle)
    if leaf.reduces or not _worth_inlining(sch, leaf):
        return False
    try:
        sch.compute_inline(leaf.handle)
    except ScheduleError:
        return False
    return True


def _worth_inlining(sch: Schedule, leaf: Leaf) -> bool:
    body = leaf.block.body
    if is_copy(leaf.block):
        # A copy costs nothing where it is read.
        return bool(sch.get_consumers(leaf.handle))
    calls = calls_in(body)
    if calls.choosing:
        return False  # padding is better computed once
    consumers = [sch.get(consumer) for consumer in sch.get_consumers(leaf.handle)]
    # A value that a reduction reads would be computed again for every element of its result, and one that is repeated
    # along an axis, such as the gate of a channel, for every element of that.
    if not consumers or any(reduces(block) or (calls.any and _repeats(leaf, block)) for block in consumers):
        return False
    return stays_small(leaf.block, consumers)


def _repeats(leaf: Leaf, consumer: Block) -> bool:
    """Whether a block reads elements of another one's result several times."""
    if steps(consumer.iter_vars) <= leaf.work:
        return False
    # A part of a concatenation is read once, in some of the iterations.
    places = [load.indices for load in loads(consumer.body) if load.buffer is leaf.block.writes[0].buffer]
    axes = {iv.var for iv in consumer.iter_vars if as_int(extent_of(iv)) != 1}
    return len(places) != 1 or not axes <= {axis for index in places[0] if (axis := _shifted(index)) is not None}


def _shifted(index: PrimExpr) -> Var | None:
    """The variable of which an index is a constant number of elements ahead, or behind."""
    if isinstance(index, (Add, Sub)) and as_int(index.b) is not None:
        index = index.a
    return index if isinstance(index, Var) else None


def steps(axes: Sequence[IterVar]) -> int:
    """The product of the extents of axes, as `likely_extent` has them."""
    return math.prod(likely_extent(extent_of(axis)) for axis in axes)


def fuse_contiguous(
    sch: Schedule, handle: BlockRV, axes: Sequence[Var], loops: Sequence[LoopRV]
) -> tuple[list[Var], list[LoopRV]]:
    """Makes one loop of the innermost ones where all accesses run over memory without gaps: a long loop is fast.

    `axes` are the block's variables that `loops` are for; returns the loops that there are then, and the outermost
    variable of each.
    """
    axes, loops = list(axes), list(loops)
    run = contiguous_run(sch.get(handle), axes)
    for inner in reversed(run[1:]):
        del axes[inner]
        loops[inner - 1] = sch.fuse(loops[inner - 1], loops.pop(inner))
    return axes, loops


def contiguous_run(block: Block, axes: Sequence[Var]) -> range:
    """The positions of the innermost axes with more than one element over which all accesses run without gaps."""
    sizes = {iv.var: as_int(extent_of(iv)) for iv in block.iter_vars}
    places = _Places({axis for axis, extent in sizes.items() if extent != 1})
    places(block.body)
    last = next((i for i in reversed(range(len(axes))) if sizes[axes[i]] != 1), 0)
    first = last
    while first > 0 and sizes[axes[first - 1]] != 1:
        outer, inner = axes[first - 1], axes[first]
        if not places.values.isdisjoint((outer, inner)):
            break  # what is computed of an axis would be computed of quotients and remainders
        if not all(_adjacent(place, outer, inner, sizes[inner]) for place in places.found):
            break
        first -= 1
    return range(first, last + 1)


class _Places(Visitor):
    """Where the accesses of a block lie: for each dimension of more than one element its extent and what indexes it.

    That is a variable, where it is one and variables that are always 0, or else the variables.
    """

    def __init__(self, axes: set[Var]) -> None:
        super().__init__()
        self.axes = axes
        self.found: list[list[tuple[int | None, Var | set[Var]]]] = []
        self.values: set[Var] = set()
        """The variables that are no part of an index."""
        self._indexing = False

    def visit_Var(self, var: Var) -> None:
        if not self._indexing:
            self.values.add(var)

    def visit_BufferLoad(self, access: BufferLoad | BufferStore) -> None:
        dimensions = zip(access.buffer.shape, access.indices, strict=True)
        place = [(as_int(extent), self.place(index)) for extent, index in dimensions]
        self.found.append([entry for entry in place if entry[0] != 1])
        outer, self._indexing = self._indexing, True
        for index in access.indices:
            self.visit(index)
        self._indexing = outer
        if isinstance(access, BufferStore):
            self.visit(access.value)

    visit_BufferStore = visit_BufferLoad

    def place(self, index: PrimExpr) -> Var | set[Var]:
        used = variables(index) & self.axes
        while isinstance(index, Add):
            index = index.a if variables(index.a) & self.axes else index.b
        return index if isinstance(index, Var) and used == {index} else used


def _adjacent(place: Sequence[tuple[int | None, Var | set[Var]]], outer: Var, inner: Var, extent: int | None) -> bool:
    """Whether an access moves on to the next row when the inner variable starts again, or depends on neither."""
    entries = [{entry} if isinstance(entry, Var) else entry for _, entry in place]
    uses = [i for i, entry in enumerate(entries) if entry & {outer, inner}]
    if not uses:
        return True
    if extent is None or len(uses) != 2 or uses[0] + 1 != uses[1]:
        return False
    row, element = uses
    return place[row][1] is outer and place[element][1] is inner and place[element][0] == extent


def transposed_axis(leaf: Leaf) -> Var | None:
    """The axis along which a block reads contiguous memory, if it writes along another; else None."""
    store = leaf.block.body
    if not isinstance(store, BufferStore) or not leaf.block.iter_vars or not store.indices:
        return None
    last = leaf.block.iter_vars[-1].var
    sizes = {iv.var: extent for iv, extent in zip(leaf.block.iter_vars, leaf.extents, strict=True)}
    if last not in variables(store.indices[-1]):
        return None
    for load in loads(store.value):
        used = [variables(index) & sizes.keys() for index in load.indices]
        if any(last in axes for axes in used[:-1]) and last not in used[-1]:
            long = [axis for axis in sizes if axis in used[-1] and (sizes[axis] or TILE) >= TILE // 2]
            if long:
                return long[-1]
    return None


def _in_tiles(sch: Schedule, leaf: Leaf, axes: list[Var], loops: list[LoopRV], axis: Var, vector_bytes: int) -> None:
    """Tiles two axes, so that whole cache lines are read as well as written; in squares of vectors where possible."""
    last = axes[-1]
    in_squares = transposes(leaf.block, axis, leaf.block.iter_vars[-1].var)
    if len(axes) > 2 and axes[-2] is axis:
        outer, outer_loops = fuse_contiguous(sch, leaf.handle, axes[:-1], loops[:-1])
        axes, loops = [*outer, last], [*outer_loops, loops[-1]]
        axis = outer[-1]
    read, write = loops[axes.index(axis)], loops[-1]
    rest = [loop for loop in loops[:-1] if loop is not read]
    rows = None
    if in_squares:
        extents = [as_int(sch.get(loop).extent) for loop in (read, write)]
        rows = rows_of_squares(extents, leaf.block.writes[0].buffer.dtype.itemsize, vector_bytes)
    read_tiles, read_in = sch.split(read, [None, tile_of(sch, read, rows)])
    write_tiles, write_in = sch.split(write, [None, tile_of(sch, write, rows)])
    sch.reorder(*rest, read_tiles, write_tiles, write_in, read_in)
    if rows is not None:
        mark_squares(sch, write_in, rows)
    parallelize(sch, [*rest, read_tiles], leaf.work)


def tile_of(sch: Schedule, loop: LoopRV, rows: int | None) -> int:
    """The extent of a tile of a loop: about a cache line of elements, of whole squares, a divisor if possible."""
    extent = as_int(sch.get(loop).extent)
    if rows is not None:
        return rows if extent is not None and extent % TILE and extent % rows == 0 else TILE
    divisor = TILE if extent is None else largest_divisor(extent, TILE)
    return divisor if 2 * divisor > TILE else TILE


def schedule_leaf(sch: Schedule, leaf: Leaf, registers: int) -> None:
    """Runs the outer spatial loops of a block on threads, all but the innermost loop.

    That becomes vectors where operators branch on whole ones; a register of `registers` bytes holds one.
    """
    axes = [iv.var for iv in leaf.block.iter_vars]
    if leaf.reduces:
        count = sum(iv.iter_type == IterVar.DataPar for iv in leaf.block.iter_vars)
        parallelize(sch, leaf.loops[: min(count, len(leaf.loops) - 1)], leaf.work)
        return
    calls = calls_in(leaf.block.body)
    periods = None if calls.choosing else _split_periods(sch, leaf)
    if periods is not None:
        parallelize(sch, periods[:-1], leaf.work)
        if calls.branches_on_vectors:
            vectorize(sch, periods[-1], registers // leaf.block.writes[0].buffer.dtype.itemsize)
        return
    axis = transposed_axis(leaf)
    axes, loops = fuse_contiguous(sch, leaf.handle, axes, leaf.loops)
    if axis in axes[:-1] and axis is not None:
        _in_tiles(sch, leaf, axes, loops, axis, registers)
        return
    has_conditions = bool(axes) and axes[-1] in calls.choosing
    if leaf.work >= PARALLEL_WORK and all(as_int(sch.get(loop).extent) == 1 for loop in loops[:-1]):
        extent = as_int(sch.get(loops[-1]).extent)
        chunk = CHUNK if extent is None else largest_divisor(extent, CHUNK)
        chunk = chunk if 2 * chunk > CHUNK else CHUNK
        loops[-1:] = sch.split(loops[-1], [None, chunk])
        has_conditions = has_conditions or extent is None or extent % chunk > 0
    outer = loops[:-1]
    if has_conditions:
        sch.annotate(loops[-1], HINT, 1)
    elif _has_short_pixels(sch, axes, loops, calls.choosing):
        sch.annotate(loops[-2], HINT, 1)
        outer = loops[:-2]
    parallelize(sch, outer, leaf.work)
    vectorize_innermost(sch, leaf, axes, loops, registers)


def _has_short_pixels(sch: Schedule, axes: list[Var], loops: list[LoopRV], choosing: set[Var]) -> bool:
    """Whether a condition along the last axis but one would be computed for each few elements, and enough other
    iterations are left for threads.
    """
    if len(axes) < 3 or axes[-2] not in choosing:
        return False
    *others, _, elements = (likely_extent(sch.get(loop).extent) for loop in loops)
    return elements < SHORT_ROW and math.prod(others) >= ROWS_OF_PIXELS


ROWS_OF_PIXELS = 4
"""From how many rows of short pixels on threads share rows. On one thread of a Zen 4, padding of one pixel around
224×224 of 3 channels took 108 µs, with a condition for each pixel, and takes 15; joining rows of 1000×3 took 410 µs for
200 of them, and takes 93.
"""


SHORT_ROW, ROW_WITH_CALLS = 32, 256
"""The most elements of rows that become vectors here, with a last one that is not full: of few elements LLVM makes
parts of vectors and single ones, and single ones are slow to compute where functions are called.

On a Zen 4 the sum of rows of 31 and a number for each took an eighth of the time so, and softmax half for 31 and 0.9
for 197.
"""


def vectorize_innermost(sch: Schedule, leaf: Leaf, axes: list[Var], loops: list[LoopRV], registers: int) -> None:
    """Makes vectors of the innermost loop of a block that is not a reduction, where LLVM would make worse ones.

    `axes` are the block's variables that the loops begin with; a register has `registers` bytes.
    """
    store, calls = leaf.block.body, calls_in(leaf.block.body)
    if not axes or not isinstance(store, BufferStore) or axes[-1] in calls.choosing:
        return
    if calls.branches_on_vectors:
        vectorize(sch, loops[-1], registers // store.buffer.dtype.itemsize)
        return
    extent = as_int(sch.get(loops[-1]).extent)
    lanes = registers // max(access.buffer.dtype.itemsize for access in (store, *loads(store.value)))
    tail_is_slow = calls.any and (extent is None or extent % lanes > 0)
    if extent is None and not tail_is_slow:
        return
    if extent is not None and not lanes < 2 * extent <= 2 * (ROW_WITH_CALLS if tail_is_slow else SHORT_ROW):
        return
    places = _Places({iv.var for iv in leaf.block.iter_vars if as_int(extent_of(iv)) != 1})
    places(store)
    if all(_is_along(place, axes[-1]) for place in places.found):
        vectorize(sch, loops[-1], lanes)


def _is_along(place: Sequence[tuple[int | None, Var | set[Var]]], axis: Var) -> bool:
    """Whether a step along the axis is one to the next element, or to the same."""
    uses = [entry for _, entry in place if axis is entry or (isinstance(entry, set) and axis in entry)]
    return not uses or (len(uses) == 1 and uses[0] is axis and place[-1][1] is axis)


def _split_periods(sch: Schedule, leaf: Leaf) -> list[LoopRV] | None:
    """The loops, with those split along which a block reads the same elements again and again, as `tile` does; None if
    there is no such loop.
    """
    found, factors = _Periods(leaf.block).found, dict[Var, list[PrimExpr]]()
    for iv in leaf.block.iter_vars:
        period = found.get(iv.var)
        count = None if period is None else _count_of(period, extent_of(iv))
        if period is not None and count is not None:
            factors[iv.var] = [count, period]
    if not factors:
        return None
    loops: list[LoopRV] = []
    axes = [iv.var for iv in leaf.block.iter_vars]
    for axis, loop in zip(*fuse_contiguous(sch, leaf.handle, axes, leaf.loops), strict=True):
        loops += sch.split(loop, factors[axis], disable_predication=True) if axis in factors else [loop]
    return loops


def _count_of(period: PrimExpr, extent: PrimExpr) -> PrimExpr | None:
    """How many periods an extent has; None if these are not several whole ones."""
    one, whole = as_int(period), as_int(extent)
    if one is not None and whole is not None:
        return const(whole // one, extent.dtype) if whole > one and whole % one == 0 else None
    if not isinstance(extent, Mul):
        return None
    factors = ((extent.a, extent.b), (extent.b, extent.a))
    return next((count for factor, count in factors if structural_equal(factor, period)), None)


class _Periods(Visitor):
    """The extents after which what a block loads begins again, by its variables: n of each index i % n."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.found: dict[Var, PrimExpr] = {}
        for load in loads(block.body):
            for index in load.indices:
                self.visit(index)

    def visit_FloorMod(self, remainder: FloorMod) -> None:
        if isinstance(remainder.a, Var):
            self.found.setdefault(remainder.a, remainder.b)


def vectorize(sch: Schedule, loop: LoopRV, lanes: int) -> None:
    """Makes vectors of a loop, and by itself the last iteration where it is not a full one."""
    if as_int(sch.get(loop).extent) == 1:
        return
    outer, inner = sch.split(loop, [None, lanes])
    sch.annotate(outer, HINT, 1)
    sch.vectorize(inner)
