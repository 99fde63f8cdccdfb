"""The analyzer: what is known of variables and conditions, and the queries that use it.

analyzer = Analyzer()
analyzer.bind(i, Range(0, 8))
analyzer.simplify((i + n * 8) // 8)  # n
with analyzer.constraint_scope(n > 3):
    analyzer.can_prove(n * 8 >= 32)  # True
"""

from __future__ import annotations

import math
from enum import IntEnum, IntFlag
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.dtype import DataType
from ..ir.expr import PrimExpr, Range, Var
from ..ir.visitor import deep_recursion
from ..runtime.error import InvalidValue, TypeMismatch
from .canonical_simplify import CanonicalSimplifier, Sum
from .const_int_bound import (
    BoundAnalyzer,
    Bounds,
    ConstIntBound,
    clip,
    dtype_bounds,
    intersect_bounds,
    is_index_like,
)
from .constraint import conjuncts, non_positive, reads_memory, residue
from .interval_set import IntervalSet, IntSet, IntSetEvaluator, as_int_set, set_of
from .modular_set import Congruence, ModularAnalyzer, ModularSet
from .pattern import Overflow, same
from .prove import Prover
from .rewrite_simplify import RewriteSimplifier, RewriteStats


class ProofStrength(IntEnum):
    """The effort of a proof. Symbolic bounds of variables are always used, so both do the same."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(IntFlag):
    """Simplifications that cost time and are therefore opt-in."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    """Combine several known comparisons: a < b and b < c prove a < c."""
    ConvertBooleanToAndOfOrs = 2
    """Write conditions as a conjunction of disjunctions."""
    ApplyConstraintsToBooleanBranches = 4
    """Simplify each side of `and` knowing that the other holds, and of `or` knowing that it does not."""
    ComparisonOfProductAndSum = 8
    """Compare (a + b) * c with a * b through bounds of a and b."""


class ConstraintScope:
    """While it is entered, a condition is known to hold."""

    def __init__(self, analyzer: Analyzer, condition: PrimExpr, simplified: bool = False):
        self.analyzer, self.condition, self.simplified = analyzer, condition, simplified

    def __enter__(self) -> None:
        self.saved = self.analyzer.enter(self.condition, self.simplified)

    def __exit__(self, *exception: object) -> None:
        self.analyzer.leave(self.saved)


class Analyzer:
    """Simplifies integer expressions and proves conditions on them."""

    def __init__(self):
        self.bounds = BoundAnalyzer(self)
        self.modular = ModularAnalyzer(self.bounds.visit)
        self.constraints: list[PrimExpr] = []
        """Conditions that hold, simplified."""
        self.sets: dict[Var, IntSet] = {}
        self.prover = Prover(self)
        self.rewriter = RewriteSimplifier(self)
        self.canonical = CanonicalSimplifier(self)
        self.canonical.substitutes = self.rewriter.substitutes
        self.difference = self.prover.difference
        self.extensions = Extension.NoExtensions
        self._changes = 0

    # -- queries --

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """Constant bounds of an expression."""
        with deep_recursion:
            return ConstIntBound(*map(clip, self.bounds(_integer(expr))))

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Whether bounds of a variable have been given."""
        return var in self.bounds.variables

    def modular_set(self, expr: Any) -> ModularSet:
        """What is known of an expression modulo a constant."""
        with deep_recursion:
            return ModularSet(*self.modular(_integer(expr)))

    def simplify(self, expr: Any, steps: int = 2) -> PrimExpr:
        """The simplified expression: canonical form, then `steps` times rewrite rules and canonical form in turn."""
        result = e.as_expr(expr)
        with deep_recursion:
            result = self.canonical.visit(result)
            for step in range(steps):
                if isinstance(result, e.ConstExpr):
                    break
                simplified = (self.rewriter if step % 2 == 0 else self.canonical).visit(result)
                if step % 2 == 0 and step + 1 < steps and same(simplified, result):
                    # What the rules only wrote in another form need not be written back.
                    return result
                result = simplified
        return result

    def rewrite_simplify(self, expr: Any) -> PrimExpr:
        """The expression simplified by the rewrite rules."""
        with deep_recursion:
            return self.rewriter.visit(e.as_expr(expr))

    def canonical_simplify(self, expr: Any) -> PrimExpr:
        """The expression simplified in the canonical form of sums."""
        with deep_recursion:
            return self.canonical.visit(e.as_expr(expr))

    @property
    def rewrite_simplify_stats(self) -> RewriteStats:
        """Statistics of the rewrite rules since the last reset."""
        return self.rewriter.stats

    def reset_rewrite_simplify_stats(self) -> None:
        """Resets these statistics."""
        self.rewriter.stats = RewriteStats()

    def int_set(self, expr: Any, dom_map: Any = None) -> IntSet:
        """The values that an expression takes while variables run over sets.

        `dom_map` gives the sets (`IntSet` or `Range`) by variable; without it, those of bound variables are used.
        """
        domains = self.sets if dom_map is None else {v: as_int_set(s) for v, s in dom_map.items()}
        return IntSetEvaluator(self, domains)(e.as_expr(expr))

    def can_prove(self, expr: Any, strength: ProofStrength = ProofStrength.DEFAULT) -> bool:
        """Whether a condition is known to hold."""
        condition = ops.as_bool(expr)
        with deep_recursion:
            for simplifier in (self.rewriter, self.canonical, self.rewriter):
                if isinstance(condition, e.IntImm):
                    break
                condition = simplifier.visit(condition)
        return isinstance(condition, e.IntImm) and condition.value != 0

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """Whether both are known to be equal."""
        a, b = ops.match_types(lhs, rhs)
        return ops.same_expr(a, b) or self.can_prove(e.EQ(a, b))

    def can_prove_greater_equal(self, expr: Any, lower_bound: int) -> bool:
        """Whether an expression is known to be at least a number."""
        return self.can_prove(ops.greater_equal(expr, lower_bound))

    def can_prove_less(self, expr: Any, upper_bound: int) -> bool:
        """Whether an expression is known to be less than a number."""
        return self.can_prove(ops.less(expr, upper_bound))

    # -- knowledge --

    def bind(self, var: Any, expr: Any, allow_override: bool = False) -> None:
        """Binds a variable to an expression, or to any value of a `Range`.

        Raises an error if it is bound to something else already, unless `allow_override`.
        """
        variable = e.as_expr(var)
        if not isinstance(variable, Var):
            raise TypeMismatch(f"expected a variable to bind, found {variable} of type {type(variable).__name__}")
        with deep_recursion:
            if isinstance(expr, Range):
                extent = self.rewriter.visit(expr.extent)
                if isinstance(extent, e.IntImm) and extent.value == 1:
                    self._bind_value(variable, expr.min, allow_override)
                else:
                    self._bind_range(variable, self.rewriter.visit(expr.min), extent, allow_override)
            else:
                self._bind_value(variable, e.as_expr(expr), allow_override)

    def _bind_value(self, var: Var, value: PrimExpr, allow_override: bool) -> None:
        if value.dtype is not var.dtype:
            value = ops.cast(var.dtype, value)
        value = self.rewriter.visit(value)
        known = self.rewriter.substitutes.get(var)
        if known is not None and not allow_override and not ops.same_expr(known, value):
            raise InvalidValue(
                f"{var.name} is already bound to {known}; pass allow_override=True to bind it to {value}"
            )
        if value is var:
            return
        self._changed()
        self.rewriter.substitutes[var] = value
        self._set_bounds(var, self.bounds(value), True)
        self.modular.variables[var] = self.modular(value)
        self.sets[var] = IntSet.single_point(value)

    def _bind_range(self, var: Var, low: PrimExpr, extent: PrimExpr, allow_override: bool) -> None:
        low, extent = ops.cast(var.dtype, low), ops.cast(var.dtype, extent)
        first, count = self.bounds(low), self.bounds(extent)
        high = clip(first[1] + count[1] - 1)
        self._set_bounds(var, (first[0], max(high, first[0])), allow_override)
        last = self.rewriter.with_constant(e.Add, self.rewriter.binary(e.Add, low, extent), -1)
        self.sets[var] = IntervalSet(low, last)
        self.prover.ranges.pop(var, None)
        if is_index_like(var.dtype) and not (isinstance(low, e.IntImm) and isinstance(extent, e.IntImm)):
            self.prover.ranges[var] = (self.canonical.sum_of(low), self.canonical.sum_of(last))
        self._changed()

    def _set_bounds(self, var: Var, bounds: Bounds, override: bool) -> None:
        known = self.bounds.variables.get(var)
        if known is not None and known != bounds and not override:
            raise InvalidValue(
                f"{var.name} is already bound to [{known[0]}, {known[1]}]; pass allow_override=True to bind it to "
                f"[{bounds[0]}, {bounds[1]}]"
            )
        self._changed()
        self.bounds.variables[var] = bounds

    def update(self, var: Var, info: ConstIntBound | ModularSet | IntSet, override: bool = False) -> None:
        """Gives one fact on a variable: its constant bounds, its residue, or the set of its values."""
        match info:
            case ConstIntBound():
                self._set_bounds(var, (info.min_value, info.max_value), override)
            case ModularSet():
                known = self.modular.variables.get(var)
                new = (info.coeff, info.base)
                if known is not None and known != new and not override:
                    raise InvalidValue(
                        f"{var.name} is already known as {known[0]} * k + {known[1]}; "
                        f"pass override=True to say {new[0]} * k + {new[1]}"
                    )
                self._changed()
                self.modular.variables[var] = new
            case IntSet():
                self._changed()
                self.sets[var] = info
            case _:
                raise TypeMismatch(f"expected a ConstIntBound, ModularSet or IntSet, found {type(info).__name__}")

    def constraint_scope(self, constraint: Any) -> ConstraintScope:
        """A context in which a condition is known to hold: `with analyzer.constraint_scope(n > 3): ...`

        Parts of the condition that read memory are left out, since statements in the scope may write there.
        """
        return ConstraintScope(self, ops.as_bool(constraint))

    def holding(self, condition: PrimExpr) -> ConstraintScope:
        """A context in which a condition, already simplified, is known to hold."""
        return ConstraintScope(self, condition, simplified=True)

    @property
    def enabled_extensions(self) -> Extension:
        """The extensions in use."""
        return self.extensions

    @enabled_extensions.setter
    def enabled_extensions(self, flags: int | Extension) -> None:
        self._changed()
        self.extensions = Extension(flags)
        self.rewriter.extended = self.canonical.extended = bool(flags)
        self.prover.products = Extension.ComparisonOfProductAndSum in self.extensions
        self.prover.transitive = Extension.TransitivelyProveInequalities in self.extensions

    # -- for the simplifiers --

    def bounds_of_dtype(self, dtype: DataType) -> Bounds:
        """The values that a dtype holds."""
        return dtype_bounds(dtype)

    def difference_never_zero(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Whether modular sets prove that a is not b."""
        (p, x), (q, y) = self.modular(a), self.modular(b)
        step = math.gcd(p, q)
        return (x - y) % step != 0 if step else x != y

    def _forget(self) -> None:
        """Clears the caches of results, since what is known changed."""
        self.bounds.memo, self.modular.memo = {}, {}
        self.rewriter.memo, self.canonical.memo, self.canonical.sums = {}, {}, {}
        self.prover.memo = {}

    def _changed(self) -> None:
        self._changes += 1
        self._forget()

    def enter(self, condition: PrimExpr, simplified: bool) -> tuple[Any, ...]:
        if not simplified:
            with deep_recursion:
                condition = self.rewriter.visit(condition)
        saved = (
            self._changes,
            (self.bounds.memo, self.modular.memo),
            (self.rewriter.memo, self.canonical.memo, self.canonical.sums, self.prover.memo),
            (len(self.constraints), len(self.bounds.facts), len(self.prover.facts)),
            self.bounds.variables,
            self.modular.variables,
        )
        self.bounds.variables = dict(self.bounds.variables)
        self.modular.variables = dict(self.modular.variables)
        self._forget()
        self.rewriter.stats.constraints_entered += 1
        with deep_recursion:
            for part in conjuncts(condition):
                if not simplified and reads_memory(part):
                    continue
                self._learn(part)
                self._forget()
        learned = (
            {v: known for v, known in self.bounds.variables.items() if v not in saved[4]},
            {v: known for v, known in self.modular.variables.items() if v not in saved[5]},
        )
        return (*saved, learned)

    def leave(self, saved: tuple[Any, ...]) -> None:
        changes, bound_memos, memos, lengths, bound_variables, modular_variables, learned = saved
        if changes != self._changes:
            # Variables bound inside stay bound outside; what follows from the condition does not stay.
            for variable, bounds in self.bounds.variables.items():
                if learned[0].get(variable) != bounds:
                    bound_variables.setdefault(variable, bounds)
            for variable, congruence in self.modular.variables.items():
                if learned[1].get(variable) != congruence:
                    modular_variables.setdefault(variable, congruence)
        self.bounds.variables, self.modular.variables = bound_variables, modular_variables
        del self.constraints[lengths[0] :], self.bounds.facts[lengths[1] :], self.prover.facts[lengths[2] :]
        if changes == self._changes:
            self.bounds.memo, self.modular.memo = bound_memos
            self.rewriter.memo, self.canonical.memo, self.canonical.sums, self.prover.memo = memos
        else:
            self._forget()

    def _learn(self, condition: PrimExpr) -> None:
        """Adds one condition to what is known."""
        if isinstance(condition, e.IntImm):
            return
        for a, b, offset in non_positive(condition):
            if a.dtype.is_index:
                total = Sum(offset)
                total.add_sum(self.canonical.sum_of(a))
                total.add_sum(self.canonical.sum_of(b), -1)
                self._learn_non_positive(total)
            elif a.dtype.is_int and a.dtype.is_scalar:
                if isinstance(b, e.IntImm):
                    self._limit(a, (dtype_bounds(a.dtype)[0], b.value - offset))
                elif isinstance(a, e.IntImm):
                    self._limit(b, (a.value + offset, dtype_bounds(b.dtype)[1]))
        if isinstance(condition, e.NE) and isinstance(condition.b, e.IntImm) and condition.a.dtype.is_int:
            low, high = self.bounds(condition.a)
            if condition.b.value == low < high:
                self._limit(condition.a, (low + 1, high))
            elif condition.b.value == high > low:
                self._limit(condition.a, (low, high - 1))
        rest = residue(condition)
        if rest is not None:
            variable, divisor, remainder = rest
            self.modular.variables[variable] = _both(self.modular(variable), (divisor, remainder))
        self.constraints.append(condition)

    def _learn_non_positive(self, total: Sum) -> None:
        if len(total.terms) != 1:
            if total.terms:
                self.prover.facts.append(total)
            return
        (term,) = total.terms.values()
        # scale * index <= -base
        if term.scale > 0:
            limits = (ConstIntBound.NEG_INF, -total.base // term.scale)
        else:
            limits = (-(-total.base // -term.scale), ConstIntBound.POS_INF)
        try:
            limited = self.canonical.term_expression(term, 1)
        except Overflow:
            return
        self._limit(limited, limits)

    def _limit(self, expr: PrimExpr, limits: Bounds) -> None:
        if isinstance(expr, Var):
            self.bounds.variables[expr] = intersect_bounds(self.bounds(expr), limits)
        elif not isinstance(expr, e.IntImm):
            self.bounds.facts.append((expr, limits))


def _integer(expr: Any) -> PrimExpr:
    expr = e.as_expr(expr)
    if not (expr.dtype.is_int or expr.dtype.is_bool):
        raise TypeMismatch(f"expected an integer expression, found `{expr}` of dtype {expr.dtype}")
    return expr


def _both(a: Congruence, b: Congruence) -> Congruence:
    """The intersection of two congruences; of contradictory ones, the first."""
    (p, x), (q, y) = a, b
    if p == 0:
        return a
    step = math.gcd(p, q)
    if (x - y) % step:
        return a
    factor = q // step
    # x + p * k = y (mod q)
    k = ((y - x) // step * pow(p // step, -1, factor)) % factor if factor > 1 else 0
    whole = p * factor
    return whole, (x + p * k) % whole


@set_of.provide
def _set_of(expr: PrimExpr) -> IntervalSet:
    result = Analyzer().int_set(expr, {})
    assert isinstance(result, IntervalSet)
    return result
