"""Default schedules for GPUs."""

from .base import GPUScheduleRule
from .fallback import Fallback
from .general_reduction import GeneralReduction
from .reduction import Reduction
from .transpose import Transpose
