"""Bessel functions of the first and second kind and modified ones of orders 0 and 1, and the Airy function.

Computed in float64 and rounded to the dtype of the argument. The polynomials come from the functions' integrals, by the
trapezoidal rule, which converges exponentially for them, and from their power series (DLMF, chapters 9 and 10).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..ir import operators as ops
from ..ir.expr import PrimExpr
from ..te.tensor import Tensor
from ..tir import op as tir_op
from .special import choose, elementwise, let, number, polynomial

_EULER = 0.57721566490153286
_NEAR = 5.0
"""Below, power series lose no digits that matter; above, the waves' amplitudes are polynomials of low degree."""
_NEAR_K = 2.0


def _fit(function: Callable[[np.ndarray], np.ndarray], degree: int) -> tuple[float, ...]:
    """Coefficients of a polynomial for arguments from -1 to 1, the constant term first."""
    series = np.polynomial.Chebyshev.interpolate(function, degree)
    return tuple(np.polynomial.chebyshev.cheb2poly(series.coef).tolist())


def _of_hankel(order: float, x: np.ndarray, turn: complex) -> np.ndarray:
    """The factor of exp(-turn x) sqrt(pi / (2 x)) in the integral of K, or with `turn` -i in that of Hankel's function.

    It is the mean of (1 + u / (2 turn x))^(order - 1/2) with the weight u^(order - 1/2) exp(-u); with u = s^6 the
    integrand is smooth for orders 0, 1/3 and 1.
    """
    s = np.arange(1, 1400) * 0.0015
    weight = 6 * s ** (6 * order + 2) * np.exp(-(s**6))
    terms = (1 + np.divide.outer(1 / (2 * turn * x), 1 / s**6)) ** (order - 0.5)
    return (terms * weight).sum(axis=-1) * 0.0015 / math.gamma(order + 0.5)


class _Waves(NamedTuple):
    """Polynomials of an amplitude in 2 w - 1, w = (`_NEAR` / x)²: P, and Q x."""

    even: tuple[float, ...]
    odd: tuple[float, ...]


