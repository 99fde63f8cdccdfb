"""What rules are, the pass that applies them, and the steps that they share."""

from .common_schedules import try_inline, try_inline_contiguous_spatial
from .schedule_rule import ScheduleRule
from .sizes import auto_vectorize, get_bytes, get_extent, max_threads_per_block, suggest_threads_per_block
from .transform import ApplyDefaultSchedule
