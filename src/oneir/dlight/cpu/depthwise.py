"""Depthwise: multiply and sum, each channel by itself or in groups, with the channels contiguous in memory.

    C[y, x, c] += A[y + ry, x + rx, c] * B[ry, rx, c]
    C[y, x, c] += A[y + ry, x + rx, c // 32 * 16 + i] * B[ry, rx, i, c]

Channels are vectors. A tile of neighbours along the innermost image axis is summed in registers, so that each step
along the kernel loads its weights once for all of them; what is computed from the result elementwise follows out of the
registers. Padding is no pass of its own: rows outside of the image are left out of the sum, and tiles at both ends of a
row, where some columns are outside, are code of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...arith.constraint import conjuncts
from ...arith.detect import detect_linear_equation
from ...ir.expr import GE, GT, LE, LT, Add, And, Call, FloorDiv, IntImm, Max, Min, Mul, PrimExpr, Var, const
from ...ir.op import Op
from ...ir.visitor import Mapper
from ...target.cpu import CPUInfo, cpu_info
from ...target.target import Target
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import Block, BlockRealize, BufferStore, For
from ...tir.stmt_functor import substitute
from ...tir.transform.loop_partition import HINT
from ..analysis.contraction import is_contraction, operands, panel_width
from ..analysis.leaves import Leaf, leaves, leaves_of
from .base import CPUScheduleRule, parallelize
from .contraction import follows, in_vectors
from .contraction_axes import variables_of
from .spatial import inline_elementwise, schedule_leaf

MOST_COLUMNS = 8
"""Neighbours along a row that one step sums: enough to keep two multiply-add units busy."""

MOST_TAPS = 16
"""A kernel's columns that are written out; more are a loop."""

LONG_SUM = 1 << 10
"""Steps from which on a sum for one place only is none for one vector after the other."""

IF_THEN_ELSE = Op.get("tir.if_then_else")


@dataclass(slots=True)
class Axes:
    """The role of each loop, as its position in the nest."""

    channel: int
    column: int | None
    """The innermost axis of the image."""
    others: list[int]
    taps: list[int]
    """The kernel's axes, but for those along the image's innermost one."""
    column_taps: list[int]
    depth: list[int]
    """The channels that are summed over."""
    group: int | None
    """How many channels of the result share channels of the data; None where each has its own."""
    panel: int | None
    """The number of elements of a panel, if the weights are stored in panels."""


