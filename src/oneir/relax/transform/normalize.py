"""Normalize: brings functions into normal form.

    y = R.exp(R.add(x, x))
->
    gv = R.add(x, x)
    y = R.exp(gv)
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import Pass
from ..block_builder import BlockBuilder
from ..expr import Function
from .pass_base import graph_pass


def Normalize() -> Pass:
    """A pass after which no value is nested in another one, and the struct info of everything is known."""
    return graph_pass(_normalize, "Normalize")


def _normalize(func: Function, mod: IRModule) -> Function:
    normal = BlockBuilder(mod).normalize(func)
    assert isinstance(normal, Function)
    return normal
