"""Default schedules for processors."""

from .base import CPUScheduleRule
from .contraction import Contraction
from .spatial import Spatial