class Depthwise(CPUScheduleRule):
    """Multiply and sum where channels, which are vectors, have their own data, or that of their group."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        found = leaves_of(func)
        if found is None or not any(map(is_contraction, found)):
            return None
        # A contraction of another kind has its own rule.
        if any(is_contraction(leaf) and depthwise_axes(leaf) is None for leaf in found):
            return None
        sch = Schedule(func)
        inline_elementwise(sch)
        info = cpu_info(target)
        found = leaves(sch) or []
        plans = {id(leaf): axes for leaf in found if (axes := depthwise_axes(leaf)) is not None}
        mains = [leaf for leaf in found if id(leaf) in plans]
        followers = {id(leaf): main for main in mains for leaf in found if follows(sch, main, leaf)}
        finish = _Finish()
        # Of a long kernel, each column would need conditions.
        inlines = all(_is_written_out(leaf, plans[id(leaf)]) for leaf in mains)
        for leaf in [leaf for leaf in found if not inlines or not _inline_padding(sch, leaf)]:
            axes = plans.get(id(leaf))
            if axes is not None:
                epilogue = [other for other in found if followers.get(id(other)) is leaf]
                _sum_in_registers(sch, leaf, axes, epilogue, info, finish)
            elif id(leaf) not in followers:
                schedule_leaf(sch, leaf, info.vector_bytes)
        return Schedule(finish(sch.mod["main"]))


def depthwise_axes(leaf: Leaf) -> Axes | None:
    """The role of each loop; None for another block."""
    store, found = leaf.block.body, operands(leaf.block)
    if found is None or not is_contraction(leaf) or not isinstance(store, BufferStore) or not store.indices:
        return None
    positions = {iv.var: i for i, iv in enumerate(leaf.block.iter_vars)}
    spatial = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.DataPar]
    channel = store.indices[-1]
    if not isinstance(channel, Var) or channel not in spatial or any(i not in spatial for i in store.indices):
        return None
    image = [v for v in spatial if v is not channel and leaf.extents[positions[v]] != 1]
    for data, weight in (found, found[::-1]):
        panel = panel_width(weight, channel)
        if variables_of(weight) & set(image) or not set(image) <= variables_of(data):
            continue
        if (panel or _is_contiguous(weight, channel)) and (_is_contiguous(data, channel) or _group_of(data, channel)):
            break
    else:
        return None
    extent, group = leaf.extents[positions[channel]], _group_of(data, channel)
    if extent is None or extent < 2 or (group is not None and group % 2):
        return None
    reduction = [i for i, iv in enumerate(leaf.block.iter_vars) if iv.iter_type == IterVar.CommReduce]
    if not image and math.prod(leaf.extents[i] or LONG_SUM for i in reduction) >= LONG_SUM:
        return None
    column = next((v for v in reversed(spatial) if v in image), None)
    along = {v for index in data.indices if column in variables(index) for v in variables(index)}
    column_taps = [i for i in reduction if leaf.block.iter_vars[i].var in along]
    depth = [i for i in reduction if leaf.block.iter_vars[i].var in variables(data.indices[-1])]
    taps = [i for i in reduction if i not in column_taps and i not in depth]
    at = None if column is None else positions[column]
    others = [positions[v] for v in spatial if positions[v] not in (at, positions[channel])]
    return Axes(positions[channel], at, others, taps, column_taps, depth, group, panel)


def _group_of(load: BufferLoad, channel: Var) -> int | None:
    """How many neighbouring channels read the same element, for a load whose last index depends on the channel."""
    if not load.indices or any(channel in variables(index) for index in load.indices[:-1]):
        return None
    return group_of(load.indices[-1], channel)


def group_of(index: PrimExpr, channel: Var) -> int | None:
    """How many neighbouring channels share an index, as in `channel // 32 * 16 + i`, where 32 do."""
    while isinstance(index, (Add, Mul)) and channel not in variables(index.b):
        index = index.a
    if isinstance(index, FloorDiv) and index.a is channel and isinstance(index.b, IntImm):
        return index.b.value
    return None


def groups_in_vector(index: PrimExpr, channel: Var, channels: int | None, lanes: int) -> bool:
    """Whether a vector of channels is several whole groups whose data is within one vector as well, as of
    `channel // 4 * 4 + i`.
    """
    group, step = group_of(index, channel), 1
    while isinstance(index, (Add, Mul)):
        if isinstance(index, Mul) and isinstance(index.b, IntImm):
            step *= index.b.value
        index = index.a
    return (
        group is not None
        and channels is not None
        and group < lanes
        and step <= group
        and not (lanes % group or channels % lanes)
    )


def _is_padded(call: Call) -> bool:
    """Whether a call is `if_then_else(condition, load, constant)`, as padding is written."""
    return call.op is IF_THEN_ELSE and isinstance(call.args[1], BufferLoad) and not variables(call.args[2])


def _is_contiguous(load: BufferLoad, channel: Var) -> bool:
    """Whether neighbouring channels are neighbours in memory."""
    if not load.indices or any(channel in variables(index) for index in load.indices[:-1]):
        return False
    last = load.indices[-1]
    while isinstance(last, Add):
        last = last.a if channel in variables(last.a) else last.b
    return last is channel


def _inline_padding(sch: Schedule, leaf: Leaf) -> bool:
    """Inlines the zero padding of the data, which adds nothing to a sum."""
    store, consumers = leaf.block.body, sch.get_consumers(leaf.handle)
    if leaf.reduces or not consumers or not isinstance(store, BufferStore):
        return False
    value = store.value
    if not isinstance(value, Call) or not _is_padded(value) or not _is_zero(value.args[2]):
        return False
    if not all(isinstance(sch.get(consumer).init, BufferStore) for consumer in consumers):
        return False
    sch.compute_inline(leaf.handle)
    return True


def _is_zero(expr: PrimExpr) -> bool:
    return getattr(expr, "value", None) == 0


def _width_of(axes: Axes, channels: int, lanes: int) -> int:
    """The channels computed in one step: a vector, or several that share the data; for a small group, a part of a
    vector.
    """
    if axes.group is None:
        return min(lanes, 1 << (channels.bit_length() - 1))
    return axes.panel or panel_of_group(axes.group, lanes)


def panel_of_group(group: int, lanes: int) -> int:
    """The channels of a group that are computed in one step."""
    vector = min(group & -group, lanes)
    return next(vector * count for count in (3, 2, 1) if group % (vector * count) == 0)


def _columns_of(extent: int | None, vectors: int, taps: int, info: CPUInfo) -> int:
    """The neighbours along a row that make a tile: as many as have their sums in registers.

    32-bit Arm multiplies nothing that lies in memory, and has few registers: beside the sums there, those of the taps
    and of all that they multiply are wanted at once, or they were spilled.
    """
    if extent is None:
        return 4
    most = (info.vector_registers - 1 - vectors) // vectors
    if info.arch == "arm":
        most = min(most, (info.vector_registers // vectors + 1 - 2 * taps) // 2)
    most = max(1, min(extent, MOST_COLUMNS, most))
    return min(range(1, most + 1), key=lambda n: (-(-extent // n) * (n + 1), -n))


def _sum_in_registers(
    sch: Schedule, main: Leaf, axes: Axes, epilogue: Sequence[Leaf], info: CPUInfo, finish: _Finish
) -> None:
    """Tiles the loops, keeps a tile's sums in registers and lets the epilogue follow each tile."""
    block, loops = main.handle, main.loops
    channels = main.extents[axes.channel] or 1
    lanes = max(1, info.vector_bytes // main.block.writes[0].buffer.dtype.itemsize)
    width = _width_of(axes, channels, lanes)
    vectors, vector = sch.split(loops[axes.channel], [None, width])
    outer, around, inner = [loops[i] for i in axes.others], [vectors], [vector]
    if channels % width == 0 and (axes.group or all(main.extents[i] == 1 for i in axes.others)):
        # A group's weights stay in the cache while its part of the image runs past them; a signal has channels only.
        outer, around = [vectors, *outer], []
    if axes.column is not None:
        written = math.prod(main.extents[i] or 1 for i in axes.column_taps) if _is_written_out(main, axes) else 1
        columns = _columns_of(main.extents[axes.column], width // min(width & -width, lanes), written, info)
        tiles = loops[axes.column]
        if columns > 1:
            tiles, column = sch.split(tiles, [None, columns])
            inner = [column, vector]
        sch.annotate(tiles, HINT, 1)
        around = [tiles, *around]
    taps, column_taps, depth = ([loops[i] for i in part] for part in (axes.taps, axes.column_taps, axes.depth))
    # The data of several groups is permuted for each channel of the sum, once for all of the kernel's columns.
    steps = [*taps, *depth, *column_taps] if axes.group and axes.group < width else [*taps, *column_taps, *depth]
    sch.reorder(*outer, *around, *steps, *inner)
    if _is_written_out(main, axes):
        for loop in column_taps:
            sch.unroll(loop)
    in_vectors(sch, inner, width)
    last = parallelize(sch, outer, main.work)
    if around:
        last = around[-1]
    assert last is not None
    if epilogue:
        sch.set_scope(block, 0, "local")
        followers = [leaf.handle for leaf in epilogue]
    else:
        followers = [sch.cache_write(block, 0, "local")]
    for follower in followers:
        sch.reverse_compute_at(follower, last)
        in_vectors(sch, sch.get_loops(follower)[-len(inner) :], width)
    sch.decompose_reduction(block, steps[0])
    finish.bounded |= {sch.get(loop).loop_var for loop in taps}
    if channels % width:
        finish.overlapping[sch.get(vectors).loop_var] = (width, channels)


def _is_written_out(leaf: Leaf, axes: Axes) -> bool:
    """Whether the loop over a kernel's columns is unrolled, so that it is known for each which are outside of the
    image.
    """
    extents = [leaf.extents[i] for i in axes.column_taps]
    return all(extent is not None and extent <= MOST_TAPS for extent in extents)


class _Finish(Mapper):
    """Rewrites that no schedule primitive makes.

    The last vector of channels, where it is not full, starts earlier and computes some channels twice. Conditions on
    the rows of the kernel become bounds of its loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.overlapping: dict[Var, tuple[int, int]] = {}
        self.bounded: set[Var] = set()
        self.bounds: dict[Var, tuple[list[PrimExpr], list[PrimExpr]]] = {}

    def visit_For(self, loop: For) -> Any:
        new = self.generic_visit(loop)
        lower, upper = self.bounds.get(loop.loop_var, ([], []))
        if not lower and not upper:
            return new
        first, end = loop.min, loop.min + loop.extent
        for bound in lower:
            first = Max(first, bound)
        for bound in upper:
            end = Min(end, bound)
        analyzer = Analyzer()
        first = analyzer.simplify(first)
        return new.replace(min=first, extent=analyzer.simplify(end) - first)

    def visit_Mul(self, mul: Mul) -> Any:
        width, extent = self.overlapping.get(mul.a, (0, 0)) if isinstance(mul.a, Var) else (0, 0)
        return Min(mul, const(extent - width, mul.dtype)) if width else self.generic_visit(mul)

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        kept = [part for part in conjuncts(realize.predicate) if not variables(part) & self.overlapping.keys()]
        predicate = _all(kept)
        values = dict(zip((iv.var for iv in realize.block.iter_vars), realize.iter_values, strict=True))
        block = self.within_bounds(realize.block, values)
        realize = realize.replace(predicate=predicate, block=block)
        return self.generic_visit(realize)

    def within_bounds(self, block: Block, values: dict[Var, PrimExpr]) -> Block:
        """The block without the conditions that loop bounds replace; records these bounds."""
        rows = {var for var, value in values.items() if value in self.bounded}
        if not rows or not isinstance(block.body, BufferStore):
            return block
        steps = [iv.var for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce]
        return block.replace(body=_Bound(self, rows, steps, values)(block.body))


class _Bound(Mapper):
    def __init__(self, finish: _Finish, rows: set[Var], steps: Sequence[Var], values: dict[Var, PrimExpr]):
        super().__init__()
        self.finish, self.rows, self.steps, self.values = finish, rows, steps, values

    def visit_Call(self, call: Call) -> Any:
        if not _is_padded(call):
            return self.generic_visit(call)
        kept = [part for part in conjuncts(call.args[0]) if not self.make_bound(part)]
        return call.replace(args=[_all(kept), *call.args[1:]]) if kept else call.args[1]

    def make_bound(self, part: PrimExpr) -> bool:
        """Turns a condition on a row of the kernel into a bound of its loop; whether it was one."""
        used = variables(part) & set(self.steps)
        difference = _at_least_zero(part)
        if len(used) != 1 or difference is None or not used <= self.rows:
            return False
        (row,) = used
        linear = detect_linear_equation(difference, [row])
        if not linear or not isinstance(linear[0], IntImm) or linear[0].value == 0:
            return False
        factor, rest = linear[0].value, substitute(linear[1], self.values)
        loop = self.values[row]
        assert isinstance(loop, Var)
        lower, upper = self.finish.bounds.setdefault(loop, ([], []))
        if factor > 0:
            lower.append((factor - 1 - rest) // factor)
        else:
            upper.append(rest // -factor + 1)
        return True


def _at_least_zero(part: PrimExpr) -> PrimExpr | None:
    """An expression that is at least 0 exactly if the comparison holds; None for other conditions."""
    match part:
        case LT():
            return part.b - part.a - 1
        case LE():
            return part.b - part.a
        case GT():
            return part.a - part.b - 1
        case GE():
            return part.a - part.b
    return None


def _all(parts: Sequence[PrimExpr]) -> PrimExpr:
    result = parts[0] if parts else const(True)
    for part in parts[1:]:
        result = And(result, part)
    return result
