"""Replacing conditions by a constant, and the branches that this decides by the side taken."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import And, Call, IntImm, Select, const
from ...ir.visitor import Mapper
from ..stmt import Evaluate, IfThenElse, SeqStmt, flat_seq, is_no_op
from .analyzed import IF_THEN_ELSE

LIKELY = ops.as_op("tir.likely")


class Decide(Mapper):
    """Replaces the conditions whose ids are in `conditions` by `value`; branches that become constant are taken."""

    def __init__(self, conditions: set[int], value: bool):
        super().__init__()
        self.conditions = conditions
        self.value = const(value, "bool")

    def visit(self, node: Any) -> Any:
        return self.value if id(node) in self.conditions else super().visit(node)

    def visit_And(self, node: And) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        return node if a is node.a and b is node.b else ops.logical_and(a, b)

    def visit_Call(self, node: Call) -> Any:
        new = self.generic_visit(node)
        if node.op is LIKELY and isinstance(new.args[0], IntImm):
            return new.args[0]
        if node.op is IF_THEN_ELSE and isinstance(new.args[0], IntImm):
            return new.args[1] if new.args[0].value else new.args[2]
        return new

    def visit_Select(self, node: Select) -> Any:
        new = self.generic_visit(node)
        if isinstance(new.condition, IntImm):
            return new.true_value if new.condition.value else new.false_value
        return new

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        new = self.generic_visit(node)
        if isinstance(new.condition, IntImm):
            case = new.then_case if new.condition.value else new.else_case
            return Evaluate(0) if case is None else case
        return new

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        new = self.generic_visit(node)
        return new if new is node or not any(is_no_op(s) for s in new.seq) else flat_seq(new.seq)
