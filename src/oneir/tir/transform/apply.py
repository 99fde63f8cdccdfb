"""Apply: any function from functions to functions as a pass."""

from __future__ import annotations

from collections.abc import Callable

from ..function import PrimFunc
from .pass_base import PrimFuncPass, function_pass


def Apply(ftransform: Callable[[PrimFunc], PrimFunc | None]) -> PrimFuncPass:
    """Replaces each function by `ftransform(func)`; None leaves it out."""
    return function_pass(ftransform, "tir.Apply")
