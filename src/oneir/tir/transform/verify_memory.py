"""VerifyMemory: refuses functions for a device that touch its memory outside of any kernel."""

from __future__ import annotations

from ...runtime.error import WellFormedError
from ..analysis.verify_memory import verify_memory
from ..function import PrimFunc
from .pass_base import PrimFuncPass, function_pass


def check_memory(func: PrimFunc) -> PrimFunc:
    """The function itself, unless its memory cannot be reached from where it is accessed."""
    if not verify_memory(func):
        name = func.attrs.get("global_symbol", "the function")
        raise WellFormedError(
            f"`{name}` accesses the memory of a device outside of its threads: "
            "bind the loops around each access to threads, for instance with a default schedule of dlight"
        )
    return func


def VerifyMemory() -> PrimFuncPass:
    """Checks that memory of a device is only accessed by its threads."""
    return function_pass(check_memory, "tir.VerifyMemory")
