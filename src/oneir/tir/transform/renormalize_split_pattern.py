"""RenormalizeSplitPattern: rewrites the indices of nested splits as digits of the loop variable."""

from __future__ import annotations

from ...ir import operators as ops
from ...ir.expr import FloorDiv, FloorMod, IntImm, PrimExpr
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from .pass_base import PrimFuncPass


class RenormalizeSplitPattern(PrimFuncPass):
    """Turns quotients of remainders into remainders of quotients: `x % 12 // 4` becomes `x // 4 % 3`."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Renormalize()(func.body))


class _Renormalize(Mapper):
    def visit_FloorDiv(self, node: FloorDiv) -> PrimExpr:
        node = self.generic_visit(node)
        inner, divisor = node.a, node.b
        if isinstance(inner, FloorMod) and isinstance(inner.b, IntImm) and isinstance(divisor, IntImm):
            modulus, step = inner.b.value, divisor.value
            if step > 0 and modulus > 0 and modulus % step == 0:
                # (x % (c * d)) // d -> (x // d) % c
                return ops.floormod(ops.floordiv(inner.a, divisor), modulus // step)
        return node
