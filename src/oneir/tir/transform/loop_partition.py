"""LoopPartition: splits a loop where its conditions are known to hold, so that its main part needs none.

    for i in range(n):                        for i in range((n - 2) // 4 ...):
        for j in range(4):                        for j in range(4):
            if T.likely(i * 4 + j < n - 2):  ->       A[i * 4 + j] = 0.0
                A[i * 4 + j] = 0.0            for i in ...: the rest, with the condition

Conditions marked as likely count; in a loop with the pragma `loop_partition_hint`, all conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...arith.constraint import conjuncts
from ...arith.int_set import IntervalSet, is_infinite
from ...ir import operators as ops
from ...ir.expr import EQ, GE, GT, LE, LT, Call, IntImm, Max, Min, PrimExpr, Range, Select, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Mapper, Visitor, post_order_visit
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import AttrStmt, Evaluate, For, ForKind, IfThenElse, Stmt, flat_seq
from ..stmt_functor import renew_stmt, substitute
from .analyzed import IF_THEN_ELSE, AnalyzedMapper, analyzer_for, reads
from .decide import LIKELY, Decide
from .pass_base import PrimFuncPass, config_option

HINT = "pragma_loop_partition_hint"


class LoopPartition(PrimFuncPass):
    """Splits loops by likely conditions; options are those of `LoopPartitionConfig`, under "tir.LoopPartition".

    Marks of likely conditions and hints are gone afterwards.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        config = config_option(ctx, "tir.LoopPartition", LoopPartitionConfig)
        return func.with_body(_RemoveMarks()(_Partition(config, analyzer_for(func))(func.body)))


@dataclass(frozen=True)
class LoopPartitionConfig:
    """Which loops to split, and what becomes of the parts.

    partition_const_loop: also loops of constant extent.
    no_unroll_loop_with_extent_one: keep parts of one iteration as loops.
    unroll_loop_with_partition_hint_no_interval: mark a loop with a hint as unrolled where no part could be split off.
    """

    partition_const_loop: bool = False
    no_unroll_loop_with_extent_one: bool = False
    unroll_loop_with_partition_hint_no_interval: bool = False


register_config_option("tir.LoopPartition", LoopPartitionConfig)


class _Conditions(Visitor):
    """The comparisons in a loop's body that may decide where to split, and the ranges of the loops in it."""

    def __init__(self, var: Var, every: bool):
        super().__init__()
        self.var, self.every = var, every
        self.found: list[Any] = []
        self.ranges: dict[Var, Range] = {}

    def visit_For(self, node: For) -> None:
        self.ranges[node.loop_var] = Range.from_min_extent(node.min, node.extent)
        self.generic_visit(node)

    def note(self, condition: PrimExpr) -> None:
        for part in conjuncts(condition):
            kinds = (LT, LE, GT, GE, EQ) if self.every else (LT, LE, GT, GE)
            if isinstance(part, kinds) and part.a.dtype.is_index and not reads(part) and self.mentions(part):
                self.found.append(part)

    def mentions(self, node: PrimExpr) -> bool:
        outer = self

        class Find(Visitor):
            found = False

            def visit_Var(self, var: Var) -> None:
                self.found = self.found or var is outer.var

        find = Find()
        find.visit(node)
        return find.found

    def visit_Call(self, node: Call) -> None:
        if node.op is LIKELY or (self.every and node.op is IF_THEN_ELSE):
            self.note(node.args[0])
        self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        if self.every:
            self.note(node.condition)
        self.generic_visit(node)

    def visit_Select(self, node: Select) -> None:
        if self.every:
            self.note(node.condition)
        self.generic_visit(node)


def _chooses(bound: PrimExpr) -> bool:
    """Whether a bound is the smaller or the larger of others, as those of images that may be smaller than a window."""
    found = False

    def look(node: Any) -> None:
        nonlocal found
        found = found or isinstance(node, (Max, Min))

    post_order_visit(bound, look)
    return found


