"""MultiplyReciprocals: floats divided by a constant become products with its reciprocal.

mean[i] = total[i] / T.float32(20.0)    ->    mean[i] = total[i] * T.float32(0.05)

A processor multiplies several times as fast as it divides. Legalized loops divide, as published ones do.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Div, FloatImm, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from .pass_base import PrimFuncPass


class MultiplyReciprocals(PrimFuncPass):
    """Replaces divisions of floats by a constant where its reciprocal is a normal number of every dtype of floats."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Quotients()(func.body))


# Between this and its reciprocal lie normal numbers of every dtype of floats.
_SMALLEST = 2.0**-14


class _Quotients(Mapper):
    def visit_Div(self, node: Div) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if isinstance(b, FloatImm) and b.value and _SMALLEST < abs(1 / b.value) < 1 / _SMALLEST:
            return ops.multiply(a, const(1 / b.value, b.dtype))
        return node if a is node.a and b is node.b else Div(a, b, span=node.span)
