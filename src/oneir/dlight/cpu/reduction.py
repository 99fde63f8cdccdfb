"""Reductions, and what is computed before and after them: softmax, normalizations, sums and extremes, pooling.

    for i, k in T.grid(128, 768):             for i in T.parallel(128):
        total[i] += A[i, k]                       for k in range(768):
    for i, j in T.grid(128, 768):      ->             total[0] += A[i, k]
        B[i, j] = A[i, j] / total[i]              for j in range(768):
                                                      B[i, j] = A[i, j] / total[0]

All that belongs to one row is computed together, so that it passes through memory once. Where the axis that is
contiguous in memory is no reduction axis (sums of columns, pooling with channels last), what belongs together is as
many neighbouring elements as fill some registers, and reduction axes run outside of them. LLVM makes vectors of sums
and extremes along a row, since the updates of a reduction may come in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.expr import Add, FloatImm, Mul, PrimExpr, Var, as_int
from ...runtime.error import ScheduleError
from ...target.cpu import cpu_info
from ...target.target import Target
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.stmt import BufferStore, SeqStmt
from ...tir.stmt_functor import loads
from ...topi.index import ravel
from ..analysis.leaves import Leaf, is_copy, leaves, leaves_of, likely_extent, plain_schedule
from .base import CPUScheduleRule, largest_divisor, parallelize
from .flat_rows import with_flat_axes
from .spatial import calls_in, contiguous_run, fuse_contiguous, schedule_leaf, steps, vectorize_innermost

UNROLLED = 16
"""Extent of a window up to which LLVM unrolls the loops over it, which makes its loads independent of one another."""
RECOMPUTED = 1.25
"""How many times the work may grow when rows that windows share are computed for each of them."""
ROWS, ROW_ELEMENTS = 8, 1 << 12
"""Rows that are computed together, and the elements that they have at most, so that they stay in the first cache."""
PART = 1 << 11
"""Elements of a sum that are added to one another before they meet others: what many small ones add to a large sum is
rounded each time, so a long sum is one of parts."""
LONG = 1 << 8
"""Elements along a reduction axis that are worth vectors, however many results there are."""
SHORT_ROW = 64
"""Rows of fewer elements become one with the axis before them: the sum of 1,389 matrices of 12 rows of 6 took ten times
as long row by row on a Zen 4, and of 12 rows of 31 three times."""
FEW_PARTS = 3
"""So many vectors that do not fill a register are as good as a row of whole ones and a part."""
CHUNKS = 16
"""Tasks that a reduction to very few elements is split into."""
CHUNK_WORK = 1 << 14
"""Steps of a reduction to one element that are worth a task of their own."""


class Reduction(CPUScheduleRule):
    """Reductions row by row, with everything that belongs to a row."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        looked_at = leaves_of(func)
        if looked_at is not None and not any(leaf.reduces for leaf in looked_at):
            return None
        sch = plain_schedule(func)
        found = leaves(sch)
        if found is None or not any(leaf.reduces for leaf in found) or not all(map(reduces_innermost, found)):
            return None
        inline_cheap_producers(sch)
        sch = with_flat_axes(sch, SHORT_ROW)
        with_sums_of_columns(sch)
        sch = with_long_sums_in_parts(sch)
        found = leaves(sch) or []
        outer = shared_axes(sch, found)
        along = {vector_axis(leaf) is not None for leaf in found if leaf.reduces} == {True}
        registers = cpu_info(target).vector_bytes
        width = shared_width(found, outer, registers) if along and outer else None
        for count in range(len(outer) - (along and width is None), 0, -1):
            trial = sch.copy()
            try:
                if compute_together(trial, found, outer[:count], width if count == len(outer) else None, registers):
                    return trial
            except ScheduleError:
                continue
        for leaf in found:
            schedule_alone(sch, leaf, registers)
        return sch


# -- what to inline --


def inline_cheap_producers(sch: Schedule) -> None:
    """Inlines producers that are used once, or that cost no more to compute again than to load."""
    changed = True
    while changed:
        changed = False
        for leaf in reversed(leaves(sch) or ()):
            if leaf.reduces or not (_inline_backwards(sch, leaf) or _inline_forwards(sch, leaf)):
                continue
            changed = True
            break


