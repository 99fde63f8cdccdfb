"""Default schedules: rules that make fast loops of plain ones, without a search.

with Target("llvm"):
    mod = dlight.ApplyDefaultSchedule(dlight.cpu.Contraction(), dlight.cpu.Spatial())(mod)
"""

from . import base, cpu
from .base import ApplyDefaultSchedule, ScheduleRule
