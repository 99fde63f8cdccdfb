"""Tensor intrinsics of hardware; importing a module registers those that it defines."""

from . import cuda as cuda
