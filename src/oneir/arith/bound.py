"""Solves a condition for one variable.

deduce_bound(i, i * 4 + j < n, {}, {j: IntervalSet(0, 3)})  # i in [-inf, (n - 4) // 4]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Var
from ..ir.visitor import deep_recursion
from .analyzer import Analyzer
from .constraint import conjuncts, non_positive
from .detect import Linear, uses_any
from .interval_set import EVERYTHING, NOTHING, IntervalSet, as_int_set, is_infinite, neg_inf, pos_inf


class _NoBound(Exception):
    """The condition cannot be solved."""


class _Solver:
    """Turns `expression >= bound` or `expression <= bound` into a bound of the variable, step by step."""

    def __init__(self, target: Var, hints: Mapping[Var, IntervalSet], relaxed: Mapping[Var, IntervalSet]):
        self.target, self.relaxed = target, relaxed
        self.known = {**hints, **relaxed}
        self.analyzer = Analyzer()
        self.informed = Analyzer()
        """It knows the sets of the variables, for proofs: bounds do not look different for each set."""
        for var, values in self.known.items():
            for end, compare in ((values.min_value, e.GE), (values.max_value, e.LE)):
                if not is_infinite(end):
                    self.informed.constraint_scope(compare(var, end)).__enter__()

    def sign(self, expr: PrimExpr) -> int:
        """1 or -1 where the sign of an expression is known."""
        values = self.analyzer.int_set(expr, self.known)
        assert isinstance(values, IntervalSet)
        for end, compare, sign in ((values.min_value, ops.greater, 1), (values.max_value, ops.less, -1)):
            if not is_infinite(end) and self.analyzer.can_prove(compare(end, 0)):
                return sign
        raise _NoBound

    def at_most(self, a: PrimExpr, b: PrimExpr) -> tuple[bool, PrimExpr]:
        """The bound of the variable that follows from a <= b: whether it is a lower one, and its value."""
        difference = Linear.of(ops.subtract(a, b), {self.target})
        if difference is not None and self.target in difference.coefficients:
            coefficient = self.analyzer.simplify(difference.coefficients[self.target])
            return self.solve(ops.multiply(self.target, coefficient), False, ops.negative(difference.base))
        if uses_any(a, [self.target]) and uses_any(b, [self.target]):
            raise _NoBound
        return self.solve(a, False, b) if uses_any(a, [self.target]) else self.solve(b, True, a)

    def solve(self, expr: Any, below: bool, bound: PrimExpr) -> tuple[bool, PrimExpr]:
        """`bound <= expr` if `below`, else `expr <= bound`, as a bound of the variable."""
        while expr is not self.target:
            if not isinstance(expr, (e.Add, e.Sub, e.Mul, e.FloorDiv)):
                raise _NoBound
            inner, other, left = expr.a, expr.b, uses_any(expr.a, [self.target])
            if not left:
                inner, other = other, inner
            if uses_any(other, [self.target]):
                raise _NoBound
            if isinstance(expr, e.Add):
                bound = ops.subtract(bound, other)
            elif isinstance(expr, e.Sub) and left:
                bound = ops.add(bound, other)
            elif isinstance(expr, e.Sub):
                bound, below = ops.subtract(other, bound), not below
            elif isinstance(expr, e.Mul):
                if self.sign(other) < 0:
                    other, bound, below = ops.negative(other), ops.negative(bound), not below
                if not uses_any(other, self.relaxed):
                    # Of an interval, rather than of all of its values, which a quotient has no known ends of.
                    bound = self.limit(below, bound)
                bound = self.quotient(bound, other, below)
            elif left and self.sign(other) > 0:
                bound = ops.multiply(bound, other)
                bound = bound if below else ops.add(bound, ops.subtract(other, 1))
            elif left:
                # Of a quotient by a negative number, the greater the variable, the smaller it is.
                bound, below = ops.multiply(bound, other), not below
                bound = ops.add(bound, ops.add(other, 1)) if below else bound
            else:
                raise _NoBound
            expr = inner
        return below, bound

    def quotient(self, a: PrimExpr, b: PrimExpr, up: bool) -> PrimExpr:
        """a / b, rounded up or down so that the interval of the variable shrinks."""
        rest, down = self.informed.simplify(ops.floormod(a, b)), ops.floordiv(a, b)
        if isinstance(rest, e.IntImm) and rest.value == 0:
            return self.informed.simplify(down)
        if not up:
            return down
        known = self.informed.can_prove(ops.not_equal(rest, 0))
        return ops.add(down, 1) if known else ops.floordiv(ops.add(a, ops.subtract(b, 1)), b)

    def limit(self, below: bool, bound: PrimExpr) -> PrimExpr:
        """The bound that holds for all values of the relaxed variables."""
        values = self.analyzer.int_set(bound, self.relaxed)
        assert isinstance(values, IntervalSet)
        limit = values.max_value if below else values.min_value
        if is_infinite(limit):
            raise _NoBound
        return self.analyzer.simplify(limit)

    def always(self, condition: PrimExpr) -> bool:
        """Whether a condition without the variable holds for all values of the others."""
        values = self.analyzer.int_set(condition, self.known)
        return isinstance(values, IntervalSet) and self.analyzer.can_prove(ops.equal(values.min_value, 1))


def deduce_bound(var: Var, cond: Any, hint_map: Mapping[Var, Any], relax_map: Mapping[Var, Any]) -> IntervalSet:
    """Values of a variable for which a conjunction of comparisons holds, whatever the variables of `relax_map` are.

    `hint_map` has the sets of other variables, whose values the bounds may depend on. Where a comparison cannot
    be solved, the result is empty.
    """
    hints, relaxed = (
        {v: _interval(s) for v, s in domains.items() if v is not var} for domains in (hint_map, relax_map)
    )
    solver = _Solver(var, hints, relaxed)
    low, high = neg_inf(), pos_inf()
    simplify = solver.analyzer.simplify
    try:
        with deep_recursion:
            for condition in conjuncts(ops.as_bool(cond)):
                if not uses_any(condition, [var]):
                    if not solver.always(condition):
                        return NOTHING
                    continue
                comparisons = list(non_positive(condition))
                if not comparisons:
                    return NOTHING
                for a, b, offset in comparisons:
                    below, bound = solver.at_most(ops.add(a, offset), b)
                    bound = solver.limit(below, bound)
                    if below:
                        low = bound if is_infinite(low) else simplify(ops.maximum(low, bound))
                    else:
                        high = bound if is_infinite(high) else simplify(ops.minimum(high, bound))
    except _NoBound:
        return NOTHING
    if is_infinite(low) or is_infinite(high):
        return EVERYTHING if is_infinite(low) and is_infinite(high) else IntervalSet(low, high)
    return NOTHING if solver.informed.can_prove(low > high) else IntervalSet(low, high)


def _interval(values: Any) -> IntervalSet:
    found = as_int_set(values)
    return found if isinstance(found, IntervalSet) else EVERYTHING
