"""Systems of linear equations and inequalities over the integers.

solve_linear_equations([x + y == 20, x - y == 10]).src_to_dst  # {x: 15, y: 5}
solve_linear_inequalities([x >= y, x < 8, y >= 0], [x, y]).ranges  # x: [y, 8), y: [0, 8)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.container import EMPTY, Array
from ..ir.expr import PrimExpr, Range, Var, as_expr
from ..ir.node import Node, as_array, attr, child
from ..ir.visitor import Mapper, post_order_visit
from .analyzer import Analyzer
from .constraint import conjuncts, non_positive
from .detect import Linear


def _exprs(values: Any) -> Array[PrimExpr]:
    return Array(as_expr(value) for value in values or ())


class IntGroupBounds(Node):
    """Bounds of a variable v: lower <= coef * v, coef * v == equal, coef * v <= upper, each a list."""

    coef: PrimExpr = child(converter=as_expr)
    lower: Array[PrimExpr] = child(default=(), converter=_exprs)
    equal: Array[PrimExpr] = child(default=(), converter=_exprs)
    upper: Array[PrimExpr] = child(default=(), converter=_exprs)

    @staticmethod
    def from_range(rng: Range) -> IntGroupBounds:
        """The bounds of a range."""
        if isinstance(rng.extent, e.IntImm) and rng.extent.value == 1:
            return IntGroupBounds(1, (), [rng.min], ())
        return IntGroupBounds(1, [rng.min], (), [ops.subtract(ops.add(rng.min, rng.extent), 1)])

    def find_best_range(self) -> Range | None:
        """The range between all bounds; None without a lower or an upper one."""
        low, high = self.limits(Analyzer())
        return None if low is None or high is None else _closed(low, high, Analyzer())

    def limits(self, analyzer: Analyzer) -> tuple[PrimExpr | None, PrimExpr | None]:
        """The greatest lower and the least upper bound of v, None where there is none."""
        low = high = None
        for bound in (*self.lower, *self.equal):
            bound = ops.floordiv(ops.add(bound, ops.subtract(self.coef, 1)), self.coef)
            low = analyzer.simplify(bound if low is None else ops.maximum(low, bound))
        for bound in (*self.upper, *self.equal):
            bound = ops.floordiv(bound, self.coef)
            high = analyzer.simplify(bound if high is None else ops.minimum(high, bound))
        return low, high


class IntConstraints(Node):
    """Integer variables, the ranges of some of them, and conditions on them."""

    variables: Array[Var] = attr(default=(), converter=as_array)
    ranges: Mapping[Var, Range] = child(default=EMPTY)
    relations: Array[PrimExpr] = child(default=(), converter=_exprs)


class IntConstraintsTransform(Node):
    """Constraints rewritten over other variables.

    `src_to_dst` gives each variable of `src` over those of `dst`, `dst_to_src` the other way round.
    """

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: Mapping[Var, PrimExpr] = child(default=EMPTY)
    dst_to_src: Mapping[Var, PrimExpr] = child(default=EMPTY)


class _Substitute(Mapper):
    def __init__(self, values: Mapping[Var, PrimExpr]):
        super().__init__()
        self.values = values

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.values.get(var, var)


def _closed(low: PrimExpr, high: PrimExpr, analyzer: Analyzer) -> Range:
    return Range(low, extent=analyzer.simplify(ops.add(ops.subtract(high, low), 1)))


def _problem(equations: Any, variables: Any, ranges: Any) -> IntConstraints:
    """The arguments as `IntConstraints`; without variables, with all variables of the conditions."""
    if isinstance(equations, IntConstraints):
        return equations
    conditions = [equations] if isinstance(equations, e.ExprOp) else list(equations)
    relations = [part for condition in conditions for part in conjuncts(ops.as_bool(condition))]
    if variables is None:
        found: dict[Var, None] = {}
        for relation in relations:
            post_order_visit(relation, lambda node: found.setdefault(node) if isinstance(node, Var) else None)
        variables = found
    return IntConstraints(list(variables), dict(ranges or {}), relations)


def _integer_form(expr: PrimExpr, variables: set[Var], analyzer: Analyzer) -> tuple[dict[Var, int], PrimExpr] | None:
    """An expression as integer multiples of variables and a rest without them."""
    form = Linear.of(expr, variables)
    if form is None:
        return None
    coefficients: dict[Var, int] = {}
    for var, coefficient in form.coefficients.items():
        value = analyzer.simplify(coefficient)
        if not isinstance(value, e.IntImm):
            return None
        if value.value:
            coefficients[var] = value.value
    return coefficients, analyzer.simplify(form.base)


def _combination(factors: Sequence[int], values: Sequence[PrimExpr], zero: PrimExpr) -> PrimExpr:
    """The sum of products."""
    result = zero
    for factor, value in zip(factors, values, strict=True):
        if factor:
            result = ops.add(result, ops.multiply(value, factor))
    return result


# -- equations --


class _Equations:
    """Writes variables x as V y, so that each equation fixes one y; W is the inverse of V, both of integers."""

    def __init__(self, variables: Sequence[Var]):
        count = len(variables)
        self.variables = variables
        self.analyzer = Analyzer()
        self.v = [[int(i == k) for k in range(count)] for i in range(count)]
        self.w = [row[:] for row in self.v]
        self.fixed: dict[int, PrimExpr] = {}
        self.relations: list[PrimExpr] = []

    def add(self, coefficients: Mapping[Var, int], rest: PrimExpr) -> bool:
        """Adds the equation sum(coefficients * x) + rest == 0; returns whether there still is a solution."""
        of_x = [coefficients.get(var, 0) for var in self.variables]
        of_y: list[int] = [sum(a * row[k] for a, row in zip(of_x, self.v, strict=True)) for k in range(len(of_x))]
        target = ops.negative(rest)
        for k, value in self.fixed.items():
            target = ops.subtract(target, ops.multiply(value, of_y[k]))
        target = self.analyzer.simplify(target)
        free: list[int] = [k for k in range(len(of_y)) if k not in self.fixed and of_y[k]]
        while len(free) > 1:
            pivot = min(free, key=lambda k: abs(of_y[k]))
            for k in free:
                if k != pivot:
                    self._subtract(k, pivot, of_y[k] // of_y[pivot])
                    of_y[k] %= of_y[pivot]
            free = [k for k in free if of_y[k]]
        if not free:
            return self._require(ops.equal(target, 0))
        factor = of_y[free[0]]
        if factor < 0:
            factor, target = -factor, self.analyzer.simplify(ops.negative(target))
        self.fixed[free[0]] = self.analyzer.simplify(ops.floordiv(target, factor))
        return self._require(ops.equal(ops.floormod(target, factor), 0))

    def _subtract(self, k: int, pivot: int, times: int) -> None:
        """Replaces y[pivot] by y[pivot] + times * y[k], which takes the pivot's coefficient away from k's."""
        for row in self.v:
            row[k] -= times * row[pivot]
        self.w[pivot] = [a + times * b for a, b in zip(self.w[pivot], self.w[k], strict=True)]

    def _require(self, condition: PrimExpr) -> bool:
        condition = self.analyzer.simplify(condition)
        if isinstance(condition, e.IntImm):
            return condition.value != 0
        self.relations.append(condition)
        return True


def solve_linear_equations(equations: Any, variables: Any = None, ranges: Any = None) -> IntConstraintsTransform:
    """The solutions of equations, over as few new variables as there are degrees of freedom.

    `equations`: a list of `a == b`, or `IntConstraints`. What is no linear equation with integer coefficients stays a
    relation, as do conditions on parameters and bounds that the ranges of the new variables do not imply. Without a
    solution the only relation is False.
    """
    problem = _problem(equations, variables, ranges)
    system = _Equations(problem.variables)
    names = set(problem.variables)
    others: list[PrimExpr] = []
    for relation in problem.relations:
        form = None
        if isinstance(relation, e.EQ) and relation.a.dtype.is_int:
            form = _integer_form(ops.subtract(relation.a, relation.b), names, system.analyzer)
        if form is None:
            others.append(relation)
        elif not system.add(*form):
            return IntConstraintsTransform(problem, IntConstraints((), {}, [e.IntImm("bool", 0)]))
    return _transformed(problem, system, others)


def _transformed(problem: IntConstraints, system: _Equations, others: Sequence[PrimExpr]) -> IntConstraintsTransform:
    variables, simplify = problem.variables, system.analyzer.simplify
    zeros = [e.const(0, var.dtype) for var in variables]
    values: list[Any] = [system.fixed.get(k) for k in range(len(variables))]
    created: dict[Var, PrimExpr] = {}
    new_ranges: dict[Var, Range] = {}
    for k, value in enumerate(values):
        if value is None:
            values[k] = var = Var(f"n{len(created)}", variables[k].dtype)
            created[var] = simplify(_combination(system.w[k], variables, zeros[k]))
            limits = _row_range(system.w[k], problem, system.analyzer)
            if limits is not None:
                new_ranges[var] = limits
    solution = {
        var: simplify(_combination(row, values, zero))
        for var, row, zero in zip(variables, system.v, zeros, strict=True)
    }
    proof = Analyzer()
    for var, limits in new_ranges.items():
        proof.bind(var, limits)
    relations = system.relations + [_Substitute(solution)(relation) for relation in others]
    for var, domain in problem.ranges.items():
        value = solution.get(var, var)
        for bound in (ops.greater_equal(value, domain.min), ops.less(value, ops.add(domain.min, domain.extent))):
            if not proof.can_prove(bound):
                relations.append(simplify(bound))
    dst = IntConstraints(list(created), new_ranges, relations)
    return IntConstraintsTransform(problem, dst, solution, created)


def _row_range(row: Sequence[int], problem: IntConstraints, analyzer: Analyzer) -> Range | None:
    """The values of a sum of multiples of variables over their ranges."""
    low: Any = 0
    high: Any = 0
    for factor, var in zip(row, problem.variables, strict=True):
        if not factor:
            continue
        domain = problem.ranges.get(var)
        if domain is None:
            return None
        last = ops.subtract(ops.add(domain.min, domain.extent), 1)
        ends = (domain.min, last) if factor > 0 else (last, domain.min)
        low, high = (ops.add(ops.multiply(end, factor), side) for end, side in zip(ends, (low, high), strict=True))
    return _closed(analyzer.simplify(low), analyzer.simplify(high), analyzer)


# -- inequalities --

Inequality = tuple[dict[Var, int], PrimExpr]
"""sum(coefficients * variables) + rest <= 0"""


class _Inequalities:
    """Inequalities, each in its tightest form."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.known: dict[Any, Inequality] = {}
        self.constants: dict[Any, int] = {}

    def add(self, coefficients: dict[Var, int], rest: PrimExpr) -> None:
        """Adds an inequality, unless one at least as strong is known."""
        coefficients = {var: factor for var, factor in coefficients.items() if factor}
        if not isinstance(rest, e.IntImm):
            self.known[frozenset(coefficients.items()), self.analyzer.canonical.key(rest)] = (coefficients, rest)
            return
        divisor = math.gcd(*coefficients.values()) or 1
        coefficients = {var: factor // divisor for var, factor in coefficients.items()}
        bound = -(-rest.value // divisor)
        # Of those that differ in the constant only, the greatest is the strongest.
        key = frozenset(coefficients.items())
        if key not in self.known or bound > self.constants[key]:
            self.constants[key] = bound
            self.known[key] = (coefficients, e.IntImm(rest.dtype, bound))

    def eliminate(self, var: Var) -> IntGroupBounds:
        """Fourier-Motzkin elimination: replaces the inequalities with a variable by those that follow without it."""
        having = [(c, rest) for c, rest in self.known.values() if var in c]
        self.known = {key: value for key, value in self.known.items() if var not in value[0]}
        uppers = [(c, rest) for c, rest in having if c[var] > 0]
        lowers = [(c, rest) for c, rest in having if c[var] < 0]
        for upper in uppers:
            for lower in lowers:
                self._combine(var, upper, lower)
        common = math.lcm(*(abs(c[var]) for c, _ in having))
        bounds: tuple[list[PrimExpr], list[PrimExpr]] = ([], [])
        for coefficients, rest in having:
            factor = coefficients[var]
            others = {v: c for v, c in coefficients.items() if v is not var}
            value = _combination(list(others.values()), list(others), rest)
            scale = common // abs(factor)
            bound = ops.multiply(value if factor < 0 else ops.negative(value), scale)
            bounds[factor > 0].append(self.analyzer.simplify(bound))
        return IntGroupBounds(e.const(common, var.dtype), bounds[0], (), bounds[1])

    def _combine(self, var: Var, upper: Inequality, lower: Inequality) -> None:
        """Adds the sum of multiples of two inequalities in which the variable cancels."""
        step = math.lcm(upper[0][var], lower[0][var])
        total: dict[Var, int] = {}
        rests: list[PrimExpr] = []
        for coefficients, value in (upper, lower):
            times = step // abs(coefficients[var])
            for v, c in coefficients.items():
                total[v] = total.get(v, 0) + c * times
            if isinstance(value, e.IntImm) and abs(value.value * times) >> (value.dtype.bits - 2):
                # It would overflow. Leaving it out is safe, since the two inequalities stay as bounds of the variable.
                return
            rests.append(ops.multiply(value, times))
        self.add(total, self.analyzer.simplify(ops.add(*rests)))


def solve_linear_inequalities(
    equations: Any, variables: Any = None, ranges: Any = None, deskew_range: bool = False
) -> IntConstraints | IntConstraintsTransform:
    """The range of each variable, which may depend on the variables after it.

    The ranges together, with the relations, hold for exactly the solutions; where a later variable has values that no
    solution has, the range of an earlier one is empty. Bounds on one side only, what is not linear with integer
    coefficients and conditions on parameters are relations; without a solution the only relation is False.
    With `deskew_range` the solution is over new variables whose ranges begin at 0.
    """
    problem = _problem(equations, variables, ranges)
    analyzer = Analyzer()
    system = _Inequalities(analyzer)
    names = set(problem.variables)
    relations: list[PrimExpr] = []
    for relation in problem.relations:
        forms = [_integer_form(ops.add(ops.subtract(a, b), c), names, analyzer) for a, b, c in non_positive(relation)]
        if not forms or None in forms:
            relations.append(relation)
        for form in forms:
            if form is not None:
                system.add(*form)
    for var, domain in problem.ranges.items():
        if var in names:
            last = ops.subtract(ops.add(domain.min, domain.extent), 1)
            system.add({var: -1}, analyzer.simplify(ops.cast(var.dtype, domain.min)))
            system.add({var: 1}, analyzer.simplify(ops.cast(var.dtype, ops.negative(last))))
    groups = {var: system.eliminate(var) for var in problem.variables}
    for _, rest in system.known.values():
        relations.append(analyzer.simplify(ops.less_equal(rest, 0)))
    if any(isinstance(relation, e.IntImm) and not relation.value for relation in relations):
        solved = IntConstraints(problem.variables, {}, [e.IntImm("bool", 0)])
    else:
        kept = [relation for relation in relations if not isinstance(relation, e.IntImm)]
        solved = _ranges_of(problem.variables, groups, kept)
    return _deskewed(problem, solved) if deskew_range else solved


def _ranges_of(
    variables: Sequence[Var], groups: Mapping[Var, IntGroupBounds], relations: list[PrimExpr]
) -> IntConstraints:
    """The groups of bounds as ranges, from the last variable on, so that each can use the ranges of later ones."""
    analyzer = Analyzer()
    ranges: dict[Var, Range] = {}
    for var in reversed(variables):
        low, high = groups[var].limits(analyzer)
        if low is not None and high is not None:
            ranges[var] = _closed(low, high, analyzer)
            analyzer.bind(var, ranges[var])
        elif low is not None:
            relations.append(ops.greater_equal(var, low))
        elif high is not None:
            relations.append(ops.less_equal(var, high))
    return IntConstraints(variables, {var: ranges[var] for var in variables if var in ranges}, relations)


def _deskewed(problem: IntConstraints, solved: IntConstraints) -> IntConstraintsTransform:
    """The solution over new variables, whose ranges begin at 0."""
    forward: dict[Var, PrimExpr] = {}
    backward: dict[Var, PrimExpr] = {}
    ranges: dict[Var, Range] = {}
    simplify = Analyzer().simplify
    for var in reversed(solved.variables):
        new = var.copy_with_name(f"{var.name}_shifted")
        domain = solved.ranges.get(var)
        if domain is None:
            forward[var], backward[new] = new, var
            continue
        renamed = _Substitute(dict(forward))
        ranges[new] = Range(e.const(0, var.dtype), extent=simplify(renamed(domain.extent)))
        forward[var] = simplify(ops.add(new, renamed(domain.min)))
        backward[new] = simplify(ops.subtract(var, domain.min))
    relations = [_Substitute(forward)(relation) for relation in solved.relations]
    return IntConstraintsTransform(problem, IntConstraints(list(backward)[::-1], ranges, relations), forward, backward)
