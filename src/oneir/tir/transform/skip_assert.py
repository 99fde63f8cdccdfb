"""SkipAssert: assertions are taken out, and what they guard stays."""

from __future__ import annotations

from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..stmt import AssertStmt, Stmt
from .pass_base import PrimFuncPass, function_pass


class _Skip(Mapper):
    def visit_AssertStmt(self, node: AssertStmt) -> Stmt:
        return self.visit(node.body)


def skip_assert(func: PrimFunc) -> PrimFunc:
    """The function without assertions."""
    return func.with_body(_Skip()(func.body))


def SkipAssert() -> PrimFuncPass:
    """Removes assertions."""
    return function_pass(skip_assert, "tir.SkipAssert")
