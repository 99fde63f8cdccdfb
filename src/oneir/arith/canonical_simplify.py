"""Index expressions as sums: `(x // 4) * 4 + x % 4 + y - y` is x.

A `Sum` is a constant plus terms `((index % upper) // lower) * scale`. Terms over one index join where they are
neighbouring digits of it, division by a constant and remainders act on each term alone where they can, and what is left
is written with the largest scale first.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from ..ir import expr as e
from .const_int_bound import POS_INF, Bounds, add_bounds, floordiv_bounds, floormod_bounds, is_index_like, scale_bounds
from .pattern import Overflow
from .rewrite_simplify import RewriteSimplifier

if TYPE_CHECKING:
    from .analyzer import Analyzer

_numbers = itertools.count(1)


class Term:
    """`((index % upper) // lower) * scale`; `upper` None: no remainder is taken. lower divides upper."""

    __slots__ = ("index", "lower", "scale", "upper")

    def __init__(self, index: Any, lower: int = 1, upper: int | None = None, scale: int = 1):
        self.index, self.lower, self.upper, self.scale = index, lower, upper, scale

    def scaled(self, factor: int) -> Term:
        """The term times a number."""
        return Term(self.index, self.lower, self.upper, self.scale * factor)


class Sum:
    """A constant and terms, in the order in which they came; terms that differ only in scale are one."""

    __slots__ = ("base", "terms")

    def __init__(self, base: int = 0):
        self.base = base
        self.terms: dict[tuple[int, int, int | None], Term] = {}

    def add(self, key: int, term: Term) -> None:
        """Adds one term; `key` is the number of its index."""
        place = (key, term.lower, term.upper)
        found = self.terms.get(place)
        if found is None:
            self.terms[place] = term
            return
        scale = found.scale + term.scale
        if scale:
            self.terms[place] = Term(term.index, term.lower, term.upper, scale)
        else:
            del self.terms[place]

    def add_sum(self, other: Sum, factor: int = 1) -> None:
        """Adds a multiple of another sum."""
        if factor:
            self.base += other.base * factor
            for (key, _, _), term in other.terms.items():
                self.add(key, term.scaled(factor) if factor != 1 else term)

    def times(self, factor: int) -> Sum:
        """The sum times a number."""
        result = Sum()
        result.add_sum(self, factor)
        return result


class CanonicalSimplifier(RewriteSimplifier):
    """Simplifies int32 and int64 expressions as sums, and everything else by the rewrite rules."""

    sums_only = False

    def __init__(self, analyzer: Analyzer):
        super().__init__(analyzer)
        self.sums: dict[int, tuple[Any, Sum]] = {}
        self.keys: dict[int, tuple[Any, int]] = {}
        self.interned: dict[Any, int] = {}
        self.products: dict[tuple[int, int], Any] = {}
        """How a product was written of which a factor was taken."""

    # -- keys of expressions --

    def key(self, expr: Any) -> int:
        """A number that equal expressions share, whatever the order of their factors."""
        known = self.keys.get(id(expr))
        if known is not None:
            return known[1]
        kind: type[e.PrimExpr] = expr.__class__
        content: Any = None
        if kind is e.IntImm:
            content = (expr.dtype, expr.value)
        elif isinstance(expr, e.BinaryOpExpr):
            a, b = self.key(expr.a), self.key(expr.b)
            if a > b and kind in (e.Mul, e.Min, e.Max, e.EQ, e.NE):
                a, b = b, a
            content = (kind, a, b)
        elif kind is e.Cast:
            content = (kind, expr.dtype, self.key(expr.value))
        elif kind is e.Call:
            content = [kind, expr.op, expr.dtype]
            for argument in expr.args:
                content.append(self.key(argument) if isinstance(argument, e.PrimExpr) else id(argument))
            content = tuple(content)
        elif kind is e.Select:
            content = (kind, self.key(expr.condition), self.key(expr.true_value), self.key(expr.false_value))
        number = next(_numbers) if content is None else self._number_of(content)
        self.keys[id(expr)] = (expr, number)
        return number

    def _number_of(self, content: Any) -> int:
        """The number of a node's class and the keys of what is in it."""
        number = self.interned.get(content)
        if number is None:
            number = self.interned[content] = next(_numbers)
        return number

    # -- from expressions to sums --

    def sum_of(self, expr: Any) -> Sum:
        """The sum that an int32 or int64 expression is."""
        kind: type[e.PrimExpr] = expr.__class__
        if kind is e.IntImm:
            return Sum(expr.value)
        known = self.sums.get(id(expr))
        if known is not None:
            return known[1]
        effects = self.effects
        try:
            result = self._sum_of_node(expr)
        except Overflow:
            result = Sum()
            result.add(self.key(expr), Term(expr))
        if effects != self.effects:
            # Calls with effects are neither merged nor dropped nor moved.
            result = Sum()
            rebuilt = super().visit(expr) if kind is e.Call else expr.map_children(super().visit)
            result.add(next(_numbers), Term(rebuilt))
            return result
        self.sums[id(expr)] = (expr, result)
        return result

    def _sum_of_node(self, expr: Any) -> Sum:
        kind: type[e.PrimExpr] = expr.__class__
        if kind is e.Add or kind is e.Sub:
            return self._chain(expr)
        if kind is e.Mul:
            return self._product(expr)
        if kind is e.FloorDiv or kind is e.FloorMod:
            return self._divided(expr)
        if kind is e.Cast and expr.value.dtype.is_int:
            return self._converted(expr)
        return self._leaf(super().visit(expr), expr)

    def _chain(self, expr: Any) -> Sum:
        """A sum of many operands, in linear time."""
        result = Sum()
        pending = [(expr, 1)]
        while pending:
            part, factor = pending.pop()
            kind: type[e.PrimExpr] = part.__class__
            if kind is e.Add:
                pending += ((part.b, factor), (part.a, factor))
            elif kind is e.Sub:
                pending += ((part.b, -factor), (part.a, factor))
            else:
                result.add_sum(self.sum_of(part), factor)
        self.join_digits(result)
        return result

    def _leaf(self, expr: Any, source: Any = None) -> Sum:
        """A simplified expression as a term of its own, or as the sum that it turned out to be."""
        if type(expr) is e.IntImm:
            return Sum(expr.value)
        if expr is not source and type(expr) in _SUMS:
            return self.sum_of(expr)
        result = Sum()
        result.add(self.key(expr), Term(expr))
        return result

    def _product(self, expr: Any) -> Sum:
        a, b = self.sum_of(expr.a), self.sum_of(expr.b)
        if not a.terms:
            return b.times(a.base)
        if not b.terms:
            return a.times(b.base)
        x, y = self.expression(a, expr.a), self.expression(b, expr.b)
        node = expr if x is expr.a and y is expr.b else None
        p, q = _factor(a), _factor(b)
        if p * q != 1:
            return self._scaled_product(x, y, self._unscaled(a, x), self._unscaled(b, y), p * q)
        product = self.binary(e.Mul, x, y, node)
        if type(product) is e.Mul and not isinstance(product.b, e.IntImm):
            result = Sum()
            result.add(self._product_key(product), Term(product))
            return result
        return self.sum_of(product)

    def _product_key(self, product: Any) -> int:
        """The key of a product, which (a * b) * c and a * (b * c) share."""
        factors = _factors(product)
        if len(factors) == 2:
            return self.key(product)
        return self._number_of((e.Mul, *sorted(map(self.key, factors))))

    def _unscaled(self, total: Sum, written: Any) -> Any:
        """The only term of a sum without its factor; any other sum as it is."""
        if _factor(total) == 1:
            return written
        (term,) = total.terms.values()
        return self.term_expression(term, 1)

    def _scaled_product(self, x: Any, y: Any, u: Any, v: Any, factor: int) -> Sum:
        """x * y = u * v * factor, which is written as it was: n * (m * 2)."""
        product = self.binary(e.Mul, u, v)
        if type(product) is e.Mul and product.a is u and product.b is v:
            self.products.setdefault((self.key(product), factor), e.Mul(x, y))
        return self.sum_of(product).times(factor)

    def _divided(self, expr: Any) -> Sum:
        a, b = self.sum_of(expr.a), self.sum_of(expr.b)
        if not b.terms and b.base > 0:
            result = self._quotient(a, b.base, expr.dtype) if type(expr) is e.FloorDiv else self._rest(a, b.base, expr)
            self.join_digits(result)
            return result
        x, y = self.expression(a, expr.a), self.expression(b, expr.b)
        node = expr if x is expr.a and y is expr.b else None
        kind: type[e.BinaryOpExpr] = expr.__class__
        result = self.binary(kind, x, y, node)
        if type(result) in (e.FloorDiv, e.FloorMod):
            if isinstance(result.b, e.IntImm) and result.b.value > 0:
                return self.sum_of(result)
            return self._leaf(result, result)
        return self._leaf(result)

    def _converted(self, expr: Any) -> Sum:
        """A cast is moved to the terms where neither a term nor the sum can overflow."""
        value, dtype = expr.value, expr.dtype
        inner = value.dtype
        if not is_index_like(inner):
            return self._leaf(super().visit(expr), expr)
        total = self.sum_of(value)
        if dtype.bits < inner.bits and not self._fits_in(total, dtype):
            converted = self.make_cast(dtype, self.expression(total, value), None)
            if type(converted) is e.Cast and converted.value is value:
                converted = expr
            return self._leaf(converted, converted)
        result = Sum(total.base)
        for term in total.terms.values():
            index = self.make_cast(dtype, term.index)
            result.add(self.key(index), Term(index, term.lower, term.upper, term.scale))
        return result

    def _fits_in(self, total: Sum, dtype: Any) -> bool:
        low, high = self.analyzer.bounds_of_dtype(dtype)
        # An infinite bound may exceed uint64.
        high = POS_INF - 1 if high > POS_INF else high
        sofar: Bounds = (total.base, total.base)
        for term in total.terms.values():
            index = self.bounds(term.index)
            sofar = add_bounds(sofar, self.term_bounds(term))
            for bounds in (index, scale_bounds(self.term_bounds(term), 1), sofar):
                if bounds[0] < low or bounds[1] > high:
                    return False
            if not low <= term.scale <= high or max(term.upper or 0, term.lower) > high:
                return False
        return low <= total.base <= high

    # -- division --

    def _quotient(self, total: Sum, divisor: int, dtype: Any) -> Sum:
        """A sum divided by a positive constant, rounded down."""
        if divisor == 1:
            return total
        result, rest = _separate(total, divisor)
        result = _divided_exactly(result, divisor)
        if not rest.terms:
            result.base += rest.base // divisor
            return result
        # Low terms that stay below the common factor of the others do not change the quotient.
        rest, divisor = self._without_low_part(rest, divisor)
        if divisor == 1:
            result.add_sum(rest)
            return result
        low, high = self.sum_bounds(rest)
        if low // divisor == high // divisor and abs(low) < 1 << 62 and abs(high) < 1 << 62:
            result.base += low // divisor
            return result
        key, term = self._as_term(rest, dtype)
        self._divide_term(result, key, term, divisor)
        return result

    def _without_low_part(self, total: Sum, divisor: int) -> tuple[Sum, int]:
        """(g * high + low) // (g * d) = high // d, where 0 <= low < g."""
        terms = sorted(total.terms.items(), key=lambda item: -abs(item[1].scale))
        factor = 0
        best: tuple[int, int] | None = None
        for count, (_, term) in enumerate(terms, 1):
            factor = math.gcd(factor, term.scale, divisor)
            if factor == 1:
                break
            low, high = total.base % factor, total.base % factor
            for _, lower in terms[count:]:
                low, high = add_bounds((low, high), self.term_bounds(lower))
            dropped = count < len(terms) or total.base % factor != 0
            if low >= 0 and high < factor and dropped and (count > 1 or factor == abs(term.scale)):
                best = (count, factor)
        if best is None:
            return total, divisor
        count, factor = best
        kept = {place for place, _ in terms[:count]}
        result = Sum(total.base // factor)
        for (key, lower, upper), term in total.terms.items():
            if (key, lower, upper) in kept:
                result.add(key, Term(term.index, term.lower, term.upper, term.scale // factor))
        return result, divisor // factor

    def _divide_term(self, result: Sum, key: int, term: Term, divisor: int) -> None:
        """Adds a term divided by a constant; the scale of the term divides no further than it already has."""
        if divisor % abs(term.scale) == 0 and term.scale > 0:
            divisor //= term.scale
            lower = term.lower * divisor
            if term.upper is None or term.upper % lower == 0:
                result.add(key, Term(term.index, lower, term.upper))
                return
            if term.upper <= lower:
                return
            index = self.term_expression(Term(term.index, term.lower, term.upper))
        else:
            index = self.term_expression(term)
        result.add(self.key(index), Term(index, divisor))

    def _rest(self, total: Sum, divisor: int, expr: Any) -> Sum:
        """The remainder of a sum by a positive constant."""
        dtype = expr.dtype
        if divisor == 1:
            return Sum()
        _, rest = _separate(total, divisor)
        rest.base %= divisor
        if not rest.terms:
            return rest
        low, high = self.sum_bounds(rest)
        if low // divisor == high // divisor and abs(low) < 1 << 62 and abs(high) < 1 << 62:
            rest.base -= low // divisor * divisor
            return rest
        original = self.sum_bounds(total)
        if original[0] >= 0 and original[1] < divisor:
            return total
        high_part, low_part, factor = self._split_low_part(rest, divisor)
        if low_part is not None:
            # (g * high + low) % (g * d) = (high % d) * g + low
            inner = self._rest(high_part, divisor // factor, expr)
            result = inner.times(factor)
            result.add_sum(low_part)
            return result
        key, term = self._as_term(rest, dtype)
        result = Sum()
        self._rest_of_term(result, key, term, divisor, expr)
        return result

    def _split_low_part(self, total: Sum, divisor: int) -> tuple[Sum, Sum | None, int]:
        """The sum as factor * high + low, 0 <= low < factor, where factor > 1 divides the divisor (0: any factor)."""
        terms = sorted(total.terms.items(), key=lambda item: -abs(item[1].scale))
        factor = 0
        for count, (_, term) in enumerate(terms, 1):
            factor = math.gcd(factor, term.scale, divisor)
            if factor == 1 or factor == divisor:
                break
            rest_base = total.base % factor
            low, high = rest_base, rest_base
            for _, lower in terms[count:]:
                low, high = add_bounds((low, high), self.term_bounds(lower))
            if low >= 0 and high < factor and (not divisor or count < len(terms) or len(terms) > 1 or rest_base):
                high_part, low_part = Sum(total.base // factor), Sum(rest_base)
                for place, chosen in terms[:count]:
                    high_part.add(place[0], Term(chosen.index, chosen.lower, chosen.upper, chosen.scale // factor))
                for place, chosen in terms[count:]:
                    low_part.add(place[0], chosen)
                return high_part, low_part, factor
        return total, None, 1

    def _rest_of_term(self, result: Sum, key: int, term: Term, divisor: int, expr: Any) -> None:
        """Adds the remainder of a term."""
        scale = term.scale
        if scale > 0 and divisor % scale == 0:
            # ((x % u) // l * s) % (s * d) = ((x % u) // l % d) * s = ((x % u) % (l * d) // l) * s
            upper = term.lower * (divisor // scale)
            if term.upper is None or term.upper % upper == 0:
                result.add(key, Term(term.index, term.lower, upper, scale))
                return
            if upper % term.upper == 0:
                result.add(key, term)
                return
        index = self.term_expression(term)
        result.add(self.key(index), Term(index, 1, divisor))

    def _as_term(self, total: Sum, dtype: Any) -> tuple[int, Term]:
        """A sum as one term: its only one, or all of it as an index."""
        if total.base == 0 and len(total.terms) == 1:
            ((key, _, _), term), *_ = total.terms.items()
            return key, term
        index = self._written(total, dtype)
        return self.key(index), Term(index)

    # -- comparison --

    def _comparison(self, cls: type, a: Any, b: Any, node: Any = None) -> Any:
        if cls is e.LT and a.dtype.is_index:
            a, b = self._reduced_comparison(a, b)
        return super()._comparison(cls, a, b, node)

    def _reduced_comparison(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Both sides of a < b divided by their common factor, without low terms that cannot change the result: x * 4 +
        j < 16.
        """
        total = Sum()
        total.add_sum(self.sum_of(a))
        total.add_sum(self.sum_of(b), -1)
        self.join_digits(total)
        high, low, _ = self._split_low_part(total, 0)
        if low is None:
            return a, b
        # factor * high + low < 0, with 0 <= low < factor, is high < 0.
        left, right = Sum(max(high.base, 0)), Sum(max(-high.base, 0))
        for (key, _, _), term in high.terms.items():
            if term.scale > 0:
                left.add(key, term)
            else:
                right.add(key, term.scaled(-1))
        try:
            return self._written(left, a.dtype), self._written(right, b.dtype)
        except Overflow:
            return a, b

    # -- bounds --

    def term_bounds(self, term: Term) -> Bounds:
        """Bounds of a term."""
        bounds = self.bounds(term.index)
        if term.upper is not None:
            bounds = floormod_bounds(bounds, (term.upper, term.upper))
        if term.lower != 1:
            bounds = floordiv_bounds(bounds, (term.lower, term.lower))
        return scale_bounds(bounds, term.scale)

    def sum_bounds(self, total: Sum) -> Bounds:
        """Bounds of a sum."""
        result: Bounds = (total.base, total.base)
        for term in total.terms.values():
            result = add_bounds(result, self.term_bounds(term))
        return result

    # -- from sums to expressions --

    def join_digits(self, total: Sum) -> None:
        """Joins terms that are neighbouring digits of one index: (x // 4) * 4 + x % 4."""
        if len(total.terms) < 2:
            return
        by_index: dict[int, list[Term]] = {}
        for (key, _, _), term in total.terms.items():
            by_index.setdefault(key, []).append(term)
        for key, terms in by_index.items():
            while len(terms) > 1:
                joined = _join(terms)
                if joined is None:
                    break
                first, second, new = joined
                for old in (first, second):
                    del total.terms[(key, old.lower, old.upper)]
                total.add(key, new)
                terms = [t for (k, _, _), t in total.terms.items() if k == key]

    def term_expression(self, term: Term, scale: int | None = None) -> Any:
        dtype = term.index.dtype
        result = term.index
        if term.upper is not None:
            result = self.with_constant(e.FloorMod, result, term.upper)
        if term.lower != 1:
            result = self.with_constant(e.FloorDiv, result, term.lower)
        factor = term.scale if scale is None else scale
        if factor == 1:
            return result
        if type(result) is e.Mul:
            product = self.products.get((self.key(result), factor))
            if product is not None:
                return product
        return (
            e.Mul(result, self._fitting(factor, dtype))
            if not isinstance(result, e.IntImm)
            else e.IntImm(dtype, result.value * factor)
        )

    def _written(self, total: Sum, dtype: Any) -> Any:
        """The expression of a sum: positive terms by falling scale, a positive constant, what is subtracted."""
        terms = sorted(total.terms.values(), key=_order)
        result: Any = None
        for term in terms:
            if term.scale > 0:
                part = self.term_expression(term)
                result = part if result is None else e.Add(result, part)
        base = total.base
        if base > 0 or not terms:
            constant = self._fitting(base, dtype)
            result = constant if result is None else e.Add(result, constant)
            base = 0
        for term in terms:
            if term.scale < 0:
                part = self.term_expression(term, -term.scale)
                result = e.Sub(self._fitting(0, dtype) if result is None else result, part)
        if base < 0 and result is not None:
            result = e.Sub(result, self._fitting(-base, dtype))
        return result

    def expression(self, total: Sum, source: Any) -> Any:
        """The expression of a sum; `source` itself where that is the same."""
        if len(total.terms) == 1 and total.base == 0:
            (term,) = total.terms.values()
            if term.upper is None and term.lower == 1 and term.scale == 1:
                return source if self.key(term.index) == self.key(source) else term.index
        try:
            if type(source) is e.Mul and len(total.terms) == 1 and total.base == 0:
                result = self.term_expression(next(iter(total.terms.values())))
            else:
                result = self._written(total, source.dtype)
        except Overflow:
            return source
        unordered = type(source) is e.Mul and isinstance(source.a, e.IntImm)
        return source if not unordered and self.key(result) == self.key(source) else result

    # -- walking --

    def visit(self, expr: Any) -> Any:
        """An expression simplified; sums as sums."""
        if type(expr) in _SUMS and expr.dtype.is_index:
            known = self.memo.get(id(expr))
            if known is not None:
                return known[1]
            before = self.effects
            result = self.expression(self.sum_of(expr), expr)
            if before == self.effects:
                self.memo[id(expr)] = (expr, result)
            return result
        return super().visit(expr)


_SUMS = {e.Add, e.Sub, e.Mul, e.FloorDiv, e.FloorMod, e.Cast}


def _factor(total: Sum) -> int:
    """The number that a sum of one term is a multiple of; 1 for other sums."""
    if len(total.terms) != 1 or total.base:
        return 1
    (term,) = total.terms.values()
    return term.scale


def _order(term: Term) -> tuple[int, int, float]:
    return (-term.scale, -term.lower, -(math.inf if term.upper is None else term.upper))


def _separate(total: Sum, divisor: int) -> tuple[Sum, Sum]:
    """The terms that a constant divides, and the others."""
    divisible, rest = Sum(), Sum()
    for (key, _, _), term in total.terms.items():
        (divisible if term.scale % divisor == 0 else rest).add(key, term)
    if total.base % divisor == 0:
        divisible.base = total.base
    else:
        rest.base = total.base
    return divisible, rest


def _divided_exactly(total: Sum, divisor: int) -> Sum:
    result = Sum(total.base // divisor)
    for (key, _, _), term in total.terms.items():
        result.add(key, Term(term.index, term.lower, term.upper, term.scale // divisor))
    return result


def _join(terms: list[Term]) -> tuple[Term, Term, Term] | None:
    """Two terms over one index that are one term, and that term."""
    for high, low in itertools.permutations(terms, 2):
        ratio, odd = divmod(high.lower, low.lower)
        if odd or ratio < 2:
            continue
        if low.upper == high.lower and high.scale == low.scale * ratio:
            # (x % u) // (l * r) * (r * s) + (x % (l * r)) // l * s = (x % u) // l * s
            return high, low, Term(low.index, low.lower, high.upper, low.scale)
        if low.upper == high.upper and high.scale == -low.scale * ratio:
            # (x % u) // l * s - (x % u) // (l * r) * (r * s) = (x % (l * r)) // l * s
            return high, low, Term(low.index, low.lower, high.lower, low.scale)
    for wide, narrow in itertools.permutations(terms, 2):
        if wide.lower != narrow.lower or narrow.upper is None or wide.scale != -narrow.scale:
            continue
        if (wide.upper is None or (wide.upper % narrow.upper == 0 and wide.upper > narrow.upper)) and (
            narrow.upper % narrow.lower == 0
        ):
            # (x % u) // l * s - (x % v) // l * s = (x % u) // v * (v // l * s)
            return wide, narrow, Term(wide.index, narrow.upper, wide.upper, wide.scale * (narrow.upper // wide.lower))
    return None


def _factors(expr: Any) -> list[Any]:
    """The factors of a product of products."""
    return [*_factors(expr.a), *_factors(expr.b)] if expr.__class__ is e.Mul else [expr]
