"""Special functions, elementwise: Gamma and its relatives, quantiles, Bessel functions.

They are computed in float64 and rounded to the dtype of the argument, so that float32 has all its digits where terms
cancel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from .. import te
from ..ir import operators as ops
from ..ir.expr import Let, PrimExpr, Var, const
from ..te.tensor import Tensor
from ..tir import op as tir_op
from . import tag

_WIDE = "float64"


def _number(value: float) -> PrimExpr:
    return const(value, _WIDE)


def _let(value: PrimExpr, body: Callable[[PrimExpr], PrimExpr]) -> PrimExpr:
    """The body with a value that is computed once."""
    var = Var("value", _WIDE)
    return Let(var, value, body(var))


def _choose(condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr:
    return tir_op.if_then_else(condition, yes, no)


def _polynomial(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """By Horner; the constant term comes first."""
    result = _number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + _number(c)
    return result


def _elementwise(x: Tensor, rule: Callable[[PrimExpr], PrimExpr], name: str) -> Tensor:
    def element(*ax: PrimExpr) -> PrimExpr:
        return _let(x(*ax).astype(_WIDE), rule).astype(x.dtype)

    return te.compute(x.shape, element, name=name, tag=tag.ELEMWISE)


# -- Gamma --

# Lanczos, g = 7.
_LANCZOS = (
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)


def _lgamma_above(x: PrimExpr) -> PrimExpr:
    """log Gamma(x), x at least 1/2."""
    terms = _number(0.99999999999980993)
    for i, c in enumerate(_LANCZOS):
        terms = terms + _number(c) / (x + _number(float(i)))
    shifted = x + _number(6.5)
    found = (
        (x - _number(0.5)) * tir_op.log(shifted) - shifted + tir_op.log(terms) + _number(0.5 * math.log(2 * math.pi))
    )
    return _choose(x > _number(1e300), _number(math.inf), found)


def lgamma(x: Tensor) -> Tensor:
    """log |Gamma(x)|; infinite at 0 and negative integers."""

    def rule(v: PrimExpr) -> PrimExpr:
        def reflected(above: PrimExpr) -> PrimExpr:
            # sin(pi v) by the distance from the nearest integer, which is exact.
            sine = tir_op.sin(_number(math.pi) * (v - tir_op.round(v)))
            below = tir_op.log(_number(math.pi)) - tir_op.log(tir_op.abs(sine)) - above
            return _choose(v < _number(0.5), below, above)

        whole = _let(_choose(v < _number(0.5), _number(1) - v, v), lambda u: _let(_lgamma_above(u), reflected))
        return _choose(tir_op.isinf(v), _number(math.inf), whole)

    return _elementwise(x, rule, "lgamma")


_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)
_STEPS = 10


def digamma(x: Tensor) -> Tensor:
    """The derivative of log Gamma; NaN at negative integers, and infinite at 0, with the sign of -x."""

    def above(v: PrimExpr) -> PrimExpr:
        """For v at least 1/2: at v + 10 by its series, and back."""
        steps = _number(0)
        for i in range(_STEPS):
            steps = steps + _number(1) / (v + _number(float(i)))
        far = v + _number(float(_STEPS))
        series = _let(_number(1) / (far * far), lambda w: w * _polynomial(w, _DIGAMMA))
        return tir_op.log(far) - _number(0.5) / far + series - steps

    def rule(v: PrimExpr) -> PrimExpr:
        turned = above(_number(1) - v) - _number(math.pi) / tir_op.tan(_number(math.pi) * (v - tir_op.round(v)))
        low = _choose(ops.equal(v, tir_op.floor(v)), _number(math.nan), turned)
        at_zero = tir_op.copysign(_number(math.inf), v * _number(-1))
        found = _choose(v < _number(0.5), _choose(ops.equal(v, _number(0)), at_zero, low), above(v))
        return _choose(v > _number(1e300), v, found)

    return _elementwise(x, rule, "digamma")


# 1/2, then B_2j / (2j)!
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)
_TERMS = 14


def polygamma(x: Tensor, order: int) -> Tensor:
    """The derivative of that order of the digamma function, order at least 1, by the sum of Euler and Maclaurin."""
    power = order + 1

    def to_power(base: PrimExpr, exponent: int) -> PrimExpr:
        result, square = _number(1), base
        while exponent:
            if exponent & 1:
                result = result * square
            square, exponent = square * square, exponent >> 1
        return result

    def rule(v: PrimExpr) -> PrimExpr:
        total = _number(0)
        for k in range(_TERMS):
            total = total + _let(_number(1) / (v + _number(float(k))), lambda w: to_power(w, power))

        def rest(inverse: PrimExpr) -> PrimExpr:
            last = to_power(inverse, power - 1)
            terms, factor = [1 / (power - 1), 0.5], float(power)
            series = _let(inverse * inverse, lambda w: _polynomial(w, coefficients))
            return last * (_number(terms[0]) + inverse * _number(terms[1]) + inverse * inverse * series * factor)

        coefficients = []
        rising = 1.0
        for j, b in enumerate(_BERNOULLI):
            coefficients.append(b * rising)
            rising *= (power + 2 * j + 1) * (power + 2 * j + 2)
        total = total + _let(_number(1) / (v + _number(float(_TERMS))), rest)
        at_pole = tir_op.all(v <= _number(0), ops.equal(v, tir_op.floor(v)))
        found = _choose(at_pole, _number(math.inf), total)
        return _number((-1.0) ** power * math.factorial(order)) * found

    return _elementwise(x, rule, "polygamma")


# -- quantiles of the normal distribution, by Acklam's rational functions --

_CENTRE = (
    (
        2.506628277459239,
        -30.66479806614716,
        138.3577518672690,
        -275.9285104469687,
        220.9460984245205,
        -39.69683028665376,
    ),
    (1.0, -13.28068155288572, 66.80131188771972, -155.6989798598866, 161.5858368580409, -54.47609879822406),
)
_TAIL = (
    (
        2.938163982698783,
        4.374664141464968,
        -2.549732539343734,
        -2.400758277161838,
        -0.3223964580411365,
        -0.007784894002430293,
    ),
    (1.0, 3.754408661907416, 2.445134137142996, 0.3224671290700398, 0.007784695709041462),
)


def _quantile(centred: PrimExpr, below: PrimExpr) -> PrimExpr:
    """The number that a normal number is under with probability 1/2 + centred; `below` is 1/2 - |centred|."""

    def tail(q: PrimExpr) -> PrimExpr:
        size = _polynomial(q, _TAIL[0]) / _polynomial(q, _TAIL[1])
        return _choose(centred < _number(0), size, _number(0) - size)

    def centre(r: PrimExpr) -> PrimExpr:
        return centred * _polynomial(r, _CENTRE[0]) / _polynomial(r, _CENTRE[1])

    def refined(z: PrimExpr) -> PrimExpr:
        # Half a step of Newton's would leave 1e-9; with its second order, all digits of float32 and most of float64.
        error = _number(0.5) * tir_op.erf(z * _number(math.sqrt(0.5))) - centred
        step = error * _number(math.sqrt(2 * math.pi)) * tir_op.exp(z * z * _number(0.5))
        return _let(step, lambda s: z - s / (_number(1) + z * s * _number(0.5)))

    far = _let(tir_op.sqrt(_number(-2) * tir_op.log(below)), tail)
    near = _let(_let(centred * centred, centre), refined)
    found = _choose(below < _number(0.02425), far, near)
    infinite = tir_op.copysign(_number(math.inf), centred)
    known = _choose(ops.equal(below, _number(0)), infinite, found)
    return _choose(below >= _number(0), known, _number(math.nan))


def erfinv(x: Tensor) -> Tensor:
    """The number whose error function is x."""

    def rule(v: PrimExpr) -> PrimExpr:
        found = _let(v * _number(0.5), lambda c: _let(_number(0.5) - tir_op.abs(c), lambda below: _quantile(c, below)))
        return found * _number(math.sqrt(0.5))

    return _elementwise(x, rule, "erfinv")


def ndtri(x: Tensor) -> Tensor:
    """The number that a normal number is under with probability x."""

    def rule(v: PrimExpr) -> PrimExpr:
        below = _choose(v < _number(0.5), v, _number(1) - v)
        return _let(v - _number(0.5), lambda c: _let(below, lambda b: _quantile(c, b)))

    return _elementwise(x, rule, "ndtri")


# erfc(x) exp(x²) / t for t = 1 / (1 + x / 2), as exp of a polynomial in t.
_ERFCX = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
    -0.82215223,
    0.17087277,
)


def erfcx(x: Tensor) -> Tensor:
    """exp(x²) (1 - erf(x)), to 1.2e-7."""

    def rule(v: PrimExpr) -> PrimExpr:
        t = _number(1) / (_number(1) + _number(0.5) * tir_op.abs(v))
        above = _let(t, lambda t: t * tir_op.exp(_polynomial(t, _ERFCX)))
        return _let(above, lambda a: _choose(v < _number(0), _number(2) * tir_op.exp(v * v) - a, a))

    return _elementwise(x, rule, "erfcx")


# -- modified Bessel functions --


@functools.cache
def _bessel_parts(order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Polynomials: exp(-x) I_n(x) / x^n up to 8 in x / 4 - 1, and sqrt(x) exp(-x) I_n(x) beyond in 16 / x - 1."""

    def scaled(x: np.ndarray) -> np.ndarray:
        # The mean over a period of a smooth function: equal steps are exact.
        angles = (np.arange(4096) + 0.5) * np.pi / 4096
        return np.mean(np.exp(np.multiply.outer(x, np.cos(angles) - 1)) * np.cos(order * angles), axis=-1)

    def near(t: np.ndarray) -> np.ndarray:
        x = 4 * (t + 1)
        return scaled(x) / x**order

    def far(t: np.ndarray) -> np.ndarray:
        x = 16 / (t + 1 + 1e-3)
        return np.sqrt(x) * scaled(x)

    fits = (
        np.polynomial.Chebyshev.interpolate(near, 24),
        np.polynomial.Chebyshev.interpolate(far, 12),
    )
    low, high = (tuple(np.polynomial.chebyshev.cheb2poly(fit.coef).tolist()) for fit in fits)
    return low, high


def bessel_i(x: Tensor, order: int, scaled: bool) -> Tensor:
    """The modified Bessel function of the first kind, of order 0 or 1; if `scaled`, times exp(-|x|)."""
    near, beyond = _bessel_parts(order)

    def rule(v: PrimExpr) -> PrimExpr:
        def of_size(size: PrimExpr) -> PrimExpr:
            low = _polynomial(size * _number(0.25) - _number(1), near) * (size if order else _number(1))
            high = _polynomial(_number(16) / size - _number(1 + 1e-3), beyond) / tir_op.sqrt(size)
            found = _choose(size <= _number(8), low, high)
            found = found if scaled else found * tir_op.exp(size)
            return _choose(v < _number(0), _number(0) - found, found) if order == 1 else found

        return _let(tir_op.abs(v), of_size)

    return _elementwise(x, rule, f"i{order}{'e' if scaled else ''}")
