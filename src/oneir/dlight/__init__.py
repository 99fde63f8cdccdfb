"""Default schedules: rules that make fast loops of plain ones, without a search.

with Target("llvm"):
    mod = dlight.ApplyDefaultSchedule(dlight.cpu.Contraction(), dlight.cpu.Spatial())(mod)
"""

from . import analysis, base, cpu, gpu
from .analysis import BlockInfo, IterInfo, normalize_prim_func
from .base import ApplyDefaultSchedule, ScheduleRule, try_inline, try_inline_contiguous_spatial