def _inline_forwards(sch: Schedule, leaf: Leaf) -> bool:
    consumers = sch.get_consumers(leaf.handle)
    if not consumers or not _worth_inlining(sch, leaf, consumers):
        return False
    try:
        sch.compute_inline(leaf.handle)
    except ScheduleError:
        return False
    return True


def _worth_inlining(sch: Schedule, leaf: Leaf, consumers: Sequence[BlockRV]) -> bool:
    body = leaf.block.body
    if not isinstance(body, BufferStore) or not leaf.block.iter_vars:
        return False
    calls = calls_in(body.value)
    if calls.choosing:
        # A condition on outer axes costs little; one on the innermost axis would be evaluated for each element.
        return leaf.block.iter_vars[-1].var not in calls.choosing and len(consumers) == 1
    if _is_view(body.value):
        return True
    blocks = [sch.get(consumer) for consumer in consumers]
    if len(consumers) > 1 and any(iv.iter_type == IterVar.CommReduce for block in blocks for iv in block.iter_vars):
        return False
    return not calls.any or all(steps(block.iter_vars) <= leaf.work for block in blocks)


def _is_view(value: PrimExpr) -> bool:
    """Whether a value is a load, perhaps converted: nothing is computed."""
    return isinstance(getattr(value, "value", value), BufferLoad)


def _inline_backwards(sch: Schedule, leaf: Leaf) -> bool:
    """Inlines a copy at the end of a function into its producer, which then writes to the result directly."""
    if not is_copy(leaf.block) or sch.get_consumers(leaf.handle):
        return False
    producers = sch.get_producers(leaf.handle)
    if len(producers) != 1 or any(iv.iter_type == IterVar.CommReduce for iv in sch.get(producers[0]).iter_vars):
        return False
    try:
        sch.reverse_compute_inline(leaf.handle)
    except ScheduleError:
        return False
    return True


# -- sums over several neighbouring columns --


def with_sums_of_columns(sch: Schedule) -> None:
    """Sums over groups of columns become sums of columns, which are vectors, and then sums of those.

    for g, k, c in T.grid(8, 3136, 4):                    for j, k in T.grid(32, 3136):
        total[g] += A[k, g * 4 + c]               ->          column[j] += A[k, j]
                                                          for g, c in T.grid(8, 4):
                                                              total[g] += column[g * 4 + c]
    """
    for leaf in leaves(sch) or ():
        axes = grouped_columns(leaf)
        if axes is not None:
            sum_columns(sch, leaf, *axes)


def grouped_columns(leaf: Leaf) -> tuple[int, int] | None:
    """The positions of a spatial axis of groups and of the reduction axis over a group's neighbouring columns, where
    rows enough are summed besides; else None.
    """
    own = {region.buffer for region in leaf.block.writes}
    innermost = [load.indices[-1] for load in loads(leaf.block.body) if load.buffer not in own and load.indices]
    groups = {_group_and_column(leaf, index) for index in innermost}
    found = groups.pop() if len(groups) == 1 else None
    if found is None or None in leaf.extents:
        return None
    return found if _steps_of(leaf) >= LONG * (leaf.extents[found[1]] or 1) else None


def _group_and_column(leaf: Leaf, index: PrimExpr) -> tuple[int, int] | None:
    """The positions of the axes of an index `group * columns + column`; None for another one."""
    if not isinstance(index, Add) or not isinstance(index.a, Mul):
        return None
    axes: dict[PrimExpr, int] = {iv.var: i for i, iv in enumerate(leaf.block.iter_vars)}
    group, column = axes.get(index.a.a), axes.get(index.b)
    if group is None or column is None:
        return None
    kinds = [iv.iter_type for iv in leaf.block.iter_vars]
    if (kinds[group], kinds[column]) != (IterVar.DataPar, IterVar.CommReduce):
        return None
    return (group, column) if as_int(index.a.b) == leaf.extents[column] else None


def sum_columns(sch: Schedule, leaf: Leaf, group: int, column: int) -> None:
    """Sums the columns of a reduction first."""
    first = sum(iv.iter_type == IterVar.DataPar for iv in leaf.block.iter_vars)
    count = leaf.extents[column]
    part = sch.rfactor(leaf.loops[column], group + 1)

    def columns(*at: PrimExpr) -> list[PrimExpr]:
        return [*at[:group], at[group] * count + at[group + 1], *at[group + 2 :]]

    for i in range(len(leaf.block.writes)):
        sch.transform_layout(part, ("write", i), columns)
    sch.transform_block_layout(part, lambda c, *at: [*at[:group], at[group] * count + c, *at[group + 1 :]])
    sch.reorder_block_iter_var(leaf.handle, [*range(1, first + 1), 0])


