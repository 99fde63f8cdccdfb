"""Blocks by themselves: elementwise code, layout changes, reductions.

Outer loops run on threads; what is only passed on is inlined. LLVM makes vectors of the inner loops.
"""

from __future__ import annotations

from ...ir.expr import Call
from ...ir.op import Op
from ...ir.visitor import Visitor
from ...runtime.error import ScheduleError
from ...target.target import Target
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from .base import PARALLEL_WORK, CPUScheduleRule, Leaf, leaves, parallelize


class Spatial(CPUScheduleRule):
    """Any sequence of loop nests: elementwise blocks inlined, the outer loops of each parallel."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        if leaves(sch) is None:
            return None
        inline_elementwise(sch)
        for leaf in leaves(sch) or ():
            schedule_leaf(sch, leaf)
        return sch


class _Chooses(Visitor):
    """Whether an expression chooses between values, as padding does: it is better computed once."""

    found = False

    def visit_Call(self, call: Call) -> None:
        if isinstance(call.op, Op) and call.op.name == "tir.if_then_else":
            self.found = True
        self.generic_visit(call)


def inline_elementwise(sch: Schedule) -> None:
    """Inlines the blocks whose values are cheap to compute where they are used, or used in one place."""
    changed = True
    while changed:
        changed = False
        for leaf in leaves(sch) or ():
            if leaf.reduces or not _worth_inlining(sch, leaf):
                continue
            try:
                sch.compute_inline(leaf.handle)
            except ScheduleError:
                continue
            changed = True
            break


def _worth_inlining(sch: Schedule, leaf: Leaf) -> bool:
    chooses = _Chooses()
    chooses(leaf.block.body)
    if chooses.found:
        return False
    consumers = sch.get_consumers(leaf.handle)
    # A value that a reduction reads would be computed again for every element of its result.
    return bool(consumers) and all(not _reduces(sch, consumer) for consumer in consumers)


def _reduces(sch: Schedule, handle: object) -> bool:
    return any(iv.iter_type == IterVar.CommReduce for iv in sch.get(handle).iter_vars)  # pyright: ignore


def schedule_leaf(sch: Schedule, leaf: Leaf) -> None:
    """Runs the outer spatial loops of a block on threads, all but the innermost loop."""
    count = 0
    for iv, index in zip(leaf.block.iter_vars, range(len(leaf.loops)), strict=True):
        if iv.iter_type != IterVar.DataPar or index == len(leaf.loops) - 1:
            break
        count += 1
    if not count and leaf.loops and leaf.block.iter_vars[0].iter_type == IterVar.DataPar and len(leaf.loops) == 1:
        extent = leaf.extents[0]
        if extent is None or extent < PARALLEL_WORK:
            return
        outer, _ = sch.split(leaf.loops[0], [None, 1 << 13])
        sch.parallel(outer)
        return
    parallelize(sch, leaf.loops[:count], leaf.work)
