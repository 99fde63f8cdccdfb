"""What the default schedules for GPUs share."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.expr import IntImm
from ...ir.visitor import post_order_visit
from ...runtime.error import ScheduleError, WellFormedError
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import Block, BlockRealize, For, ForKind
from ...tir.transform import LowerCrossThreadReduction
from ..base.schedule_rule import ScheduleRule

PROCESSORS = 132
"""Of an H100 and an H200. Where a GPU has fewer, some blocks of threads run after the others."""


class GPUScheduleRule(ScheduleRule):
    """Base of the rules for GPUs."""

    takes_empty: ClassVar[bool] = False
    """Whether the rule is for functions of tensors without elements, which need no tiles."""

    def is_target_available(self, target: Target) -> bool:
        """Whether the rule is for this target."""
        return "gpu" in target.keys

    def apply(self, func: PrimFunc, target: Target, tunable: bool = False) -> Any:
        """The schedule of a function; None where the rule is not for it or for the target."""
        if not isinstance(func, PrimFunc) or not isinstance(func.body, BlockRealize):
            return None
        if not self.is_target_available(target) or (not self.takes_empty and has_empty_buffers(func)):
            return None
        try:
            found = self.schedule(func, target)
            if found is not None:
                LowerCrossThreadReduction()(found.mod)
        except (ScheduleError, WellFormedError):
            # The condition of a primitive does not hold, or threads cannot reduce as it says: the rule is not for this.
            return None
        return found

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        """The schedule of a function for a GPU; None where the rule is not for it."""
        raise NotImplementedError


def unroll_explicitly(sch: Schedule, loop: LoopRV, max_step: int) -> None:
    """Has the loops below a loop unrolled, up to so many steps."""
    sch.annotate(loop, "pragma_auto_unroll_max_step", max_step)
    sch.annotate(loop, "pragma_unroll_explicit", 1)


def has_empty_buffers(func: PrimFunc) -> bool:
    """Whether an argument of a function is known to have no elements."""
    extents = [extent for buffer in func.buffer_map.values() for extent in buffer.shape]
    return any(isinstance(extent, IntImm) and extent.value == 0 for extent in extents)


def has_parallel_loops(block: Block) -> bool:
    """Whether a block is written with parallel loops of its own."""
    found: list[For] = []
    post_order_visit(block, lambda n: found.append(n) if isinstance(n, For) and n.kind is ForKind.PARALLEL else None)
    return bool(found)
