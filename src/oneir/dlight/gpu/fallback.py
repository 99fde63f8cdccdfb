"""Fallback: any loop nests, with a thread for each element of a result."""

from __future__ import annotations

from typing import ClassVar

from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ..analysis import normalize_prim_func
from ..base.common_schedules import try_inline
from ..base.sizes import max_threads_per_block
from .base import GPUScheduleRule, has_parallel_loops


class Fallback(GPUScheduleRule):
    """Inlines what can be inlined, and binds the spatial loops of what is left to threads."""

    takes_empty: ClassVar[bool] = True

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        infos = normalize_prim_func(sch)
        if infos is None:
            return None
        threads = max_threads_per_block(target)
        reductions = []
        for info in try_inline(sch, infos):
            block, loops = info.block_rv, sch.get_loops(info.block_rv)
            if not loops or any(sch.get(loop).thread_binding is not None for loop in loops):
                continue
            if has_parallel_loops(sch.get(block)):  # which are the threads
                continue
            by_kind: dict[str, list[LoopRV]] = {"S": [], "R": [], "O": []}
            for loop, kind in zip(loops, info.dom_kind(), strict=False):
                by_kind[kind].append(loop)
            spatial = by_kind["S"] or [sch.add_unit_loop(block)]
            sch.reorder(*spatial, *by_kind["R"], *by_kind["O"])
            bx, tx = sch.split(sch.fuse(*spatial), [None, threads])
            sch.bind(bx, "blockIdx.x")
            sch.bind(tx, "threadIdx.x")
            if by_kind["R"]:
                reductions.append((block, by_kind["R"][0]))
        for block, loop in reductions:
            sch.decompose_reduction(block, loop)
        return sch
