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


def number(value: float) -> PrimExpr:
    """A constant of float64."""
    return const(value, _WIDE)


def let(value: PrimExpr, body: Callable[[PrimExpr], PrimExpr]) -> PrimExpr:
    """The body with a value that is computed once."""
    var = Var("value", _WIDE)
    return Let(var, value, body(var))


def choose(condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr:
    """One of two values, of which only that one is computed."""
    return tir_op.if_then_else(condition, yes, no)


def polynomial(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """By Horner; the constant term comes first."""
    result = number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + number(c)
    return result


def elementwise(x: Tensor, rule: Callable[[PrimExpr], PrimExpr], name: str) -> Tensor:
    """What a rule gives for each element in float64, rounded to the dtype of `x`."""

    def element(*ax: PrimExpr) -> PrimExpr:
        return let(x(*ax).astype(_WIDE), rule).astype(x.dtype)

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
    terms = number(0.99999999999980993)
    for i, c in enumerate(_LANCZOS):
        terms = terms + number(c) / (x + number(float(i)))
    shifted = x + number(6.5)
    found = (x - number(0.5)) * tir_op.log(shifted) - shifted + tir_op.log(terms) + number(0.5 * math.log(2 * math.pi))
    return choose(x > number(1e300), number(math.inf), found)


def lgamma(x: Tensor) -> Tensor:
    """log |Gamma(x)|; infinite at 0 and negative integers."""

    def rule(v: PrimExpr) -> PrimExpr:
        def reflected(above: PrimExpr) -> PrimExpr:
            # sin(pi v) by the distance from the nearest integer, which is exact.
            sine = tir_op.sin(number(math.pi) * (v - tir_op.round(v)))
            below = tir_op.log(number(math.pi)) - tir_op.log(tir_op.abs(sine)) - above
            return choose(v < number(0.5), below, above)

        whole = let(choose(v < number(0.5), number(1) - v, v), lambda u: let(_lgamma_above(u), reflected))
        return choose(tir_op.isinf(v), number(math.inf), whole)

    return elementwise(x, rule, "lgamma")


_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)
_STEPS = 10


def digamma(x: Tensor) -> Tensor:
    """The derivative of log Gamma; NaN at negative integers, and infinite at 0, with the sign of -x."""

    def above(v: PrimExpr) -> PrimExpr:
        """For v at least 1/2: at v + 10 by its series, and back."""
        steps = number(0)
        for i in range(_STEPS):
            steps = steps + number(1) / (v + number(float(i)))
        far = v + number(float(_STEPS))
        series = let(number(1) / (far * far), lambda w: w * polynomial(w, _DIGAMMA))
        return tir_op.log(far) - number(0.5) / far + series - steps

    def rule(v: PrimExpr) -> PrimExpr:
        turned = above(number(1) - v) - number(math.pi) / tir_op.tan(number(math.pi) * (v - tir_op.round(v)))
        low = choose(ops.equal(v, tir_op.floor(v)), number(math.nan), turned)
        at_zero = tir_op.copysign(number(math.inf), v * number(-1))
        found = choose(v < number(0.5), choose(ops.equal(v, number(0)), at_zero, low), above(v))
        return choose(v > number(1e300), v, found)

    return elementwise(x, rule, "digamma")


# 1/2, then B_2j / (2j)!
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)
_TERMS = 14


def polygamma(x: Tensor, order: int) -> Tensor:
    """The derivative of that order of the digamma function, order at least 1, by the sum of Euler and Maclaurin."""
    power = order + 1

    def to_power(base: PrimExpr, exponent: int) -> PrimExpr:
        result, square = number(1), base
        while exponent:
            if exponent & 1:
                result = result * square
            square, exponent = square * square, exponent >> 1
        return result

    def rule(v: PrimExpr) -> PrimExpr:
        total = number(0)
        for k in range(_TERMS):
            total = total + let(number(1) / (v + number(float(k))), lambda w: to_power(w, power))

        def rest(inverse: PrimExpr) -> PrimExpr:
            last = to_power(inverse, power - 1)
            terms, factor = [1 / (power - 1), 0.5], float(power)
            series = let(inverse * inverse, lambda w: polynomial(w, coefficients))
            return last * (number(terms[0]) + inverse * number(terms[1]) + inverse * inverse * series * factor)

        coefficients = []
        rising = 1.0
        for j, b in enumerate(_BERNOULLI):
            coefficients.append(b * rising)
            rising *= (power + 2 * j + 1) * (power + 2 * j + 2)
        total = total + let(number(1) / (v + number(float(_TERMS))), rest)
        at_pole = tir_op.all(v <= number(0), ops.equal(v, tir_op.floor(v)))
        found = choose(at_pole, number(math.inf), total)
        return number((-1.0) ** power * math.factorial(order)) * found

    return elementwise(x, rule, "polygamma")


