"""Tensor intrinsics of hardware; importing a module registers those that it defines."""

from . import arm_cpu as arm_cpu
from . import cuda as cuda
from . import dot_product_common as dot_product_common
from . import hexagon as hexagon
from . import rocm as rocm
from . import x86 as x86
