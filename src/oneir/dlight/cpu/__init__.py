"""Default schedules for processors."""

from .attention import Attention
from .base import CPUScheduleRule
from .choose_layouts import ChooseLayouts
from .contraction import Contraction
from .depthwise import Depthwise
from .dot_products import DotProducts
from .float_panels import FloatPanels
from .gemv import GEMV
from .integer_dots import IntegerDots
from .reduction import Reduction
from .short_rows import ShortRows
from .spatial import Spatial
