"""Filter: keeps the functions of a module that a condition holds for."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..function import PrimFunc
from .pass_base import PrimFuncPass


class Filter(PrimFuncPass):
    """Removes the TensorIR functions for which `fcond(func)` is false."""

    fcond: Callable[[PrimFunc], bool]

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return func if self.fcond(func) else None
