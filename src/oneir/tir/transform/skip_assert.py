"""SkipAssert: removes assertions, and keeps the statements that they guard."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..stmt import AssertStmt, Stmt
from .pass_base import PrimFuncPass


class SkipAssert(PrimFuncPass):
    """Removes assertions."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Skip()(func.body))


class _Skip(Mapper):
    def visit_AssertStmt(self, node: AssertStmt) -> Stmt:
        return self.visit(node.body)
