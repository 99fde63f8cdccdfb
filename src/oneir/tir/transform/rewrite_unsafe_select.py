"""RewriteUnsafeSelect: a selection that must not evaluate the value it does not take becomes a branch.

T.Select(i > 0, A[i - 1], 0.0)  ->  T.if_then_else(i > 0, A[i - 1], 0.0)
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import Call, Select
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from .analyzed import IF_THEN_ELSE, reads
from .pass_base import PrimFuncPass


class RewriteUnsafeSelect(PrimFuncPass):
    """Turns `Select` into `if_then_else` where a value reads memory that may lie out of bounds when not taken."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Rewrite()(func.body))


class _Rewrite(Mapper):
    def visit_Select(self, node: Select) -> Any:
        new = self.generic_visit(node)
        unsafe = reads(node.true_value) or reads(node.false_value)
        if unsafe and node.condition.dtype.is_scalar:
            return Call(new.dtype, IF_THEN_ELSE, (new.condition, new.true_value, new.false_value), span=new.span)
        return new
