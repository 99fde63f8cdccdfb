"""Normalize: brings functions into normal form.

    y = R.exp(R.add(x, x))
->
    gv = R.add(x, x)
    y = R.exp(gv)
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..block_builder import BlockBuilder
from ..expr import Function
from .pass_base import FunctionPass


class Normalize(FunctionPass):
    """Gives each nested value a variable of its own, and works out the struct info of everything."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        normal = BlockBuilder(mod).normalize(func)
        assert isinstance(normal, Function)
        return normal
