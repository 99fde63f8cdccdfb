"""Bessel functions and functions whose elements take loops, native, against the same with 50 digits (mpmath)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import oneir
from oneir import te
from oneir.topi import bessel, elementwise_loops

POINTS = np.concatenate([[1e-8], np.linspace(1e-3, 12, 97), np.linspace(13, 300, 20)])


def computed(function: Callable[..., Any], arrays: list[np.ndarray], *args: Any) -> np.ndarray:
    """What the compiled loops of a function give."""
    sources = [te.placeholder(x.shape, str(x.dtype), name=f"x{i}") for i, x in enumerate(arrays)]
    kernel = oneir.build(te.create_prim_func([*sources, function(*sources, *args)]), "llvm")
    result = oneir.runtime.empty(arrays[0].shape, str(arrays[0].dtype))
    kernel(*map(oneir.runtime.tensor, arrays), result)
    return result.numpy()


def exactly(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The values of a function that is computed with 50 digits."""
    with mpmath.workdps(50):
        return np.array([float(function(*map(mpmath.mpf, map(float, v)))) for v in zip(*arrays, strict=True)])


@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions(order: int) -> None:
    both = np.concatenate([POINTS, -POINTS])
    # Where waves are 0, the error is that of the argument.
    waves = {"rtol": 1e-13, "atol": 1e-14}
    np.testing.assert_allclose(
        computed(bessel.bessel_j, [both], order), exactly(lambda v: mpmath.besselj(order, v), both), **waves
    )
    np.testing.assert_allclose(
        computed(bessel.bessel_y, [POINTS], order), exactly(lambda v: mpmath.bessely(order, v), POINTS), **waves
    )
    for scaled in (False, True):
        expected = exactly(lambda v: mpmath.besselk(order, v) * (mpmath.exp(v) if scaled else 1), POINTS)
        np.testing.assert_allclose(computed(bessel.bessel_k, [POINTS], order, scaled), expected, 2e-14)
    ends = np.array([0.0, -1.0, np.inf, np.nan])
    np.testing.assert_array_equal(computed(bessel.bessel_y, [ends], order), [-np.inf, np.nan, 0, np.nan])
    np.testing.assert_array_equal(computed(bessel.bessel_k, [ends], order, True), [np.inf, np.nan, 0, np.nan])
    np.testing.assert_array_equal(computed(bessel.bessel_j, [ends[2:]], order), [0, np.nan])


def test_the_airy_function() -> None:
    points = np.linspace(-40, 25, 261)
    np.testing.assert_allclose(computed(bessel.airy_ai, [points]), exactly(mpmath.airyai, points), 1e-13, 2e-14)
    np.testing.assert_array_equal(computed(bessel.airy_ai, [np.array([np.inf, np.nan])]), [0, np.nan])


POLYNOMIALS = {
    "chebyshev_t": lambda v, n: mpmath.chebyt(int(n), v),
    "chebyshev_u": lambda v, n: mpmath.chebyu(int(n), v),
    # Those of the third and fourth kind are differences and sums of those of the second.
    "chebyshev_v": lambda v, n: mpmath.chebyu(int(n), v) - mpmath.chebyu(int(n) - 1, v) if n else mpmath.mpf(1),
    "chebyshev_w": lambda v, n: mpmath.chebyu(int(n), v) + mpmath.chebyu(int(n) - 1, v) if n else mpmath.mpf(1),
    "hermite_h": lambda v, n: mpmath.hermite(int(n), v),
    "hermite_he": lambda v, n: mpmath.hermite(int(n), v / mpmath.sqrt(2)) * mpmath.mpf(2) ** (-n / 2),
    "laguerre_l": lambda v, n: mpmath.laguerre(int(n), 0, v),
    "legendre_p": lambda v, n: mpmath.legendre(int(n), v),
}


@pytest.mark.parametrize("family", POLYNOMIALS)
def test_orthogonal_polynomials(family: str) -> None:
    x = np.repeat(np.linspace(-1.9, 2.3, 22), 7)
    degree = np.tile([0.0, 1, 2, 3, 5, 8, 17], 22)
    found = computed(elementwise_loops.orthogonal_polynomial, [x, degree], family)
    expected = exactly(POLYNOMIALS[family], x, degree)
    np.testing.assert_allclose(found, expected, 1e-12, 1e-12 * abs(expected).max())
    negative = computed(elementwise_loops.orthogonal_polynomial, [x, -degree - 1], family)
    np.testing.assert_array_equal(negative, np.zeros_like(x))


@pytest.mark.parametrize("upper", [False, True])
def test_incomplete_gamma_functions(upper: bool) -> None:
    a = np.repeat([1e-3, 0.3, 1, 2.5, 10, 99.5], 26)
    x = np.tile(np.concatenate([np.geomspace(1e-4, 300, 20), np.linspace(80, 120, 6)]), 6)

    def exact(p: Any, v: Any) -> Any:
        return mpmath.gammainc(p, v, regularized=True) if upper else mpmath.gammainc(p, 0, v, regularized=True)

    np.testing.assert_allclose(computed(elementwise_loops.gamma_p, [a, x], upper), exactly(exact, a, x), 1e-11, 1e-300)
    a = np.array([0, 0, 1, np.inf, np.inf, 1, -1, 1, np.nan])
    x = np.array([0, 1, 0, 1, np.inf, np.inf, 1, -1, 1.0])
    lower = np.array([np.nan, 1, 0, 0, np.nan, 1, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(computed(elementwise_loops.gamma_p, [a, x], upper), 1 - lower if upper else lower)


def test_the_zeta_function() -> None:
    x = np.repeat([1.0001, 1.5, 2, 3, 7.5, 30, 100], 12)
    q = np.tile([1e-3, 0.5, 1, 2, 9.5, 10, 50, 1e4, 1e8, 0.1, 3, 7], 7)
    np.testing.assert_allclose(computed(elementwise_loops.zeta, [x, q]), exactly(mpmath.zeta, x, q), 1e-12)
    x, q = np.array([3.0, 2, 1, 0.5, 2, 2.5, 3]), np.array([-3.5, -20.25, 2, 2, -2, -0.5, np.inf])
    expected = [*exactly(mpmath.zeta, x[:2], q[:2]), np.inf, np.nan, np.inf, np.nan, 0]
    np.testing.assert_allclose(computed(elementwise_loops.zeta, [x, q]), expected, 1e-12)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_greatest_common_divisors(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2000, 2000, (4, 50)).astype(dtype), rng.integers(-60, 60, (4, 50)).astype(dtype)
    a[0, :3], b[0, 1:5] = 0, 0
    np.testing.assert_array_equal(computed(elementwise_loops.gcd, [a, b]), np.gcd(a, b))
