"""Bounds of differences: how `a < b` is decided when a and b share variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir import expr as e
from .canonical_simplify import Sum, Term
from .const_int_bound import NEG_INF, POS_INF, Bounds, clip
from .pattern import same

if TYPE_CHECKING:
    from .analyzer import Analyzer

_STEPS = 6
"""How many times one sum may be replaced by a bound of it."""
_EFFORT = 32
"""How many sums one question may look at."""
_NESTING = 3
"""How many questions may wait for one another."""


class Prover:
    """Bounds sums through bounds of their terms, symbolic ranges of variables and known comparisons."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.facts: list[Sum] = []
        """Sums known not to be positive."""
        self.ranges: dict[e.Var, tuple[Sum, Sum]] = {}
        """The least and the greatest value of variables that run over symbolic ranges."""
        self.memo: dict[tuple[int, int], tuple[Any, Any, Bounds]] = {}
        self.effort = 0
        self.nesting = 0
        self.transitive = False
        """Whether to combine several comparisons even where one alone does not bring the answer nearer."""
        self.products = False
        """Whether to look for products of two terms that stand in the sum themselves."""

    def difference(self, a: Any, b: Any) -> Bounds:
        """Bounds of a - b."""
        if a is b:
            return 0, 0
        bounds = self.analyzer.bounds
        x, y = bounds(a), bounds(b)
        low = NEG_INF if x[0] == NEG_INF or y[1] == POS_INF else x[0] - y[1]
        high = POS_INF if x[1] == POS_INF or y[0] == NEG_INF else x[1] - y[0]
        if low > 0 or high < 0 or low == high == 0:
            return low, high
        if not a.dtype.is_index:
            return (0, 0) if same(a, b) else (low, high)
        known = self.memo.get((id(a), id(b)))
        if known is not None:
            return known[2]
        if self.nesting >= _NESTING:
            return low, high
        # Known comparisons introduce new expressions, whose bounds may lead to the same query again.
        self.nesting += 1
        effort = self.effort
        try:
            canonical = self.analyzer.canonical
            total = Sum()
            total.add_sum(canonical.sum_of(a))
            total.add_sum(canonical.sum_of(b), -1)
            canonical.join_digits(total)
            self.effort = _EFFORT
            high = min(high, self.upper(total, _STEPS))
            if high >= 0:
                self.effort = _EFFORT
                low = max(low, clip(-self.upper(total.times(-1), _STEPS)))
        finally:
            self.nesting -= 1
            self.effort = effort
        self.memo[(id(a), id(b))] = (a, b, (low, high))
        return low, high

    def differ(self, a: Any, b: Any) -> bool:
        """Whether a and b differ because two expressions that are equal to them are known to: a == x, x != b.

        Only with the extension that combines comparisons.
        """
        if not self.transitive or self.nesting >= _NESTING:
            return False
        for held in self.analyzer.constraints:
            if type(held) is e.NE and held.a.dtype is a.dtype:
                for x, y in ((held.a, held.b), (held.b, held.a)):
                    if self.difference(a, x) == (0, 0) == self.difference(b, y):
                        return True
        return False

    def upper(self, total: Sum, steps: int) -> int:
        """An upper bound of a sum; the search stops once it is below zero."""
        best = self.analyzer.canonical.sum_bounds(total)[1]
        if self.products and best >= 0:
            best = min(best, self._upper_of_product(total))
        self.effort -= 1
        if best < 0 or not steps or self.effort < 0 or not total.terms:
            return best
        for fact in self.facts:
            factor = _common_factor(total, fact)
            if factor:
                rest = Sum()
                rest.add_sum(total)
                rest.add_sum(fact, -factor)
                best = min(best, self._upper_of_rest(rest, total, steps))
                if best < 0:
                    return best
        for place, term in total.terms.items():
            if term.upper is None and term.scale % term.lower:
                # `_above` bounds multiples of l * (x // l) only; l times the sum has one.
                bound = self.upper(total.times(term.lower), steps - 1)
                best = min(best, bound if bound == POS_INF else bound // term.lower)
                if best < 0:
                    return best
            for above in self._above(term):
                rest = Sum()
                rest.add_sum(total)
                del rest.terms[place]
                rest.add_sum(above)
                self.analyzer.canonical.join_digits(rest)
                best = min(best, self.upper(rest, steps - 1))
                if best < 0:
                    return best
        return best

    def _upper_of_rest(self, rest: Sum, total: Sum, steps: int) -> int:
        # A known comparison helps where it cancels terms; several are combined only if that extension is on.
        if self.transitive or len(rest.terms) < len(total.terms):
            return self.upper(rest, steps - 1)
        return self.analyzer.canonical.sum_bounds(rest)[1]

    def _upper_of_product(self, total: Sum) -> int:
        """An upper bound of p * a * b + q * a + r * b + rest: over a box of a and b it is greatest at a corner."""
        canonical = self.analyzer.canonical
        for place, term in total.terms.items():
            if type(term.index) is not e.Mul or term.lower != 1 or term.upper is not None:
                continue
            first, second = term.index.a, term.index.b
            x, y = (canonical.key(first), 1, None), (canonical.key(second), 1, None)
            if x == y or not (x in total.terms or y in total.terms):
                continue
            rest = Sum()
            rest.add_sum(total)
            p = rest.terms.pop(place).scale
            q, r = (rest.terms.pop(at).scale if at in rest.terms else 0 for at in (x, y))
            corner = _greatest_corner(p, q, r, self.analyzer.bounds(first), self.analyzer.bounds(second))
            limit = canonical.sum_bounds(rest)[1]
            if corner is not None and limit != POS_INF:
                return corner + limit
        return POS_INF

    def _above(self, term: Term) -> list[Sum]:
        """Sums that are at least a term."""
        index, canonical = term.index, self.analyzer.canonical
        if term.upper is not None:
            return []
        if term.lower != 1:
            ratio, odd = divmod(term.scale, term.lower)
            if odd:
                return []
            # x // l * (l * r) = (x - x % l) * r, at most x * r
            bound, above = canonical.sum_of(index).times(ratio), canonical.sum_of(index).times(ratio)
            bound.add(canonical.key(index), Term(index, 1, term.lower, -ratio))
            return [bound, above] if ratio > 0 else [bound]
        if isinstance(index, e.Var):
            limits = self.ranges.get(index)
            return [] if limits is None else [limits[1 if term.scale > 0 else 0].times(term.scale)]
        if type(index) in (e.FloorDiv, e.FloorMod) and term.scale > 0 and self.analyzer.bounds(index.b)[0] > 0:
            limit = canonical.sum_of(index.b) if type(index) is e.FloorMod else self._most_parts(index.a, index.b)
            if limit is None:
                return []
            bound = limit.times(term.scale)
            bound.base -= term.scale
            return [bound]
        if type(index) is (e.Min if term.scale > 0 else e.Max):
            return [canonical.sum_of(x).times(term.scale) for x in (index.a, index.b)]
        return []

    def _most_parts(self, value: Any, size: Any) -> Sum | None:
        """k, where a variable is known to be less than `k * size`."""
        limits = self.ranges.get(value) if isinstance(value, e.Var) else None
        if limits is None or limits[1].base != -1 or len(limits[1].terms) != 1:
            return None
        canonical = self.analyzer.canonical
        (term,) = limits[1].terms.values()
        if term.lower != 1 or term.upper is not None:
            return None
        if canonical.key(term.index) == canonical.key(size):
            return Sum(term.scale)
        if type(term.index) is e.Mul:
            for factor, other in ((term.index.a, term.index.b), (term.index.b, term.index.a)):
                if canonical.key(factor) == canonical.key(size):
                    return canonical.sum_of(other).times(term.scale)
        return None


def _common_factor(total: Sum, fact: Sum) -> int:
    """The multiple of a comparison that cancels a term of a sum when subtracted; 0 if none does."""
    for place, term in fact.terms.items():
        found = total.terms.get(place)
        if found is not None and found.scale * term.scale > 0 and found.scale % term.scale == 0:
            return found.scale // term.scale
    return 0


def _greatest_corner(p: int, q: int, r: int, a: Bounds, b: Bounds) -> int | None:
    """The greatest p * x * y + q * x + r * y for x in a, y in b; None where it has no limit or none is found.

    Where x has no upper limit it is enough that the slope p * y + q is not positive at the ends of y, and so for y.
    """
    if a[0] == NEG_INF or b[0] == NEG_INF:
        return None
    xs, ys = [a[0]], [b[0]]
    if b[1] != POS_INF:
        ys.append(b[1])
    elif p > 0 or p * a[0] + r > 0:
        return None
    if a[1] != POS_INF:
        xs.append(a[1])
        if b[1] == POS_INF and p * a[1] + r > 0:
            return None
    elif p > 0 and b[1] == POS_INF:
        return None
    else:
        for y in ys:
            if p * y + q > 0:
                return None
    return max(p * x * y + q * x + r * y for x in xs for y in ys)
