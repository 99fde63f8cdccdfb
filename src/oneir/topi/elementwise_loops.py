"""Functions of which each element takes a loop of its own: common divisors, orthogonal polynomials, incomplete Gamma
functions, the zeta function.

Operands have one shape. Those of real numbers are float64, and so are results; callers convert.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.buffer import Buffer
from ..tir.stmt import Stmt, While, flat_seq
from . import special
from .loops import allocate, for_each, let, scalar, store
from .special import choose, number

_EPSILON = 2.0**-53


def _each(
    name: str,
    operands: Sequence[Tensor],
    variables: Sequence[str],
    rule: Callable[..., tuple[Sequence[Stmt], PrimExpr]],
) -> Tensor:
    """A result of the shape and dtype of the first operand: the rule gives the statements of an element and its value,
    from local variables of that dtype and the operands' elements.
    """
    dtype = str(operands[0].dtype)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def element(place: list[PrimExpr]) -> Stmt:
            buffers = [scalar(v, dtype) for v in variables]
            statements, value = rule(*buffers, *(b[tuple(place)] for b in ins))
            return allocate(buffers, *statements, store(outs[0], place, value))

        return for_each(operands[0].shape, element, parallel=True)

    return te.extern([list(operands[0].shape)], list(operands), body, name=name, dtype=dtype)


def _set(variable: Buffer, value: Any) -> Stmt:
    return store(variable, (0,), value)


def gcd(x: Tensor, y: Tensor) -> Tensor:
    """The greatest common divisor of integers, by Euclid's algorithm; it is not negative."""

    def rule(a: Buffer, b: Buffer, u: PrimExpr, v: PrimExpr) -> tuple[Sequence[Stmt], PrimExpr]:
        step = let("rest", tir_op.truncmod(a[0], b[0]), lambda rest: flat_seq([_set(a, b[0]), _set(b, rest)]))
        return [_set(a, tir_op.abs(u)), _set(b, tir_op.abs(v)), While(ops.not_equal(b[0], 0), step)], a[0]

    return _each("gcd", [x, y], ["a", "b"], rule)


# -- orthogonal polynomials: P_0 = 1, P_1, and P_k+1 from P_k and P_k-1 --

_Recurrence = tuple[Callable[[PrimExpr], PrimExpr], Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], PrimExpr]]


def _chebyshev(x: PrimExpr, k: PrimExpr, q: PrimExpr, p: PrimExpr) -> PrimExpr:
    return number(2) * x * q - p


def _hermite_h(x: PrimExpr, k: PrimExpr, q: PrimExpr, p: PrimExpr) -> PrimExpr:
    return number(2) * (x * q - k * p)


def _hermite_he(x: PrimExpr, k: PrimExpr, q: PrimExpr, p: PrimExpr) -> PrimExpr:
    return x * q - k * p


def _laguerre(x: PrimExpr, k: PrimExpr, q: PrimExpr, p: PrimExpr) -> PrimExpr:
    return ((number(2) * k + number(1) - x) * q - k * p) / (k + number(1))


def _legendre(x: PrimExpr, k: PrimExpr, q: PrimExpr, p: PrimExpr) -> PrimExpr:
    return ((number(2) * k + number(1)) * x * q - k * p) / (k + number(1))


POLYNOMIALS: dict[str, _Recurrence] = {
    "chebyshev_t": (lambda x: x, _chebyshev),
    "chebyshev_u": (lambda x: number(2) * x, _chebyshev),
    "chebyshev_v": (lambda x: number(2) * x - number(1), _chebyshev),
    "chebyshev_w": (lambda x: number(2) * x + number(1), _chebyshev),
    "hermite_h": (lambda x: number(2) * x, _hermite_h),
    "hermite_he": (lambda x: x, _hermite_he),
    "laguerre_l": (lambda x: number(1) - x, _laguerre),
    "legendre_p": (lambda x: x, _legendre),
}
"""Families of polynomials: the first of each, and the one that follows two."""


def orthogonal_polynomial(x: Tensor, degree: Tensor, family: str) -> Tensor:
    """The polynomial of a family of which each element has a degree (float64, whole) at `x`; 0 for negative degrees.

    Families: chebyshev_t, chebyshev_u, chebyshev_v, chebyshev_w (first to fourth kind), hermite_h (physicists'),
    hermite_he (probabilists'), laguerre_l and legendre_p. Raises `KeyError` for another one.
    """
    first, following = POLYNOMIALS[family]

    def rule(*values: Any) -> tuple[Sequence[Stmt], PrimExpr]:
        p, q, k, v, n = values
        step = let(
            "following", following(v, k[0], q[0], p[0]), lambda r: flat_seq([_set(p, q[0]), _set(q, r), _count(k)])
        )
        # What has become infinite stays so.
        going = tir_op.all(k[0] < n, tir_op.isfinite(q[0]))
        start = [_set(p, 1.0), _set(q, first(v)), _set(k, 1.0)]
        found = choose(n < number(1), choose(n < number(0), number(0), number(1)), q[0])
        return [*start, While(going, step)], found

    return _each(family, [x, degree], ["p", "q", "k"], rule)


def _count(variable: Buffer) -> Stmt:
    return _set(variable, variable[0] + number(1))


