"""Mutators with an `Analyzer` that knows, at each node, the ranges of loops and the conditions of branches.

class Rewrite(AnalyzedMapper):
    def visit_FloorDiv(self, node):
        if self.analyzer.can_prove(node.a >= 0):
            ...
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

from ...arith import Analyzer, ConstIntBound
from ...arith.constraint import conjuncts
from ...ir import operators as ops
from ...ir.container import map_array
from ...ir.expr import BinaryOpExpr, Call, CallEffectKind, Cast, IntImm, Let, PrimExpr, Range, Select, Var
from ...ir.visitor import Mapper, post_order_visit
from .. import op
from ..expr import BufferLoad, IterVar, Reduce
from ..function import PrimFunc
from ..stmt import AssertStmt, AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, Stmt, While

IF_THEN_ELSE = ops.as_op("tir.if_then_else")


def analyzer_for(func: PrimFunc) -> Analyzer:
    """An analyzer that knows that the sizes of the function's tensors are not negative."""
    analyzer = Analyzer()
    for buffer in func.buffer_map.values():
        for size in buffer.shape:
            if isinstance(size, IntImm) or not size.dtype.is_index:
                continue
            if isinstance(size, Var):
                analyzer.update(size, ConstIntBound(0, ConstIntBound.POS_INF), override=True)
            else:
                analyzer.constraint_scope(size >= 0).__enter__()  # for as long as there is the analyzer
    return analyzer


def is_index_arithmetic(expr: Any) -> bool:
    """Whether an expression only adds, multiplies, divides and compares index variables and constants."""
    if isinstance(expr, (Var, IntImm)):
        return expr.dtype.is_index
    if isinstance(expr, Cast):
        return expr.dtype.is_index and is_index_arithmetic(expr.value)
    return isinstance(expr, BinaryOpExpr) and is_index_arithmetic(expr.a) and is_index_arithmetic(expr.b)


def reads(node: PrimExpr, data: Var | None = None) -> bool:
    """Whether an expression loads from a buffer, or from the memory `data`, or has a call that may."""
    found = False

    def check(n: Any) -> None:
        nonlocal found
        if isinstance(n, BufferLoad):
            found = found or data is None or n.buffer.data is data
        elif isinstance(n, Call):
            found = found or op.effect_of(n) not in (CallEffectKind.Pure, CallEffectKind.ExprAnnotation)

    post_order_visit(node, check)
    return found


def has_effect(node: PrimExpr) -> bool:
    """Whether evaluating an expression has a side effect."""
    found = False

    def check(n: Any) -> None:
        nonlocal found
        if isinstance(n, Call):
            found = found or op.effect_of(n) not in _HARMLESS

    post_order_visit(node, check)
    return found


def uses(node: Any, variables: set[Var]) -> bool:
    """Whether any of the variables occurs in an expression or statement."""
    found = False

    def check(n: Any) -> None:
        nonlocal found
        found = found or (n.is_variable and n in variables)

    post_order_visit(node, check)
    return found


def in_bounds(node: Any, analyzer: Analyzer) -> bool:
    """Whether every access below a node is known to lie within its buffer."""
    safe = True

    def check(n: Any) -> None:
        nonlocal safe
        if safe and isinstance(n, (BufferLoad, BufferStore)):
            for index, size in zip(n.indices, n.buffer.shape, strict=True):
                inside = index.dtype.is_index and analyzer.can_prove(ops.logical_and(index >= 0, index < size))
                safe = safe and inside

    post_order_visit(node, check)
    return safe


_HARMLESS = (CallEffectKind.ExprAnnotation, CallEffectKind.Pure, CallEffectKind.ReadState)