# -- long sums --


def with_long_sums_in_parts(sch: Schedule) -> Schedule:
    """The schedule with long sums of floats split into sums of parts, where their lengths have divisors that serve."""
    for leaf in leaves(sch) or ():
        axes = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.CommReduce]
        extents = [extent for extent in leaf.extents[len(leaf.extents) - len(axes) :] if extent is not None]
        if len(extents) < len(axes) or math.prod(extents) < 2 * PART or not _starts_with_float_zeros(leaf):
            continue
        trial = sch.copy()
        try:
            sum_in_parts(trial, leaf, axes, extents)
        except ScheduleError:
            continue  # not a sum
        sch = trial
    return sch


def sum_in_parts(sch: Schedule, leaf: Leaf, axes: list[Var], extents: list[int]) -> None:
    """Splits a sum over some axes into sums of parts, if their extents have divisors that serve."""
    first = len(leaf.extents) - len(axes)
    # All axes over which accesses run without gaps are one, and so are those outside of them.
    inner = contiguous_run(leaf.block, axes).start
    inner = 0 if math.prod(extents[:inner]) == 1 else inner
    groups = [slice(0, inner), slice(inner, None)] if inner else [slice(0, None)]
    # The innermost of these are one part, and the last of them as much of its elements as still fit.
    outer, length = [math.prod(extents[group]) for group in groups], 1
    while length * outer[-1] <= PART:
        length *= outer.pop()
    part = largest_divisor(outer[-1], PART // length)
    if 4 * part * length < PART:
        return
    along = vector_axis(leaf)
    if len(groups) < len(axes):
        sch.transform_block_layout(
            leaf.handle, lambda *at: [*at[:first], *(ravel(at[first:][group], extents[group]) for group in groups)]
        )
    loops = sch.get_loops(leaf.handle)[first : first + len(outer)]
    if part > 1:
        loops[-1], _ = sch.split(loops[-1], [None, part])
    # What is contiguous in memory stays contiguous in the results of parts.
    sch.rfactor(sch.fuse(*loops), first if along is None else first - 1)
    # The axis of the parts, which comes first, belongs behind the axes of the result.
    sch.reorder_block_iter_var(leaf.handle, [*range(1, first + 1), 0])


def _starts_with_float_zeros(leaf: Leaf) -> bool:
    init = leaf.block.init
    stores = init.seq if isinstance(init, SeqStmt) else [init]
    return all(isinstance(s, BufferStore) and isinstance(s.value, FloatImm) and s.value.value == 0 for s in stores)


# -- what belongs together --


def shared_axes(sch: Schedule, found: list[Leaf]) -> list[Var]:
    """The axes of the last block that index the results of all reductions; none if another block has no consumer."""
    last = found[-1]
    if any(not sch.get_consumers(leaf.handle) for leaf in found[:-1]):
        return []
    if last.reduces:
        return [iv.var for iv in last.block.iter_vars if iv.iter_type == IterVar.DataPar]
    reduced = set()
    for leaf in found[:-1]:
        sources = {region.buffer for region in leaf.block.reads}
        if leaf.reduces or sources & reduced:
            reduced |= {region.buffer for region in leaf.block.writes}
    common: list[Var] | None = None
    for load in loads(last.block.body):
        if load.buffer in reduced:
            axes = [index for index in load.indices if isinstance(index, Var)]
            common = axes if common is None else [axis for axis in common if axis in axes]
    return common or []


def reduces_innermost(leaf: Leaf) -> bool:
    """Whether a block's reduction axes come after the others."""
    kinds = [iv.iter_type for iv in leaf.block.iter_vars]
    return kinds == sorted(kinds, key=lambda kind: kind == IterVar.CommReduce)


def vector_axis(leaf: Leaf) -> Var | None:
    """The spatial axis along which a reduction's operand is contiguous; None where that is a reduction axis."""
    size = {iv.var: extent for iv, extent in zip(leaf.block.iter_vars, leaf.extents, strict=True)}
    own = {region.buffer for region in leaf.block.writes}
    best: tuple[int, Var | None] = (0, None)
    reducing = {iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.CommReduce}
    for load in loads(leaf.block.body):
        if load.buffer in own or not any(variables(index) & reducing for index in load.indices):
            continue  # a number that each result has, or its own
        used = variables(load.indices[-1])
        for axis, extent in size.items():
            steps = 64 if extent is None else extent
            if axis in used and axis in reducing and steps >= LONG:
                return None
            if axis in used and steps > best[0]:
                best = steps, None if axis in reducing else axis
    spatial = [axis for axis in size if axis not in reducing]
    return best[1] if best[1] in spatial[-1:] else None


def is_window(leaf: Leaf, axis: Var) -> bool:
    """Whether neighbouring results are computed from elements that overlap, or are not neighbours."""
    return any(
        load.indices and axis in variables(load.indices[-1]) and load.indices[-1] is not axis
        for load in loads(leaf.block.body)
    )


def shared_width(found: list[Leaf], outer: list[Var], registers: int) -> int | None:
    """How many elements of the last of the axes are computed together, in up to four registers; None if no number
    suits.

    That is whole registers or, of short rows, the largest part of one: code for a register and a part is slow. Longer
    rows of parts are slower than whole ones with a part at the end: rows of 1000 take 1.6 to 4.5 times as long with
    AVX-512, those of 36 a third less.
    """
    last = found[-1]
    extent = next(e for iv, e in zip(last.block.iter_vars, last.extents, strict=True) if iv.var is outer[-1])
    axes = [(leaf, axis) for leaf in found if leaf.reduces and (axis := vector_axis(leaf)) is not None]
    if extent is None or any(is_window(leaf, axis) for leaf, axis in axes):
        return None
    lanes = max(1, min(registers // leaf.block.writes[0].buffer.dtype.itemsize for leaf in found))
    if extent % lanes == 0:
        return math.gcd(extent // lanes, 4) * lanes
    part = largest_divisor(extent, lanes)
    return part if 2 * part >= lanes and extent <= FEW_PARTS * part else None


def compute_together(sch: Schedule, found: list[Leaf], outer: list[Var], width: int | None, registers: int) -> bool:
    """Moves all blocks into the loops of the last one over `outer`; returns whether little is computed twice that way.

    `width` is the number of elements of the last axis that are one vector; None where the axis is not vectorized.
    `registers`: the bytes of one.
    """
    *others, last = found
    if last.reduces and width is not None:
        # The copy of the result from registers to memory is a block of its own.
        sch.cache_write(last.handle, 0, "local")
        others, last = found, (leaves(sch) or [])[-1]
        outer = [last.block.iter_vars[i].var for i in range(len(outer))]
    work = sum(leaf.work for leaf in found)
    inside = {iv.var: loop for iv, loop in zip(last.block.iter_vars, last.loops, strict=True)}
    shared = [inside.pop(axis) for axis in outer]
    if width is not None:
        shared[-1], inside[outer[-1]] = sch.split(shared[-1], [None, width])
    elif (rows := rows_together(last, outer)) > 1:
        shared[-1], several = sch.split(shared[-1], [None, rows])
        inside = {outer[-1]: several, **inside}
    sch.reorder(*shared, *inside.values())
    for leaf in reversed(others):
        sch.compute_at(leaf.handle, shared[-1], preserve_unit_loops=True)
    if sum(_work(sch, leaf) for leaf in others) + last.work > RECOMPUTED * (work + last.work * (last not in found)):
        return False
    # Primitives see a reduction only while its init is inside the block, so inits are split off last.
    starts = {}
    for leaf in others:
        loops = sch.get_loops(leaf.handle)[len(shared) :]
        starts[leaf.handle] = arrange(sch, leaf, [iv.var for iv in leaf.block.iter_vars], loops, width, registers)
    starts[last.handle] = arrange(sch, last, list(inside), list(inside.values()), width, registers)
    parallelize(sch, shared, work)
    for handle, start in starts.items():
        if start is not None:
            sch.decompose_reduction(handle, start)
    return True


def rows_together(last: Leaf, outer: list[Var]) -> int:
    """How many neighbouring rows are interleaved: a short row by itself would wait for the latency of its own sum."""
    extents = {iv.var: extent for iv, extent in zip(last.block.iter_vars, last.extents, strict=True)}
    count = extents[outer[-1]]
    row = 1
    for axis, extent in extents.items():
        row *= 1 if axis in outer else 64 if extent is None else extent
    most = min(ROWS, ROW_ELEMENTS // row)
    if count is None or most < 2 or count < 2 * most:
        return 1
    # As little padding as possible, and then as many rows as possible.
    return min(range(most // 2 + 1, most + 1), key=lambda rows: (-(-count // rows) * rows, -rows))


def _work(sch: Schedule, leaf: Leaf) -> int:
    return math.prod(likely_extent(sch.get(loop).extent) for loop in sch.get_loops(leaf.handle))


def arrange(
    sch: Schedule, leaf: Leaf, axes: list[Var], loops: list[LoopRV], width: int | None, registers: int
) -> LoopRV | None:
    """Orders the loops of a block below those that are shared; returns the outermost reduction loop."""
    if not loops:
        return None
    if not leaf.reduces:
        if width is None:
            vectorize_innermost(sch, leaf, *fuse_contiguous(sch, leaf.handle, axes, loops), registers)
        elif sch.get(loops[-1]).extent == width:
            sch.vectorize(loops[-1])
        return None
    count = sum(iv.iter_type == IterVar.CommReduce for iv in leaf.block.iter_vars)
    spatial, reduction = loops[:-count], loops[-count:]
    axis = vector_axis(leaf)
    if axis is None:
        _, reduction = fuse_contiguous(sch, leaf.handle, axes[-count:], reduction)
    elif width is not None or not (is_window(leaf, axis) and _steps_of(leaf) <= UNROLLED):
        sch.reorder(*reduction, spatial[-1])
        if width is not None:
            sch.vectorize(spatial[-1])
    return reduction[0]


def _steps_of(leaf: Leaf) -> int:
    """Elements that a reduction reduces to one."""
    return steps([iv for iv in leaf.block.iter_vars if iv.iter_type == IterVar.CommReduce])


def schedule_alone(sch: Schedule, leaf: Leaf, registers: int) -> None:
    """Schedules a block by itself: its outer axes on threads; those of a reduction to very few elements, too.

    `registers`: the bytes of one.
    """
    if not leaf.reduces:
        schedule_leaf(sch, leaf, registers)
        return
    count = sum(iv.iter_type == IterVar.CommReduce for iv in leaf.block.iter_vars)
    spatial, reduction = leaf.loops[:-count], leaf.loops[-count:]
    axis = vector_axis(leaf)
    if axis is None:
        outer = spatial
        if leaf.work // _steps_of(leaf) < CHUNKS and _reduce_in_chunks(sch, leaf, len(spatial)):
            return
        _, reduction = fuse_contiguous(sch, leaf.handle, [iv.var for iv in leaf.block.iter_vars][-count:], reduction)
    else:
        outer = spatial[:-1]
        width = shared_width([leaf], [axis], registers)
        if width is not None:
            chunk, spatial[-1] = sch.split(spatial[-1], [None, width])
            outer = [*outer, chunk]
        if not (is_window(leaf, axis) and _steps_of(leaf) <= UNROLLED):
            sch.reorder(*reduction, spatial[-1])
    parallelize(sch, outer, leaf.work)
    sch.decompose_reduction(leaf.handle, reduction[0])


def _reduce_in_chunks(sch: Schedule, leaf: Leaf, position: int) -> bool:
    """Reduces parts on threads, and then the parts' results; whether there is enough for that.

    `position`: that of the first reduction axis.
    """
    extent = leaf.extents[position]
    if extent is None or leaf.work < CHUNKS * CHUNK_WORK or not isinstance(leaf.block.body, BufferStore):
        return False
    chunks = largest_divisor(extent, CHUNKS)
    if chunks < 4:
        return False
    chunk, *_ = sch.split(leaf.loops[position], [chunks, None])
    part = sch.rfactor(chunk, 0)
    loops = sch.get_loops(part)
    chunk = loops.pop(position)
    sch.reorder(chunk, *loops[:position])
    _, loops[position:] = fuse_contiguous(
        sch, part, [iv.var for iv in sch.get(part).iter_vars][-len(loops[position:]) :], loops[position:]
    )
    sch.parallel(chunk)
    sch.decompose_reduction(part, loops[position])
    sch.decompose_reduction(leaf.handle, sch.get_loops(leaf.handle)[position])
    return True
