"""What the default schedules for processors share: loops that pay for threads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...ir.expr import IntImm
from ...runtime.error import ScheduleError
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import BlockRealize
from ..base.schedule_rule import ScheduleRule
from .transposition import with_squares

PARALLEL_WORK = 1 << 16
"""Iterations of the innermost loop body from which on a parallel region is worth its start."""


class CPUScheduleRule(ScheduleRule):
    """Base of the rules for processors."""

    def is_target_available(self, target: Target) -> bool:
        """Whether the rule is for this target."""
        return target.kind.name in ("llvm", "c")

    def apply(self, func: PrimFunc, target: Target, tunable: bool = False) -> Any:
        """The schedule of a function; None where the rule is not for it or for the target."""
        if not isinstance(func.body, BlockRealize) or not self.is_target_available(target):
            return None
        try:
            sch = self.schedule(func, target)
        except ScheduleError:
            # The condition of a primitive does not hold, so the rule is not for this function.
            return None
        return None if sch is None else with_squares(sch)

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        """The schedule of a function for a processor; None where the rule is not for it."""
        raise NotImplementedError


def largest_divisor(extent: int, most: int) -> int:
    """The largest divisor of an extent that is at most `most`."""
    return next(d for d in range(min(extent, most), 0, -1) if extent % d == 0)


def parallelize(sch: Schedule, loops: Sequence[LoopRV], work: int) -> LoopRV | None:
    """Runs the outer loops on several threads, where there is enough to do; returns the innermost loop that is left.

    Of a fused loop of symbolic extents little could be proven, so only those of known extents are fused. Parallel loops
    in each other become one when nothing is left to prove (`CollapseParallelLoops`).
    """
    if not loops:
        return None
    if work < PARALLEL_WORK:
        return loops[-1]
    outer: list[LoopRV] = []
    for is_known, group in groupby(loops, lambda loop: isinstance(sch.get(loop).extent, IntImm)):
        together = list(group)
        outer += [sch.fuse(*together)] if is_known and len(together) > 1 else together
    for loop in outer:
        sch.parallel(loop)
    return outer[-1]
