"""Default schedules for processors."""

from .base import CPUScheduleRule
from .contraction import Contraction
from .reduction import Reduction
from .spatial import Spatial