class _Partition(AnalyzedMapper):
    def __init__(self, config: LoopPartitionConfig, analyzer: Analyzer):
        super().__init__(analyzer)
        self.config = config
        self.hinted: set[Var] = set()

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key != HINT:
            return super().visit_AttrStmt(node)
        if isinstance(node.value, IntImm) and node.value.value:
            self.hinted.add(node.node.var if isinstance(node.node, IterVar) else node.node)
        return self.visit(node.body)

    def visit_For(self, node: For) -> Any:
        hint = node.loop_var in self.hinted or bool(node.annotations.get(HINT))
        if HINT in node.annotations:
            node = node.replace(annotations={k: v for k, v in node.annotations.items() if k != HINT})
        constant = isinstance(node.min, IntImm) and isinstance(node.extent, IntImm)
        serial = node.kind in (ForKind.SERIAL, ForKind.UNROLLED)
        if hint or (serial and (self.config.partition_const_loop or not constant)):
            parts = self.split(node, hint)
            if parts is not None:
                return parts
            if hint and constant and self.config.unroll_loop_with_partition_hint_no_interval:
                node = node.replace(kind=ForKind.UNROLLED)
        return super().visit_For(node)

    def split(self, loop: For, hint: bool) -> Stmt | None:
        """The loop in up to three parts, the middle one without conditions; None when there is no middle.

        The other parts of a loop with a hint are divided again, unless one of their bounds is the smaller or the larger
        of others: what is concatenated of more than two tensors has one loop for each.
        """
        conditions = _Conditions(loop.loop_var, hint)
        conditions.visit(loop.body)
        comparisons = [condition for condition in conditions.found if not isinstance(condition, EQ)]
        # Where an equality holds at one end, comparisons may hold at the other; what they decide is worth more.
        choices = [conditions.found, comparisons] if len(comparisons) < len(conditions.found) else [conditions.found]
        parts = (self.split_where(loop, found, conditions.ranges, hint) for found in choices if found)
        return next((part for part in parts if part is not None), None)

    def split_where(self, loop: For, conditions: list[Any], ranges: dict[Var, Range], hint: bool) -> Stmt | None:
        """The parts of a loop by where all of some conditions hold."""
        analyzer = self.analyzer
        low, high = loop.min, ops.add(loop.min, loop.extent)
        begin = low
        end = high
        decided: set[int] = set()
        for condition in conditions:
            if isinstance(condition, EQ):
                limit = self.end_of(condition, loop.loop_var, low, high)
            else:
                limit = self.limit(condition, loop.loop_var, ranges)
            if limit is None:
                continue
            is_lower, value = limit
            if hint and analyzer.can_prove(value >= high if is_lower else value <= low):
                continue  # it never holds
            if is_lower:
                begin = ops.maximum(begin, value)
            else:
                end = ops.minimum(end, value)
            decided.add(id(condition))
        begin = analyzer.simplify(begin if begin is low else ops.minimum(begin, high))
        end = analyzer.simplify(ops.maximum(end, begin))
        if not decided or analyzer.can_prove(end <= begin):
            return None
        middle = self.part(loop, begin, end, self.visit_middle(loop, begin, end, Decide(decided, True)(loop.body)))
        if analyzer.can_prove(begin <= low) and analyzer.can_prove(end >= high):
            return middle
        before, after = (self.other(loop, *bounds, hint) for bounds in ((low, begin), (end, high)))
        return flat_seq([before, middle, after])

    def other(self, loop: For, begin: PrimExpr, end: PrimExpr, hint: bool) -> Stmt:
        """A part in which not all conditions hold."""
        part = self.part(loop, begin, end, renew_stmt(loop.body))
        if not hint or not isinstance(part, For):
            return part
        again = None if _chooses(part.min) or _chooses(part.extent) else self.split(part, hint)
        return part if again is None else again

    def visit_middle(self, loop: For, begin: PrimExpr, end: PrimExpr, body: Stmt) -> Stmt:
        self.bind(loop.loop_var, Range(begin, end))
        return self.under(end > begin, body)

    def part(self, loop: For, begin: PrimExpr, end: PrimExpr, body: Stmt) -> Stmt:
        extent = self.analyzer.simplify(ops.subtract(end, begin))
        if isinstance(extent, IntImm):
            if extent.value <= 0:
                return Evaluate(0)
            if extent.value == 1 and not self.config.no_unroll_loop_with_extent_one:
                return substitute(body, {loop.loop_var: begin})
        var = loop.loop_var.copy_with_name(loop.loop_var.name)
        return loop.replace(loop_var=var, min=begin, extent=extent, body=substitute(body, {loop.loop_var: var}))

    def end_of(self, condition: EQ, var: Var, low: PrimExpr, high: PrimExpr) -> tuple[bool, PrimExpr] | None:
        """The first or the last value of a loop, from or up to which it alone has the value that is asked for."""
        analyzer = self.analyzer
        for value, is_last in ((low, False), (ops.subtract(high, 1), True)):
            if analyzer.can_prove(substitute(condition, {var: value})):
                slope = ops.subtract(substitute(condition.a, {var: var + 1}), condition.a)
                same = ops.subtract(substitute(condition.b, {var: var + 1}), condition.b)
                if analyzer.can_prove(ops.not_equal(slope, same)):
                    return (True, value) if is_last else (False, ops.add(value, 1))
        return None

    def limit(self, condition: Any, var: Var, ranges: dict[Var, Range]) -> tuple[bool, PrimExpr] | None:
        """Where a comparison holds whatever inner loops do: from (True, value) on, or up to (False, value)."""
        a, b = (condition.b, condition.a) if isinstance(condition, (GT, GE)) else (condition.a, condition.b)
        strict = isinstance(condition, (LT, GT))
        analyzer = self.analyzer
        excess = ops.add(ops.subtract(a, b), int(strict))  # the condition is excess <= 0
        slope = analyzer.simplify(ops.subtract(substitute(excess, {var: var + 1}), excess))
        if not isinstance(slope, IntImm) or slope.value == 0:
            return None
        rest = analyzer.simplify(substitute(excess, {var: const(0, var.dtype)}))
        most = _largest(analyzer, rest, ranges, var)
        if most is None:
            return None
        if slope.value > 0:
            return False, ops.add(ops.floordiv(ops.negative(most), slope), 1)
        return True, ops.floordiv(ops.add(most, -slope.value - 1), -slope.value)


def _largest(analyzer: Analyzer, expr: PrimExpr, ranges: dict[Var, Range], split: Var) -> PrimExpr | None:
    """The largest value of an expression while variables run over ranges, in terms of what is defined outside."""
    result = analyzer.int_set(expr, ranges)
    if not isinstance(result, IntervalSet) or is_infinite(result.max_value):
        return None
    largest = result.max_value
    used: set[Var] = set()

    class Collect(Visitor):
        def visit_Var(self, var: Var) -> None:
            used.add(var)

    Collect().visit(largest)
    return None if used & {split, *ranges} else largest


class _RemoveMarks(Mapper):
    def visit_Call(self, node: Call) -> Any:
        new = self.generic_visit(node)
        return new.args[0] if node.op is LIKELY else new
