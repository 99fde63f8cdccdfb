"""Sums in which a quotient and a remainder of the same numbers meet again, also of symbolic ones.

(i // n) * n * 4 + (i % n) * 4    ->    i * 4
"""

from __future__ import annotations

import itertools

from ..ir import operators as ops
from ..ir.expr import Add, Div, FloorDiv, FloorMod, IntImm, Mod, Mul, PrimExpr, Sub, const
from ..ir.operators import same_expr
from .analyzer import Analyzer

_Term = tuple[int, tuple[PrimExpr, ...]]
"""A product: its coefficient, and its other factors."""


def merge_quotients(expr: PrimExpr) -> PrimExpr:
    """The expression simplified, with `a // b * b + a % b` as `a`. Divisors are taken not to be 0."""
    terms, merged = _terms(expr), False
    while True:
        for left, right in itertools.permutations(range(len(terms)), 2):
            found = _merged(terms[left], terms[right])
            if found is not None:
                first, last = sorted((left, right))
                terms[last : last + 1] = []
                terms[first : first + 1] = found
                merged = True
                break
        else:
            break
    analyzer = Analyzer()
    if not merged:
        return analyzer.simplify(expr)
    total: PrimExpr = const(0, expr.dtype)
    for coefficient, factors in terms:
        product: PrimExpr = const(coefficient, expr.dtype)
        for factor in factors:
            product = ops.multiply(factor, product)
        total = ops.add(total, product)
    return analyzer.simplify(total)


def _terms(expr: PrimExpr) -> list[_Term]:
    """The products that an expression is the sum of."""
    if isinstance(expr, IntImm):
        return [(expr.value, ())]
    if isinstance(expr, Add):
        return _terms(expr.a) + _terms(expr.b)
    if isinstance(expr, Sub):
        return _terms(expr.a) + [(-coefficient, factors) for coefficient, factors in _terms(expr.b)]
    if isinstance(expr, Mul):
        return [(c * d, (*f, *g)) for c, f in _terms(expr.a) for d, g in _terms(expr.b)]
    return [(1, (expr,))]


def _merged(quotient: _Term, remainder: _Term) -> list[_Term] | None:
    """The sum of two terms, if one has a quotient and the other the remainder; None otherwise."""
    for i, divided in enumerate(quotient[1]):
        if not isinstance(divided, (FloorDiv, Div)):
            continue
        kind = FloorMod if isinstance(divided, FloorDiv) else Mod
        for j, rest in enumerate(remainder[1]):
            if not isinstance(rest, kind):
                continue
            alike = _congruent if kind is FloorMod else _equal
            if not same_expr(divided.b, rest.b) or not alike(divided.a, rest.a, divided.b):
                continue
            others = (*remainder[1][:j], *remainder[1][j + 1 :])
            ((scale, divisor), *more) = _terms(divided.b)
            if more:
                scale, divisor = 1, (divided.b,)
            wanted = remainder[0] * scale, (*others, *divisor)
            if _same_product((quotient[0], (*quotient[1][:i], *quotient[1][i + 1 :])), wanted):
                return [(remainder[0] * c, (*others, *f)) for c, f in _terms(divided.a)]
    return None


def _equal(a: PrimExpr, b: PrimExpr, divisor: PrimExpr) -> bool:
    return same_expr(a, b)


def _congruent(a: PrimExpr, b: PrimExpr, divisor: PrimExpr) -> bool:
    """Whether two numbers are known to have one remainder; of a constant divisor, multiples of it may have gone."""
    if same_expr(a, b) or not isinstance(divisor, IntImm) or a.dtype != b.dtype or not a.dtype.is_index:
        return same_expr(a, b)
    rest = Analyzer().simplify(ops.floormod(ops.subtract(a, b), divisor))
    return isinstance(rest, IntImm) and rest.value == 0


def _same_product(a: _Term, b: _Term) -> bool:
    left = list(a[1])
    for factor in b[1]:
        found = next((i for i, other in enumerate(left) if same_expr(other, factor)), None)
        if found is None:
            return False
        del left[found]
    return a[0] == b[0] and not left
