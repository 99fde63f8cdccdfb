"""VerifyMemory: raises for functions that access the memory of a device outside of any kernel."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...runtime.error import WellFormedError
from ..analysis.verify_memory import verify_memory
from ..function import PrimFunc
from .pass_base import PrimFuncPass


class VerifyMemory(PrimFuncPass):
    """Raises `WellFormedError` where memory of a device is accessed outside of its threads."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if not verify_memory(func):
            name = func.attrs.get("global_symbol", "the function")
            raise WellFormedError(
                f"`{name}` accesses the memory of a device outside of its threads: "
                "bind the loops around each access to threads, for instance with a default schedule of dlight"
            )
        return func
