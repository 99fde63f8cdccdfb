"""Several results of rows so short that registers hold them: what is computed of a row is computed together.

top[g] = max(top[g], abs(x[g, k]))           for g in T.parallel(groups):
scale[g] = top[g] / 127                          the largest of a row, its scale,
q[g, k] = int8(round(x[g, k] / scale[g]))  ->    its values as vectors,
total[g] += q[g, k]                              their sum
"""

from __future__ import annotations

from ...ir.expr import Var
from ...target.target import Target
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import BufferStore
from ..analysis.leaves import Leaf, leaves, leaves_of
from .base import CPUScheduleRule, parallelize

LONGEST = 64
"""The most elements of a row."""


class ShortRows(CPUScheduleRule):
    """A reduction of short rows, and all that is computed from it, a row at a time."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        looked_at = leaves_of(func) or []
        if len(looked_at) < 2 or len(_results(func, looked_at)) < 2 or not _are_of_rows(looked_at):
            return None
        sch = Schedule(func)
        found = leaves(sch) or []
        results = _results(func, found)
        first, *others = found
        outer = first.loops[:-1]
        if first not in results:
            sch.set_scope(first.handle, 0, "local")
        for leaf in others:
            sch.reverse_compute_at(leaf.handle, outer[-1])
            if not leaf.reduces and len(leaf.loops) > len(outer):
                sch.vectorize(sch.get_loops(leaf.handle)[-1])
        # A row is too little for a thread, so threads share the axes around the innermost one.
        parallelize(sch, outer[:-1], first.work)
        for leaf in found:
            if leaf.reduces:
                sch.decompose_reduction(leaf.handle, sch.get_loops(leaf.handle)[-1])
        return sch


def _results(func: PrimFunc, found: list[Leaf]) -> list[Leaf]:
    """The blocks that write what the function returns."""
    return [leaf for leaf in found if leaf.block.writes[0].buffer in func.buffer_map.values()]


def _are_of_rows(found: list[Leaf]) -> bool:
    """Whether all blocks have the axes of the first one's rows, in order, and at most one more, which is short."""
    rows = found[0].extents[:-1]
    for leaf in found:
        kinds = [iv.iter_type for iv in leaf.block.iter_vars]
        store = leaf.block.body
        if kinds[: len(rows)] != [IterVar.DataPar] * len(rows) or leaf.extents[: len(rows)] != rows:
            return False
        if len(kinds) > len(rows) + 1 or not isinstance(store, BufferStore):
            return False
        if len(kinds) > len(rows) and not 1 <= (leaf.extents[-1] or 0) <= LONGEST:
            return False
        axes = [iv.var for iv in leaf.block.iter_vars if iv.iter_type == IterVar.DataPar]
        if not all(isinstance(index, Var) for index in store.indices) or list(store.indices) != axes:
            return False
    return bool(rows) and found[0].reduces
