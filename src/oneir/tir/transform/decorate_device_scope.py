"""DecorateDeviceScope: marks the whole body of a function as code for the device."""

from __future__ import annotations

from ...ir.expr import const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..function import PrimFunc
from ..stmt import AttrStmt
from .pass_base import PrimFuncPass


class DecorateDeviceScope(PrimFuncPass):
    """Wraps each function's body in the attribute `device_scope`, unless it is in one."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if isinstance(func.body, AttrStmt) and func.body.attr_key == "device_scope":
            return func
        return func.with_body(AttrStmt(const(0), "device_scope", const(0), func.body))