class AnalyzedMapper(Mapper):
    """A mutator whose `analyzer` knows, at each node, the ranges of variables and the conditions around it.

    A branch is visited with its condition, after mapping, as a constraint.
    """

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        super().__init__()
        self.analyzer = Analyzer() if analyzer is None else analyzer

    def under(self, condition: Any, node: Any) -> Any:
        """`node` mapped where `condition` holds.

        A statement's condition that reads memory is no constraint: the memory may change before it is read again.
        """
        if isinstance(condition, IntImm) or not condition.dtype.is_scalar:
            return self.visit(node)
        known = [part for part in conjuncts(condition) if not (isinstance(node, Stmt) and reads(part))]
        if not known:
            return self.visit(node)
        with self.holding(functools.reduce(ops.logical_and, known)):
            return self.visit(node)

    def holding(self, condition: PrimExpr) -> AbstractContextManager[None]:
        """A context in which the analyzer knows that a condition holds."""
        return self.analyzer.constraint_scope(condition)

    def bind(self, var: Var, value: Any) -> None:
        """Makes a variable's range or value known; a variable that was bound before, in another branch, is bound anew.

        The analyzer replaces a variable by the value that it is bound to, so for costly values only the bounds are
        bound.
        """
        if not var.dtype.is_index:
            return
        if isinstance(value, Range) or is_index_arithmetic(value):
            self.analyzer.bind(var, value, allow_override=True)
        else:
            self.analyzer.update(var, self.analyzer.const_int_bound(value), override=True)

    def visit_For(self, node: For) -> Any:
        low, extent = self.visit(node.min), self.visit(node.extent)
        self.bind(node.loop_var, Range.from_min_extent(low, extent))
        return node.replace(min=low, extent=extent, body=self.under(extent > 0, node.body))

    def visit_LetStmt(self, node: LetStmt) -> Any:
        value = self.visit(node.value)
        self.bind(node.var, value)
        return node.replace(value=value, body=self.visit(node.body))

    def visit_Let(self, node: Let) -> Any:
        value = self.visit(node.value)
        self.bind(node.var, value)
        return node.replace(value=value, body=self.visit(node.body))

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        condition = self.visit(node.condition)
        then_case = self.under(condition, node.then_case)
        else_case = None if node.else_case is None else self.under(ops.logical_not(condition), node.else_case)
        return node.replace(condition=condition, then_case=then_case, else_case=else_case)

    def visit_AssertStmt(self, node: AssertStmt) -> Any:
        condition = self.visit(node.condition)
        return node.replace(
            condition=condition, message=self.visit(node.message), body=self.under(condition, node.body)
        )

    def visit_While(self, node: While) -> Any:
        condition = self.visit(node.condition)
        return node.replace(condition=condition, body=self.under(condition, node.body))

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key in ("thread_extent", "virtual_thread") and isinstance(node.node, IterVar):
            value = self.visit(node.value)
            self.bind(node.node.var, Range.from_min_extent(ops.cast(node.node.var.dtype, 0), value))
            return node.replace(value=value, body=self.visit(node.body))
        return self.generic_visit(node)

    def visit_Block(self, node: Block) -> Any:
        for iter_var in node.iter_vars:
            self.bind(iter_var.var, iter_var.dom)
        return self.generic_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        predicate = self.visit(node.predicate)
        values = map_array(node.iter_values, self.visit)
        return node.replace(iter_values=values, predicate=predicate, block=self.under(predicate, node.block))

    def visit_Reduce(self, node: Reduce) -> Any:
        for axis in node.axis:
            self.bind(axis.var, axis.dom)
        return self.generic_visit(node)

    def visit_Select(self, node: Select) -> Any:
        condition = self.visit(node.condition)
        true_value = self.under(condition, node.true_value)
        false_value = self.under(ops.logical_not(condition), node.false_value)
        return node.replace(condition=condition, true_value=true_value, false_value=false_value)

    def visit_Call(self, node: Call) -> Any:
        if node.op is IF_THEN_ELSE:
            condition = self.visit(node.args[0])
            then = self.under(condition, node.args[1])
            otherwise = self.under(ops.logical_not(condition), node.args[2])
            if condition is node.args[0] and then is node.args[1] and otherwise is node.args[2]:
                return node
            return Call(node.dtype, node.op, (condition, then, otherwise), span=node.span)
        return self.generic_visit(node)
