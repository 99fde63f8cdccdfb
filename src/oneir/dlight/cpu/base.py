"""What the default schedules for processors share: blocks by what they do, loops that pay for threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.expr import IntImm, PrimExpr, Var, as_int
from ...ir.visitor import Visitor
from ...runtime.error import ScheduleError
from ...target.target import Target
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.stmt import Block, BlockRealize, For, ForKind
from ..base.schedule_rule import ScheduleRule

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
            return self.schedule(func, target)
        except ScheduleError:
            # The condition of a primitive does not hold, so the rule is not for this function.
            return None

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        """The schedule of a function for a processor; None where the rule is not for it."""
        raise NotImplementedError


@dataclass(slots=True)
class Leaf:
    """A block without blocks inside: its handle, the block, and the loops around it, each bound to one variable."""

    handle: BlockRV
    block: Block
    loops: list[LoopRV]
    extents: list[int | None]

    @property
    def reduces(self) -> bool:
        """Whether it has reduction axes."""
        return any(iv.iter_type == IterVar.CommReduce for iv in self.block.iter_vars)

    @property
    def work(self) -> int:
        """The product of the extents of the loops; symbolic extents count as 64."""
        steps = 1
        for extent in self.extents:
            steps *= 64 if extent is None else extent
        return steps


def leaves(sch: Schedule) -> list[Leaf] | None:
    """The blocks of a function in order; None for one that is not a sequence of plain loop nests around blocks."""
    root = sch.get_block("root")
    found = []
    for handle in sch.get_child_blocks(root):
        block = sch.get(handle)
        loops = sch.get_loops(handle)
        nodes = [sch.get(loop) for loop in loops]
        if sch.get_child_blocks(handle) or not is_plain(block, nodes):
            return None
        if any(as_int(node.extent) == 0 for node in nodes):
            return None  # nothing is computed
        found.append(Leaf(handle, block, loops, [as_int(node.extent) for node in nodes]))
    return found


def is_plain(block: Block, loops: Sequence[For]) -> bool:
    """Whether the loops of a block are unscheduled: serial, without annotations, one for each axis."""
    if any(loop.kind != ForKind.SERIAL or loop.annotations for loop in loops):
        return False
    return len(block.iter_vars) == len(loops)


def extent_of(axis: IterVar) -> PrimExpr:
    """The extent of a block's axis."""
    assert axis.dom is not None
    return axis.dom.extent


def largest_divisor(extent: int, most: int) -> int:
    """The largest divisor of an extent that is at most `most`."""
    return next(d for d in range(min(extent, most), 0, -1) if extent % d == 0)


class _Variables(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[Var] = set()

    def visit_Var(self, var: Var) -> None:
        self.found.add(var)


def variables(expr: Any) -> set[Var]:
    """The variables in an expression."""
    visitor = _Variables()
    visitor(expr)
    return visitor.found


def parallelize(sch: Schedule, loops: Sequence[LoopRV], work: int) -> LoopRV | None:
    """Runs the outer loops on several threads, where there is enough to do; returns the innermost loop that is left."""
    if not loops:
        return None
    if work < PARALLEL_WORK:
        return loops[-1]
    # Of a fused loop of several symbolic extents nothing could be proven, so only one such loop is fused.
    unknown = [i for i, loop in enumerate(loops) if not isinstance(sch.get(loop).extent, IntImm)]
    count = unknown[1] if len(unknown) > 1 else len(loops)
    outer = sch.fuse(*loops[:count]) if count > 1 else loops[0]
    sch.parallel(outer)
    return outer if count == len(loops) else loops[-1]
