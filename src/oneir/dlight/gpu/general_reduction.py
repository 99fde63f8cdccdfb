"""General reduction: several reductions of rows, one after the other. Softmax, layer norm, RMS norm."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.expr import const
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ..analysis import (
    BlockInfo,
    collect_block_iter_vars_used_in_access_region,
    normalize_prim_func,
)
from ..base.common_schedules import try_inline_contiguous_spatial
from .base import GPUScheduleRule, has_parallel_loops, unroll_explicitly

# Threads of a block and steps to unroll, by the kind of target; (64, 64) elsewhere.
_CONFIG = {"cuda": (256, 256), "opencl": (256, 64)}


class GeneralReduction(GPUScheduleRule):
    """A block of threads for each row: all reductions of the row in shared memory, then what is computed from them."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        threads, unroll = _CONFIG.get(target.kind.name, (64, 64))
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos:
            return None
        kinds = infos[0].dom_kind()
        rows = len(kinds) - len(kinds.lstrip("S"))
        reduced = len(kinds) - len(kinds.rstrip("R"))
        last = infos[-1]
        if not last.iters:
            return scalar_result(sch, infos)
        if not reduced or not last.is_injective() or len(last.iters) > len(kinds):
            return None
        if any(info.dom_kind() != kinds for info in infos[1:-1]):
            return None
        if len(last.iters) < len(kinds):
            align_axes(sch, infos[0], last)
        rows_first(sch, infos)
        loops = sch.get_loops(last.block_rv)
        bx = sch.fuse(*loops[:rows])
        r, tx = sch.split(loops[-1], [None, threads])
        sch.reorder(tx, r)
        sch.bind(bx, "blockIdx.x")
        sch.bind(tx, "threadIdx.x")
        unroll_explicitly(sch, r, unroll)
        for info in reversed(infos[:-1]):
            block = info.block_rv
            for position in range(len(sch.get(block).writes)):
                sch.set_scope(block, position, "shared")
            sch.compute_at(block, bx, preserve_unit_loops=True)
            r, tx = sch.split(sch.fuse(*sch.get_loops(block)[-reduced:]), [None, threads])
            sch.reorder(tx, r)
            sch.bind(tx, "threadIdx.x")
            unroll_explicitly(sch, r, unroll)
        return sch


def scalar_result(sch: Schedule, infos: list[BlockInfo]) -> Schedule | None:
    """Runs each block on one thread, for a function that ends in a scalar without loops.

    None where a block has parallel loops of its own.
    """
    if any(has_parallel_loops(sch.get(info.block_rv)) for info in infos):
        return None
    for position, info in enumerate(infos):
        sch.bind(sch.add_unit_loop(info.block_rv), "threadIdx.x" if position else "blockIdx.x")
    return sch


def align_axes(sch: Schedule, first: BlockInfo, last: BlockInfo) -> None:
    """Gives the last block as many axes as the first one, by axes of extent 1 where extents differ."""

    def aligned(*axes: Any) -> list[Any]:
        analyzer = Analyzer()
        zero = const(0, axes[0].dtype)
        found: list[Any] = []
        taken = 0
        for axis in first.iters:
            if taken < len(axes) and analyzer.can_prove_equal(axis.dom, last.iters[taken].dom):
                found.append(axes[taken])
                taken += 1
            else:
                found.append(zero)
        return found if taken == len(axes) else [zero] * (len(first.iters) - len(axes)) + list(axes)

    sch.transform_block_layout(last.block_rv, aligned)


def rows_first(sch: Schedule, infos: list[BlockInfo]) -> None:
    """Moves the loops of the last block on which the reductions' results depend outside of the others."""
    results = {region.buffer for info in infos[:-1] for region in sch.get(info.block_rv).writes}
    block = sch.get(infos[-1].block_rv)
    used = set()
    for read in block.reads:
        if read.buffer in results:
            used |= collect_block_iter_vars_used_in_access_region(block, read.region)
    outer, inner = [], []
    for iv, loop in zip(block.iter_vars, sch.get_loops(infos[-1].block_rv), strict=True):
        (outer if iv.var in used or sch.get(loop).extent == 1 else inner).append(loop)
    sch.reorder(*outer, *inner)
