"""GEMV: a matrix by a vector, as published: rows in parallel tiles, a vector of rows at a time.

The default rules of processors (`DotProducts`, `Contraction`) are faster; this one is for who asks for it by name.
"""

from __future__ import annotations

from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ..analysis import is_gemv, normalize, normalize_prim_func
from ..base.common_schedules import try_inline_contiguous_spatial
from ..base.sizes import get_extent
from .base import CPUScheduleRule

_WIDTH = 8
_UNROLLED = 256


class GEMV(CPUScheduleRule):
    """`[B, S] = [B, S, R] * [B, R]` or `[S] = [S, R] * [R]`, the matrix contiguous along the sum, and perhaps one
    block that is computed from it.
    """

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if infos is None or len(infos) not in (1, 2) or (len(infos) == 2 and not infos[1].is_injective()):
            return None
        info = infos[0]
        if len(info.iters) not in (2, 3) or is_gemv(sch, info) is None or not normalize(sch, info):
            return None
        batch, rows, along, group = sch.get_loops(info.block_rv)
        b, s, r, c = (get_extent(sch, loop) for loop in (batch, rows, along, group))
        known = all(isinstance(extent, int) for extent in (b, s, r, c))
        row_tile, sum_tile = 64, 64
        if known:
            row_tile, sum_tile = (128, 64) if b * s > r * c else (64, 128)
        outer, inner = sch.split(rows, [None, row_tile])
        along_outer, _ = sch.split(along, [None, sum_tile])
        sch.split(group, [None, min(_WIDTH, c) if isinstance(c, int) else _WIDTH])
        sch.vectorize(inner)
        sch.parallel(outer)
        sch.annotate(along_outer, "pragma_auto_unroll_max_step", _UNROLLED)
        sch.annotate(along_outer, "pragma_unroll_explicit", 1)
        return sch
