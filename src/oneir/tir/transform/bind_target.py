"""BindTarget: sets the target of every function."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..function import PrimFunc
from .pass_base import PrimFuncPass


class BindTarget(PrimFuncPass):
    """Sets the attribute `target` of the functions that have none; of host functions, to the host of the target.

    With None, nothing is set.
    """

    target: Any

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target = self.target
        if target is None or "target" in func.attrs:
            return func
        if func.attrs.get("tir.is_host_func") and target.host is not None:
            target = target.host
        return func.with_attr("target", target)
