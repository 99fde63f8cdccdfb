"""DecorateDeviceScope: marks the whole body of a function as code for the device."""

from __future__ import annotations

from ...ir.expr import const
from ..function import PrimFunc
from ..stmt import AttrStmt
from .pass_base import PrimFuncPass, function_pass


def decorate_device_scope(func: PrimFunc) -> PrimFunc:
    """The function with its body in the attribute `device_scope`."""
    if isinstance(func.body, AttrStmt) and func.body.attr_key == "device_scope":
        return func
    return func.with_body(AttrStmt(const(0), "device_scope", const(0), func.body))


def DecorateDeviceScope() -> PrimFuncPass:
    """Marks each function's body as a device's."""
    return function_pass(decorate_device_scope, "tir.DecorateDeviceScope")