@functools.cache
def _waves(order: float) -> _Waves:
    """P and Q of J = sqrt(2 / (pi x)) (P cos(a) - Q sin(a)) and Y = sqrt(2 / (pi x)) (P sin(a) + Q cos(a)), where
    a = x - order pi / 2 - pi / 4.
    """

    def at(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = _NEAR / np.sqrt(np.maximum((t + 1) / 2, 1e-12))
        return x, _of_hankel(order, x, -1j)

    return _Waves(_fit(lambda t: np.real(at(t)[1]), 24), _fit(lambda t: np.imag(at(t)[1]) * at(t)[0], 24))


def _harmonic(k: int) -> float:
    return math.fsum(1 / i for i in range(1, k + 1))


@functools.cache
def _series(order: int, terms: int, alternating: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """J or I over (x/2)^order as a power series in x² / 4, and the series of Y or K that has no logarithm."""
    signs = [(-1) ** k if alternating else 1 for k in range(terms)]
    first = [s / (math.factorial(k) * math.factorial(k + order)) for k, s in enumerate(signs)]
    digamma = [_harmonic(k) + _harmonic(k + order) - 2 * _EULER for k in range(terms)]
    return tuple(first), tuple(c * d for c, d in zip(first, digamma, strict=True))


def _wave(size: PrimExpr, order: int, second: bool) -> PrimExpr:
    """J, or Y if `second`, of arguments above `_NEAR`."""
    even, odd = _waves(order)

    def at(t: PrimExpr) -> PrimExpr:
        p, q = polynomial(t, even), polynomial(t, odd) / size
        angle = size - number((0.5 * order + 0.25) * math.pi)
        cosine, sine = tir_op.cos(angle), tir_op.sin(angle)
        return p * sine + q * cosine if second else p * cosine - q * sine

    w = number(_NEAR) / size
    found = let(w * w * number(2) - number(1), at) * tir_op.sqrt(number(2 / math.pi) / size)
    return choose(tir_op.isinf(size), number(0), found)


def _first_kind(size: PrimExpr, order: int) -> PrimExpr:
    """J of arguments that are not negative."""
    first, _ = _series(order, 26, True)
    near = let(size * size * number(0.25), lambda w: polynomial(w, first)) * (
        size * number(0.5) if order else number(1)
    )
    return choose(size < number(_NEAR), near, _wave(size, order, False))


def bessel_j(x: Tensor, order: int) -> Tensor:
    """The Bessel function of the first kind, of order 0 or 1."""

    def rule(v: PrimExpr) -> PrimExpr:
        found = let(tir_op.abs(v), lambda size: _first_kind(size, order))
        return choose(v < number(0), number(0) - found, found) if order else found

    return elementwise(x, rule, f"j{order}")


def bessel_y(x: Tensor, order: int) -> Tensor:
    """The Bessel function of the second kind, of order 0 or 1: -inf at 0, NaN below."""
    _, second = _series(order, 26, True)

    def rule(v: PrimExpr) -> PrimExpr:
        series = let(v * v * number(0.25), lambda w: polynomial(w, second))
        log = number(2 / math.pi) * tir_op.log(v * number(0.5)) * _first_kind(v, order)
        if order:
            near = log - (number(2) / v + v * number(0.5) * series) * number(1 / math.pi)
        else:
            near = log - series * number(1 / math.pi)
        found = choose(v < number(_NEAR), near, _wave(v, order, True))
        return choose(v <= number(0), choose(v < number(0), number(math.nan), number(-math.inf)), found)

    return elementwise(x, rule, f"y{order}")


@functools.cache
def _decay(order: float) -> tuple[float, ...]:
    """sqrt(2 x / pi) exp(x) K(x) for x above `_NEAR_K`, as a polynomial in 2 `_NEAR_K` / x - 1."""

    def at(t: np.ndarray) -> np.ndarray:
        return np.real(_of_hankel(order, 2 * _NEAR_K / np.maximum(t + 1, 1e-12), 1.0))

    return _fit(at, 24)


def bessel_k(x: Tensor, order: int, scaled: bool) -> Tensor:
    """The modified Bessel function of the second kind, of order 0 or 1; if `scaled`, times exp(x).

    Infinite at 0, NaN below.
    """
    first, second = _series(order, 16, False)
    decay = _decay(order)

    def rule(v: PrimExpr) -> PrimExpr:
        def of_square(w: PrimExpr) -> PrimExpr:
            half, log = v * number(0.5), tir_op.log(v * number(0.5))
            if order:
                return number(1) / v + half * (log * polynomial(w, first) - number(0.5) * polynomial(w, second))
            return number(0.5) * polynomial(w, second) - log * polynomial(w, first)

        near = let(v * v * number(0.25), of_square)
        far = let(number(2 * _NEAR_K) / v - number(1), lambda t: polynomial(t, decay))
        far = far * tir_op.sqrt(number(math.pi / 2) / v)
        if scaled:
            near = near * tir_op.exp(v)
        else:
            far = far * tir_op.exp(number(0) - v)
        found = choose(v <= number(_NEAR_K), near, far)
        return choose(v <= number(0), choose(v < number(0), number(math.nan), number(math.inf)), found)

    return elementwise(x, rule, f"k{order}{'e' if scaled else ''}")


@functools.cache
def _airy_series() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ai as two power series in x³, the second of which is times x."""
    at_zero = 1 / (3 ** (2 / 3) * math.gamma(2 / 3))
    slope = -1 / (3 ** (1 / 3) * math.gamma(1 / 3))
    even, odd = [at_zero], [slope]
    for k in range(1, 26):
        even.append(even[-1] / ((3 * k - 1) * (3 * k)))
        odd.append(odd[-1] / ((3 * k) * (3 * k + 1)))
    return tuple(even), tuple(odd)


def airy_ai(x: Tensor) -> Tensor:
    """The Airy function Ai, by K of order 1/3 above 2.09 and by waves below -4.5."""
    even, odd = _airy_series()
    waves, decay = _waves(1 / 3), _decay(1 / 3)

    def rule(v: PrimExpr) -> PrimExpr:
        near = let(v * v * v, lambda w: polynomial(w, even) + v * polynomial(w, odd))

        def far(size: PrimExpr) -> PrimExpr:
            root = tir_op.sqrt(size)
            return let(size * root * number(2 / 3), lambda zeta: beyond(zeta, tir_op.sqrt(root)))

        def beyond(zeta: PrimExpr, fourth_root: PrimExpr) -> PrimExpr:
            above = let(number(2 * _NEAR_K) / zeta - number(1), lambda t: polynomial(t, decay))
            above = above * tir_op.exp(number(0) - zeta) * number(0.5)
            w, angle = number(_NEAR) / zeta, zeta - number(math.pi / 4)

            def wave(t: PrimExpr) -> PrimExpr:
                p, q = polynomial(t, waves.even), polynomial(t, waves.odd) / zeta
                return p * tir_op.cos(angle) - q * tir_op.sin(angle)

            below = let(w * w * number(2) - number(1), wave)
            return choose(v > number(0), above, below) / (fourth_root * number(math.sqrt(math.pi)))

        is_near = ops.logical_and(v > number(-4.5), v < number(2.09))
        found = choose(is_near, near, let(tir_op.abs(v), far))
        return choose(tir_op.isinf(v), number(0), found)

    return elementwise(x, rule, "airy_ai")
