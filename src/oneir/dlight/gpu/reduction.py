"""Reduction: sums of one tensor along some axes, several threads for each element of the result."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import IntImm, Var
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ..analysis import (
    BlockInfo,
    collect_vars_used_in_prim_expr,
    dominant_access,
    get_reduction_expr,
    is_broadcast_epilogue,
    normalize_prim_func,
)
from ..base.common_schedules import try_inline_contiguous_spatial
from ..base.sizes import suggest_threads_per_block
from .base import GPUScheduleRule, unroll_explicitly


class Reduction(GPUScheduleRule):
    """One sum, and perhaps one block that is computed from it."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if infos is None or len(infos) not in (1, 2) or (len(infos) == 2 and not infos[1].is_injective()):
            return None
        info, epilogue = infos[0], infos[1].block_rv if len(infos) == 2 else None
        block = sch.get(info.block_rv)
        if not info.is_reduction() or len(block.writes) != 1 or get_reduction_expr(block) is None or not block.reads:
            return None
        order = in_order(sch, info)
        if order is None:
            return None
        if order.along_reduction:
            contiguous_reduction(sch, target, info.block_rv, order, epilogue)
        else:
            strided_reduction(sch, info, order, epilogue)
        return sch


@dataclass(slots=True)
class Order:
    """Loops that were brought into the order of memory, and fused to spatial, reduction, and group.

    along_reduction: whether memory is contiguous along the reduction.
    spatial: the spatial axes in the order of memory, as positions among the spatial axes of the block.
    group: of how many neighbouring elements one is computed with, and the position in `spatial` of their axis.
    """

    along_reduction: bool
    spatial: list[int]
    group: tuple[int, int] | None


def in_order(sch: Schedule, info: BlockInfo) -> Order | None:
    """Brings the loops of a reduction into memory order; None where the indices of the tensor are not sums of axes."""
    access = dominant_access(sch.get(info.block_rv))
    axes = {i.var: i for i in info.iters}
    if collect_vars_used_in_prim_expr(access.base) & axes.keys() or not access.args:
        return None
    positions = {i.var: position for position, i in enumerate(i for i in info.iters if i.kind == "S")}
    spatial: list[LoopRV] = []
    reduction: list[LoopRV] = []
    inner: list[LoopRV] = []
    order = Order(False, [], None)
    for part in access.args:
        source = part.source.source
        axis = axes.pop(source, None) if isinstance(source, Var) else None
        if axis is None or not isinstance(part.lower_factor, IntImm):
            return None
        loop, factor, order.along_reduction = axis.loop_rv, part.lower_factor.value, axis.kind == "R"
        if factor > 1:
            if inner:
                return None
            loop, group = sch.split(loop, [None, factor])
            inner.append(group)
            if not order.along_reduction:
                order.group = (factor, len(spatial))
        if order.along_reduction:
            reduction.append(loop)
        else:
            spatial.append(loop)
            order.spatial.append(positions[axis.var])
    for axis in axes.values():
        if axis.kind != "S" or axis.dom != 1:
            return None
        spatial.append(axis.loop_rv)
        order.spatial.append(positions[axis.var])
    if not reduction or len(spatial) != len(positions):
        return None
    inner = inner or [sch.add_unit_loop(info.block_rv)]
    sch.reorder(*spatial, *reduction, *inner)
    sch.fuse(*spatial)
    sch.fuse(*reduction)
    return order


def contiguous_reduction(sch: Schedule, target: Target, block: BlockRV, order: Order, epilogue: BlockRV | None) -> None:
    """A block of threads for each element: each thread sums a part, then they sum their parts."""
    _, r, _ = sch.get_loops(block)
    (threads,) = suggest_threads_per_block(target, [sch.get(r)])
    _, tx = sch.split(r, [None, threads])
    parts = sch.rfactor(tx, 0)
    bx, r, tx, _ = sch.get_loops(parts)
    sch.reorder(bx, tx, r)
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    unroll_explicitly(sch, tx, 256)
    sch.set_scope(parts, 0, "local")
    sch.decompose_reduction(parts, r)
    sch.reverse_compute_at(block, bx, preserve_unit_loops=True)
    _, tx, *rest = sch.get_loops(block)
    s, group = grouped(sch, rest, order)
    sch.reorder(s, tx, *group)
    sch.bind(tx, "threadIdx.x")
    if epilogue is None:
        return
    sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
    if not is_broadcast_epilogue(sch, block, epilogue):
        sch.set_scope(block, 0, "local")
        return
    sch.set_scope(block, 0, "shared")
    _, tx = sch.split(sch.fuse(*sch.get_loops(epilogue)[1:]), [None, threads])
    sch.bind(tx, "threadIdx.x")


def strided_reduction(sch: Schedule, info: BlockInfo, order: Order, epilogue: BlockRV | None) -> None:
    """Up to 16 neighbouring elements side by side, so that loads coalesce, and 16 threads for each."""
    block = info.block_rv
    s, r, _ = sch.get_loops(block)
    innermost = [i.dom for i in info.iters if i.kind == "S"][-1]
    # It must divide the extent, or else the sum of the parts could not be computed at the parts.
    tx_size = next(n for n in range(16, 0, -1) if n == 1 or (isinstance(innermost, int) and innermost % n == 0))
    sch.split(s, [None, tx_size])
    _, ty = sch.split(r, [None, 16])
    parts = sch.rfactor(ty, 0)
    bx, tx, r, ty, _ = sch.get_loops(parts)
    sch.reorder(bx, tx, ty, r)
    sch.bind(tx, "threadIdx.x")
    sch.bind(ty, "threadIdx.y")
    sch.bind(bx, "blockIdx.x")
    sch.set_scope(parts, 0, "local")
    sch.decompose_reduction(parts, r)
    sch.reverse_compute_at(block, bx, preserve_unit_loops=True)
    _, ty, *rest = sch.get_loops(block)
    s, group = grouped(sch, rest, order)
    sch.reorder(s, *group, ty)
    sch.bind(s, "threadIdx.x")
    sch.bind(ty, "threadIdx.y")
    if epilogue is None:
        return
    sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
    broadcast = is_broadcast_epilogue(sch, block, epilogue)
    sch.set_scope(block, 0, "shared" if broadcast else "local")
    fused = sch.fuse(*sch.get_loops(epilogue)[1:])
    if broadcast:
        _, tx, ty = sch.split(fused, [None, tx_size, 16])
        sch.bind(ty, "threadIdx.y")
    else:
        tx, _ = sch.split(fused, [tx_size, None])
    sch.bind(tx, "threadIdx.x")


def grouped(sch: Schedule, loops: list[LoopRV], order: Order) -> tuple[LoopRV, list[LoopRV]]:
    """The spatial loops of the sum of the parts, fused to one, and that of a group below it, if there is one."""
    if order.group is None:
        return sch.fuse(*loops), []
    factor, at = order.group
    loops = [loops[position] for position in order.spatial]
    sch.reorder(*loops)
    loops[at], inner = sch.split(loops[at], [None, factor])
    sch.reorder(*loops, inner)
    return sch.fuse(*loops), [inner]
