"""What rules are, and the pass that applies them."""

from .schedule_rule import ScheduleRule
from .transform import ApplyDefaultSchedule
