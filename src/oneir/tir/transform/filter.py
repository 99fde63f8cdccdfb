"""Filter: keeps the functions of a module that a condition holds for."""

from __future__ import annotations

from collections.abc import Callable

from ..function import PrimFunc
from .pass_base import PrimFuncPass, function_pass


def Filter(fcond: Callable[[PrimFunc], bool]) -> PrimFuncPass:
    """Leaves out the TensorIR functions for which `fcond(func)` is false."""
    return function_pass(lambda func: func if fcond(func) else None, "tir.Filter")
