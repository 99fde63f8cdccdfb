"""Detection of linear expressions, bounds of variables, and common subexpressions.

detect_linear_equation(x * 4 + y + n, [x, y])  # [4, 1, n]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Var
from ..ir.visitor import deep_recursion, post_order_visit
from .analyzer import Analyzer
from .constraint import conjuncts, non_positive, reads_memory


def uses_any(expr: PrimExpr, variables: Iterable[Var]) -> bool:
    """Whether one of the variables is in an expression."""
    wanted, found = set(variables), False

    def look(node: Any) -> None:
        nonlocal found
        found = found or node in wanted

    post_order_visit(expr, look)
    return found


class Linear:
    """The sum of `coefficients[v] * v` and `base`; neither coefficients nor base have the variables."""

    def __init__(self, coefficients: dict[Var, PrimExpr], base: PrimExpr):
        self.coefficients, self.base = coefficients, base

    @staticmethod
    def of(expr: PrimExpr, variables: set[Var]) -> Linear | None:
        """The linear form of an expression, if it has one."""
        with deep_recursion:
            return _linear(expr, variables)

    def plus(self, other: Linear, sign: int) -> Linear:
        """The sum, or the difference."""
        combine = ops.add if sign > 0 else ops.subtract
        coefficients = dict(self.coefficients)
        for var, coefficient in other.coefficients.items():
            coefficients[var] = combine(coefficients.get(var, e.const(0, coefficient.dtype)), coefficient)
        return Linear(coefficients, combine(self.base, other.base))

    def times(self, factor: PrimExpr) -> Linear:
        """The product with an expression that has none of the variables."""
        scaled = {var: ops.multiply(coefficient, factor) for var, coefficient in self.coefficients.items()}
        return Linear(scaled, ops.multiply(self.base, factor))


def _linear(expr: Any, variables: set[Var]) -> Linear | None:
    if isinstance(expr, Var) and expr in variables:
        return Linear({expr: e.const(1, expr.dtype)}, e.const(0, expr.dtype))
    if isinstance(expr, (e.Add, e.Sub, e.Mul)):
        a, b = _linear(expr.a, variables), _linear(expr.b, variables)
        if a is None or b is None:
            return None
        if not isinstance(expr, e.Mul):
            return a.plus(b, 1 if isinstance(expr, e.Add) else -1)
        if a.coefficients and b.coefficients:
            return None
        return a.times(b.base) if a.coefficients else b.times(a.base)
    return None if uses_any(expr, variables) else Linear({}, expr)


def detect_linear_equation(expr: Any, var_list: Any) -> list[PrimExpr]:
    """The coefficients of the variables and, last, the rest; empty when the expression is not linear in them."""
    expr, variables = e.as_expr(expr), list(var_list)
    form = Linear.of(expr, set(variables))
    if form is None:
        return []
    zero = e.const(0, expr.dtype)
    analyzer = Analyzer()
    return [analyzer.simplify(part) for part in [*(form.coefficients.get(v, zero) for v in variables), form.base]]


def detect_clip_bound(expr: Any, var_list: Any) -> list[PrimExpr | None]:
    """The least and the greatest value of each variable that a conjunction of bounds allows, None where it has none.

    Each bound must be on one of the variables, with the coefficient 1 or -1. Empty when one is not.
    """
    variables = list(var_list)
    lows: dict[Var, PrimExpr] = {}
    highs: dict[Var, PrimExpr] = {}
    analyzer = Analyzer()
    for condition in conjuncts(e.as_expr(expr)):
        comparisons = list(non_positive(condition))
        if not comparisons:
            return []
        for a, b, offset in comparisons:
            form = Linear.of(ops.add(ops.subtract(a, b), offset), set(variables))
            if form is None or len(form.coefficients) != 1:
                return []
            ((var, coefficient),) = form.coefficients.items()
            sign = analyzer.simplify(coefficient)
            if not isinstance(sign, e.IntImm) or abs(sign.value) != 1:
                return []
            if sign.value > 0:
                bound = ops.negative(form.base)
                highs[var] = ops.minimum(highs[var], bound) if var in highs else bound
            else:
                lows[var] = ops.maximum(lows[var], form.base) if var in lows else form.base
    bounds = [limits.get(var) for var in variables for limits in (lows, highs)]
    return [None if bound is None else analyzer.simplify(bound) for bound in bounds]


def detect_common_subexpr(expr: Any, threshold: int) -> dict[PrimExpr, int]:
    """The compound parts of an expression that occur at least `threshold` times, with how often they do.

    Loads are left out, since memory may change between them.
    """
    numbers: dict[int, Any] = {}
    counts: dict[Any, list[Any]] = {}
    """The first of equal parts, and how many there are, by what they are made of."""

    def count(node: Any) -> None:
        if node.is_shared:
            numbers[id(node)] = id(node)
            return
        parts: list[Any] = [type(node)]
        parts += [getattr(node, field.name) for field in node.compared_fields if field.kind == "attr"]

        def add_child(child: Any) -> None:
            parts.append(numbers[id(child)])

        node.visit_children(add_child)
        found = counts.setdefault(tuple(parts), [node, 0])
        found[1] += 1
        numbers[id(node)] = id(found)

    post_order_visit(e.as_expr(expr), count)
    return {
        node: times
        for node, times in counts.values()
        if times >= threshold and isinstance(node, PrimExpr) and not _is_leaf(node) and not reads_memory(node)
    }


def _is_leaf(expr: PrimExpr) -> bool:
    return isinstance(expr, (Var, e.ConstExpr))
