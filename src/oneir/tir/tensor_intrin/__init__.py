"""Tensor intrinsics of hardware; importing a module registers those that it defines."""

from . import cuda as cuda
from . import x86 as x86
