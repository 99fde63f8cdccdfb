"""Special functions, native, against identities that define them and functions of Python and NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import oneir
from oneir import te
from oneir.topi import special

POINTS = np.concatenate([np.linspace(-6.7, 30, 200), [1e-6, 1.0, 2.0, 1e5]])


def computed(function: Callable[..., Any], x: np.ndarray, *args: Any) -> np.ndarray:
    """What the compiled loops of a function give."""
    source = te.placeholder(x.shape, str(x.dtype), name="source")
    kernel = oneir.build(te.create_prim_func([source, function(source, *args)]), "llvm")
    result = oneir.runtime.empty(x.shape, str(x.dtype))
    kernel(oneir.runtime.tensor(x), result)
    return result.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log_of_gamma(dtype):
    points = POINTS.astype(dtype)
    expected = [math.lgamma(v) for v in points]
    np.testing.assert_allclose(computed(special.lgamma, points), expected, 2e-7 if dtype == "float32" else 1e-12, 1e-12)
    poles = np.array([0, -1, -5, math.inf], dtype)
    assert np.all(np.isposinf(computed(special.lgamma, poles)))


def test_digamma():
    found = computed(special.digamma, POINTS)
    np.testing.assert_allclose(computed(special.digamma, POINTS + 1), found + 1 / POINTS, 1e-9)
    assert computed(special.digamma, np.array([1.0]))[0] == pytest.approx(-0.57721566490153286)
    ends = computed(special.digamma, np.array([0.0, -0.0, -2.0, math.inf]))
    assert ends[0] == -math.inf and ends[1] == math.inf and np.isnan(ends[2]) and ends[3] == math.inf


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_polygamma(order):
    sign = (-1.0) ** order * math.factorial(order)
    found = computed(special.polygamma, POINTS, order)
    after = computed(special.polygamma, POINTS + 1, order)
    np.testing.assert_allclose(after, found + sign * POINTS ** -(order + 1.0), 1e-8, 1e-12 * abs(found).max())
    direct = -sign * sum((2.5 + k) ** -(order + 1.0) for k in range(200_000))
    assert computed(special.polygamma, np.array([2.5]), order)[0] == pytest.approx(direct, rel=2e-5)


def exactly(function: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """The values of a function that is computed with 400 digits."""
    with mpmath.workdps(400):
        return np.array([float(function(mpmath.mpf(float(v)))) for v in x])


def test_quantiles():
    x = np.concatenate([np.linspace(-0.999, 0.999, 101), 1 - 10.0 ** -np.arange(4, 16), [1e-300, 1e-9, 0.85, -0.85]])
    np.testing.assert_allclose(computed(special.erfinv, x), exactly(mpmath.erfinv, x), 4e-15)
    p = np.concatenate([10.0 ** -np.arange(1, 300, 13), [5e-324, 0.075, 0.3, 0.5, 0.50001, 0.9, 1 - 1e-15]])
    expected = exactly(lambda v: mpmath.sqrt(2) * mpmath.erfinv(2 * v - 1), p)
    np.testing.assert_allclose(computed(special.ndtri, p), expected, 4e-15)
    ends = computed(special.erfinv, np.array([1.0, -1.0, 1.1, math.nan]))
    assert ends[0] == math.inf and ends[1] == -math.inf and np.all(np.isnan(ends[2:]))
    ends = computed(special.ndtri, np.array([0.0, 1.0, -0.1, 1.1, math.nan]))
    assert ends[0] == -math.inf and ends[1] == math.inf and np.all(np.isnan(ends[2:]))


def test_scaled_complement_of_the_error_function():
    x = np.concatenate([np.linspace(-26.5, 30, 199), 10.0 ** np.arange(-12, 9)])
    expected = exactly(lambda v: mpmath.exp(v * v) * mpmath.erfc(v) if v < 1e5 else 1 / (mpmath.sqrt(mpmath.pi) * v), x)
    expected = np.where(x >= 1e5, expected * (1 - 0.5 / x**2), expected)
    np.testing.assert_allclose(computed(special.erfcx, x), expected, 4e-15)
    ends = computed(special.erfcx, np.array([math.inf, -math.inf, -1e3, math.nan]))
    assert ends[0] == 0 and ends[1] == ends[2] == math.inf and np.isnan(ends[3])


@pytest.mark.parametrize("scaled", [False, True])
def test_modified_bessel_functions(scaled):
    x = np.concatenate([np.linspace(-30, 30, 120), [0.0, 300.0]])
    factor = np.exp(-abs(x)) if scaled else np.ones_like(x)
    np.testing.assert_allclose(computed(special.bessel_i, x, 0, scaled), np.i0(x) * factor, 1e-9)
    series = [
        sum(float(v / 2) ** (2 * k + 1) / (math.gamma(k + 1) * math.gamma(k + 2)) for k in range(85)) for v in x[:-1]
    ]
    np.testing.assert_allclose(computed(special.bessel_i, x, 1, scaled)[:-1], series * factor[:-1], 1e-9)
