"""Apply: any function from PrimFunc to PrimFunc as a pass."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..function import PrimFunc
from .pass_base import PrimFuncPass


class Apply(PrimFuncPass):
    """Replaces each function by `ftransform(func)`; None removes it from the module."""

    ftransform: Callable[[PrimFunc], PrimFunc | None]

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return self.ftransform(func)