# -- quantiles of the normal distribution, by Wichura's rational functions (AS 241, 1988) --

_CENTRE = (
    (
        3.3871328727963666080,
        133.14166789178437745,
        1971.5909503065514427,
        13731.693765509461125,
        45921.953931549871457,
        67265.770927008700853,
        33430.575583588128105,
        2509.0809287301226727,
    ),
    (
        1.0,
        42.313330701600911252,
        687.18700749205790830,
        5394.1960214247511077,
        21213.794301586595867,
        39307.895800092710610,
        28729.085735721942674,
        5226.4952788528545610,
    ),
)
_TAIL = (
    (
        1.42343711074968357734,
        4.63033784615654529590,
        5.76949722146069140550,
        3.64784832476320460504,
        1.27045825245236838258,
        0.241780725177450611770,
        0.0227238449892691845833,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187,
        1.67638483018380384940,
        0.689767334985100004550,
        0.148103976427480074590,
        0.0151986665636164571966,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_END = (
    (
        6.65790464350110377720,
        5.46378491116411436990,
        1.78482653991729133580,
        0.296560571828504891230,
        0.0265321895265761230930,
        0.00124266094738807843860,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        0.599832206555887937690,
        0.136929880922735805310,
        0.0148753612908506148525,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)


def _quantile(centred: PrimExpr, below: PrimExpr) -> PrimExpr:
    """The number that a normal number is under with probability 1/2 + centred; `below` is 1/2 - |centred|."""

    def ratio(r: PrimExpr, of: tuple[Sequence[float], Sequence[float]]) -> PrimExpr:
        return polynomial(r, of[0]) / polynomial(r, of[1])

    def far(q: PrimExpr) -> PrimExpr:
        tail = let(q - number(1.6), lambda r: ratio(r, _TAIL))
        size = choose(q <= number(5), tail, let(q - number(5), lambda r: ratio(r, _END)))
        return tir_op.copysign(size, centred)

    outside = let(tir_op.sqrt(number(0) - tir_op.log(below)), far)
    near = let(number(0.180625) - centred * centred, lambda r: centred * ratio(r, _CENTRE))
    found = choose(tir_op.abs(centred) > number(0.425), outside, near)
    infinite = tir_op.copysign(number(math.inf), centred)
    known = choose(ops.equal(below, number(0)), infinite, found)
    return choose(below >= number(0), known, number(math.nan))


def erfinv(x: Tensor) -> Tensor:
    """The number whose error function is x."""

    def rule(v: PrimExpr) -> PrimExpr:
        found = let(v * number(0.5), lambda c: let(number(0.5) - tir_op.abs(c), lambda below: _quantile(c, below)))
        return found * number(math.sqrt(0.5))

    return elementwise(x, rule, "erfinv")


def ndtri(x: Tensor) -> Tensor:
    """The number that a normal number is under with probability x."""

    def rule(v: PrimExpr) -> PrimExpr:
        below = choose(v < number(0.5), v, number(1) - v)
        return let(v - number(0.5), lambda c: let(below, lambda b: _quantile(c, b)))

    return elementwise(x, rule, "ndtri")


# erfc(x) exp(x²) (1 + 2 x) for x from 0 as a polynomial in (x - 3.75) / (x + 3.75), from a Chebyshev series in 40
# digits (after M. Shepherd and J. Laframboise, 1981).
_ERFCX = (
    1.2375126308378275,
    -0.14024059858554525,
    0.0035854154854790257,
    0.08227673848999506,
    -0.10880393014244462,
    0.09230432116428125,
    -0.05869339857664934,
    0.02836227737211114,
    -0.009746579683265274,
    0.0017556261651970671,
    0.00029371437804501076,
    -0.00029015535246077785,
    5.164652974162577e-05,
    2.238756571490317e-05,
    -1.143804803308238e-05,
    -9.792625707037908e-07,
    1.74198215832361e-06,
    -5.0844653820395066e-08,
    -2.485712622732177e-07,
    1.8790823244104125e-08,
    3.197926663674225e-08,
    -1.9551358918116265e-09,
    -2.6231073339815317e-09,
)


def erfcx(x: Tensor) -> Tensor:
    """exp(x²) (1 - erf(x))."""

    def square_exp(v: PrimExpr) -> PrimExpr:
        # Of x², most is exact: that of x to 1/16.
        def parts(near: PrimExpr) -> PrimExpr:
            return tir_op.exp(near * near) * tir_op.exp((v - near) * (v + near))

        return let(tir_op.floor(v * number(16)) * number(1 / 16), parts)

    def rule(v: PrimExpr) -> PrimExpr:
        def above(size: PrimExpr) -> PrimExpr:
            t = number(1) - number(7.5) / (size + number(3.75))
            return let(t, lambda t: polynomial(t, _ERFCX)) / (number(1) + number(2) * size)

        found = let(tir_op.abs(v), above)
        # exp(27²) is more than the largest number.
        below = choose(v < number(-27), number(math.inf), number(2) * square_exp(v))
        return let(found, lambda a: choose(v < number(0), below - a, a))

    return elementwise(x, rule, "erfcx")


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
            low = polynomial(size * number(0.25) - number(1), near) * (size if order else number(1))
            high = polynomial(number(16) / size - number(1 + 1e-3), beyond) / tir_op.sqrt(size)
            found = choose(size <= number(8), low, high)
            found = found if scaled else found * tir_op.exp(size)
            return choose(v < number(0), number(0) - found, found) if order == 1 else found

        return let(tir_op.abs(v), of_size)

    return elementwise(x, rule, f"i{order}{'e' if scaled else ''}")


# -- the parts of a number --


def _bits(dtype: str) -> tuple[str, int, int]:
    """The integers that hold floats, the bits of their mantissa, and the bias of their exponent."""
    return {"float32": ("int32", 23, 127), "float64": ("int64", 52, 1023)}[dtype]


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The number next to `x` (float32 or float64) in the direction of `y`, an operand of the same shape and dtype."""
    dtype = str(x.dtype)
    integer, _, _ = _bits(dtype)

    def element(*ax: PrimExpr) -> PrimExpr:
        a, b = x(*ax), y(*ax)
        up, zero = a < b, const(0.0, dtype)
        # Of negative numbers, those with more bits are below.
        away = ops.equal(up, a > zero)
        bits = tir_op.reinterpret(integer, a) + _choose_int(away, 1, -1, integer)
        smallest = tir_op.copysign(tir_op.reinterpret(dtype, const(1, integer)), b)
        found = choose(ops.equal(a, zero), smallest, tir_op.reinterpret(dtype, bits))
        found = choose(ops.equal(a, b), b, found)
        return choose(ops.logical_or(tir_op.isnan(a), tir_op.isnan(b)), a + b, found)

    return te.compute(x.shape, element, name="nextafter", tag=tag.ELEMWISE)


def _choose_int(condition: PrimExpr, yes: int, no: int, dtype: str) -> PrimExpr:
    return choose(condition, const(yes, dtype), const(no, dtype))


def _taken_apart(v: PrimExpr, dtype: str) -> tuple[PrimExpr, PrimExpr]:
    """What `math.frexp` gives: a fraction and, as an integer, an exponent; 0 is that of 0, infinities and NaN."""
    integer, mantissa, bias = _bits(dtype)
    # Numbers below the smallest normal one have no exponent of their own.
    low = tir_op.abs(v) < const(2.0 ** (1 - bias), dtype)
    bits = tir_op.reinterpret(integer, choose(low, v * const(2.0 ** (mantissa + 1), dtype), v))
    field = tir_op.bitwise_and(tir_op.shift_right(bits, const(mantissa, integer)), const(2 * bias + 1, integer))
    exponent = field - _choose_int(low, bias + mantissa, bias - 1, integer)
    kept = const(~((2 * bias + 1) << mantissa), integer)
    half = tir_op.bitwise_or(tir_op.bitwise_and(bits, kept), const((bias - 1) << mantissa, integer))
    plain = ops.logical_and(tir_op.isfinite(v), ops.not_equal(v, const(0.0, dtype)))
    return choose(plain, tir_op.reinterpret(dtype, half), v), choose(plain, exponent, const(0, integer))


def fraction(x: Tensor) -> Tensor:
    """The fraction of each number (float32 or float64): x = fraction 2^exponent, its magnitude in [1/2, 1)."""
    return te.compute(x.shape, lambda *ax: _taken_apart(x(*ax), str(x.dtype))[0], name="fraction", tag=tag.ELEMWISE)


def exponent(x: Tensor) -> Tensor:
    """The exponent of each number (float32 or float64) as int32; x = fraction 2^exponent."""

    def element(*ax: PrimExpr) -> PrimExpr:
        return _taken_apart(x(*ax), str(x.dtype))[1].astype("int32")

    return te.compute(x.shape, element, name="exponent", tag=tag.ELEMWISE)
