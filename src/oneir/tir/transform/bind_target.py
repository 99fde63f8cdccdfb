"""BindTarget: every function says what it is compiled for."""

from __future__ import annotations

from typing import Any

from ..function import PrimFunc
from .pass_base import PrimFuncPass, function_pass


def BindTarget(target: Any) -> PrimFuncPass:
    """Sets the attribute `target` of the functions that have none. With None, nothing is set."""

    def bind(func: PrimFunc) -> PrimFunc:
        return func if target is None or "target" in func.attrs else func.with_attr("target", target)

    return function_pass(bind, "tir.BindTarget")
