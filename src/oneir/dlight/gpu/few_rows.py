"""Products of a matrix with rows whose number is not known: one kernel for a few of them, and one for many.

    if m <= 8:
        each block of threads multiplies its part of the matrix with four rows at a time    LowBatchGEMV
    else:
        tiles of many rows                                                                  the rule that follows

Tiles compute all of their rows, also those past the end: of 64 rows, two are a small part. A few rows take as long as
reading the matrix, which this reads once for four of them, in the form in which it lies in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import IntImm, PrimExpr, const
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import Block, BlockRealize, IfThenElse
from ...tir.stmt_functor import renew_stmt
from ..analysis import normalize_prim_func
from ..base.schedule_rule import ScheduleRule
from .base import GPUScheduleRule
from .low_batch_gemv import LowBatchGEMV, is_gemv
from .matmul import Matmul


@dataclass(frozen=True)
class FewRows(GPUScheduleRule):
    """Chooses between two kernels when the number of rows is known, on the host.

    many: the rules for many rows, of which the first that is for the function is taken; a target may have better ones
        than `Matmul`.
    most: how many rows are few.
    bucket: how many of them a block of threads takes at once.
    """

    many: tuple[ScheduleRule, ...] = (Matmul(),)
    most: int = 8
    bucket: int = 4

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        rows = _rows(func)
        few = None if rows is None else LowBatchGEMV(self.bucket).apply(func, target)
        if rows is None or few is None:
            return None
        found = (rule.apply(func, target) for rule in self.many)
        many = next((schedule for schedule in found if isinstance(schedule, Schedule)), None)
        if many is None:
            return None
        first, second = _root(few), renew_stmt(_root(many))
        chosen = IfThenElse(rows <= const(self.most, rows.dtype), first.body, second.body)
        buffers = [*first.alloc_buffers, *second.alloc_buffers]
        root = Block([], [], [], "root", chosen, alloc_buffers=buffers)
        return Schedule(func.replace(body=BlockRealize([], True, root)))


def _root(schedule: Schedule) -> Block:
    body = schedule.mod["main"].body
    assert isinstance(body, BlockRealize)
    return body.block


def _rows(func: PrimFunc) -> PrimExpr | None:
    """How many rows a product of a matrix has, which is no number; None for another function."""
    shapes = [buffer.shape for buffer in func.buffer_map.values()]
    if all(isinstance(extent, IntImm) for shape in shapes for extent in shape):
        return None
    sch = Schedule(func)
    sums = [info for info in normalize_prim_func(sch) or () if info.is_reduction()]
    if len(sums) != 1 or is_gemv(sch, sums[0]) is None:
        return None
    (rows,) = (axis.dom for axis in sums[0].iters if not isinstance(axis.dom, int))
    return rows
