"""Default schedules for processors."""

from .attention import Attention
from .base import CPUScheduleRule
from .choose_layouts import ChooseLayouts
from .contraction import Contraction
from .depthwise import Depthwise
from .dot_products import DotProducts
from .gemv import GEMV
from .reduction import Reduction
from .spatial import Spatial