# -- incomplete Gamma functions --


def gamma_p(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """The regularized lower incomplete Gamma function P(a, x), or if `upper`, Q = 1 - P.

    By its series for x below a + 1 and by its continued fraction (Lentz's method) above. NaN where a or x is negative.
    """

    def rule(*values: Any) -> tuple[Sequence[Stmt], PrimExpr]:
        total, term, n, c, d, av, xv, log_gamma = values
        small = xv < av + number(1)
        valid = tir_op.all(av > number(0), xv > number(0), tir_op.isfinite(av), tir_op.isfinite(xv))
        series = let(
            "ratio",
            xv / (av + n[0]),
            lambda r: flat_seq([_set(term, term[0] * r), _set(total, total[0] + term[0]), _count(n)]),
        )

        def fraction(odd: PrimExpr) -> Stmt:
            above = n[0] * (av - n[0])
            return flat_seq(
                [
                    _set(d, number(1) / (above * d[0] + odd)),
                    _set(c, odd + above / c[0]),
                    _set(term, c[0] * d[0]),
                    _set(total, total[0] * term[0]),
                    _count(n),
                ]
            )

        tiny = 1e-300
        first = xv + number(1) - av
        start = [
            _set(n, 1.0),
            _set(c, 1 / tiny),
            _set(d, number(1) / first),
            _set(total, choose(small, number(1) / av, number(1) / first)),
            _set(term, choose(small, number(1) / av, number(0))),
        ]
        loops = [
            While(tir_op.all(valid, small, term[0] > total[0] * number(_EPSILON)), series),
            While(
                tir_op.all(
                    valid,
                    ops.logical_not(small),
                    tir_op.abs(term[0] - number(1)) > number(4 * _EPSILON),
                    n[0] < number(1e6),
                ),
                let("odd", first + number(2) * n[0], fraction),
            ),
        ]
        weight = tir_op.exp(av * tir_op.log(xv) - xv - log_gamma) * total[0]
        other = number(1) - weight
        found = choose(small, other, weight) if upper else choose(small, weight, other)
        negative = ops.logical_or(av < number(0), xv < number(0))
        undefined = ops.logical_or(negative, ops.equal(av, xv))  # both 0, or both infinite
        undefined = ops.logical_or(undefined, ops.logical_or(tir_op.isnan(av), tir_op.isnan(xv)))
        all_below = ops.logical_or(ops.equal(av, number(0)), tir_op.isinf(xv))
        limit = choose(all_below, number(0.0 if upper else 1.0), number(1.0 if upper else 0.0))
        return [*start, *loops], choose(valid, found, choose(undefined, number(math.nan), limit))

    names = ["total", "term", "n", "c", "d"]
    return _each("gamma_q" if upper else "gamma_p", [a, x, special.lgamma(a)], names, rule)


# -- zeta --

_TERMS = 10
# B_2j / (2j)!
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)


def zeta(x: Tensor, q: Tensor) -> Tensor:
    """The zeta function of Hurwitz, the sum of (q + k)^-x for k from 0, by the formula of Euler and Maclaurin.

    Infinite for x = 1 and where q + k is 0 for some k; NaN for x below 1, and for negative q where x is not whole.
    """

    def rule(*values: Any) -> tuple[Sequence[Stmt], PrimExpr]:
        total, n, xv, qv = values
        power = tir_op.power(qv + n[0], number(0) - xv)
        pole = tir_op.all(qv <= number(0), ops.equal(qv, tir_op.floor(qv)))
        whole = ops.logical_or(qv > number(0), ops.equal(xv, tir_op.floor(xv)))
        valid = tir_op.all(xv > number(1), whole, ops.logical_not(pole), tir_op.isfinite(qv), tir_op.isfinite(xv))
        going = tir_op.all(valid, ops.logical_or(n[0] < number(_TERMS), qv + n[0] < number(_TERMS)))
        loop = While(going, flat_seq([_set(total, total[0] + power), _count(n)]))
        # Beyond: the integral, half of the next term, and its derivatives.
        a = qv + n[0]
        tail = power * (a / (xv - number(1)) + number(0.5))
        factor = power * xv / a
        for j, b in enumerate(_BERNOULLI):
            tail = tail + factor * number(b)
            factor = factor * (xv + number(2 * j + 1)) * (xv + number(2 * j + 2)) / (a * a)
        # Powers of large exponents vanish before their products with polynomials of the exponent are formed.
        tail = choose(power > number(0), tail, number(0))
        outside = choose(ops.equal(xv, number(1)), number(math.inf), number(math.nan))
        outside = choose(tir_op.all(pole, xv > number(1)), number(math.inf), outside)
        outside = choose(tir_op.all(tir_op.isinf(qv), qv > number(0), xv > number(1)), number(0), outside)
        outside = choose(tir_op.all(tir_op.isinf(xv), xv > number(0), qv > number(0)), _far(qv), outside)
        return [_set(total, 0.0), _set(n, 0.0), loop], choose(valid, total[0] + tail, outside)

    def _far(qv: PrimExpr) -> PrimExpr:
        one = choose(ops.equal(qv, number(1)), number(1), number(0))
        return choose(qv < number(1), number(math.inf), one)

    return _each("zeta", [x, q], ["total", "n"], rule)
