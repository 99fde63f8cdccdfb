"""RewriteUnsafeSelect: a selection that must not evaluate the value it does not take becomes a branch.

T.Select(i > 0, A[i - 1], 0.0)  ->  T.if_then_else(i > 0, A[i - 1], 0.0)
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import Call, CallEffectKind, Select
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, post_order_visit
from .. import op
from ..expr import BufferLoad
from ..function import PrimFunc
from .analyzed import IF_THEN_ELSE, AnalyzedMapper, analyzer_for, in_bounds, reads
from .pass_base import PrimFuncPass


class RewriteUnsafeSelect(PrimFuncPass):
    """Turns `Select` into `if_then_else` where a value reads memory that may lie out of bounds when not taken.

    Any read counts as such. With `keep_masks`, selections by a condition that is read from memory stay where all reads
    are known to be within their buffers: LLVM makes vectors of them, and branches that follow data are often predicted
    wrongly.
    """

    keep_masks: bool = False

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        keeps = self.keep_masks and _has_masks(func)
        return func.with_body((_RewriteOutOfBounds(analyzer_for(func)) if keeps else _Rewrite())(func.body))


class _Rewrite(Mapper):
    def visit_Select(self, node: Select) -> Any:
        return _branch(self.generic_visit(node))


class _RewriteOutOfBounds(AnalyzedMapper):
    def visit_Select(self, node: Select) -> Any:
        new = super().visit_Select(node)
        return new if _is_mask(new) and in_bounds(new, self.analyzer) else _branch(new)


def _branch(node: Select) -> Any:
    unsafe = reads(node.true_value) or reads(node.false_value)
    if unsafe and node.condition.dtype.is_scalar:
        return Call(node.dtype, IF_THEN_ELSE, (node.condition, node.true_value, node.false_value), span=node.span)
    return node


def _has_masks(func: PrimFunc) -> bool:
    found = False

    def look(node: Any) -> None:
        nonlocal found
        found = found or (isinstance(node, Select) and _is_mask(node))

    post_order_visit(func.body, look)
    return found


def _is_mask(node: Any) -> bool:
    """Whether the condition of a selection is read from memory, and its parts do nothing but read buffers."""
    reads_only = True

    def look(n: Any) -> None:
        nonlocal reads_only
        if isinstance(n, Call):
            reads_only = reads_only and op.effect_of(n) in (CallEffectKind.Pure, CallEffectKind.ExprAnnotation)

    loads: list[BufferLoad] = []
    post_order_visit(node.condition, lambda n: loads.append(n) if isinstance(n, BufferLoad) else None)
    if loads:
        post_order_visit(node, look)
    return bool(loads) and reads_only
