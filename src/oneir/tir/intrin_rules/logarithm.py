"""log, log2, log10, log1p, asinh, acosh, atanh.

x = 2^e * (1 + f) with 1 + f within [sqrt(1/2), sqrt(2)), where log(1 + f) is a polynomial.
"""

from __future__ import annotations

import math

from ...ir import operators as ops
from ...ir.expr import PrimExpr
from .exponential import LN2_HIGH, LN2_LOW, LOG10_2_HIGH, LOG10_2_LOW
from .formula import (
    SMALLEST_NORMAL,
    Formula,
    bits_of,
    float_of,
    float_rule,
    horner,
    like,
    magnitude,
    multiply_add,
    select,
    splat,
    sqrt,
    with_sign,
)

SQRT_HALF_BITS = 0x3F3504F3
LOG2_E_HIGH, LOG2_E_LOW = 1.4426950216293335, 1.925963033500011e-08
LOG10_E_HIGH, LOG10_E_LOW = 0.4342944920063019, -1.0103049952192578e-08
_LOG = (
    *(0.3333333134651184, -0.2500081956386566, 0.20001240074634552, -0.1662340760231018, 0.14201627671718597),
    *(-0.13159683346748352, 0.12761862576007843, -0.07635754346847534),
)
"""(log(1 + f) - f + f²/2) / f³"""


def as_float(k: PrimExpr) -> PrimExpr:
    """An int32 as float32."""
    return ops.cast(like(k.dtype, "float32"), k)


def split(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """1 + f within [sqrt(1/2), sqrt(2)) and e, as floats, of a positive x = 2^e * (1 + f), denormals included."""
    tiny = f.let(x < SMALLEST_NORMAL, "tiny")
    b = f.let(bits_of(select(tiny, x * 2.0**23, x)), "b")
    e = f.let((b - SQRT_HALF_BITS) >> 23, "e")
    return float_of(b - (e << 23)), f.let(as_float(e) - select(tiny, splat(23.0, x), 0.0), "ef")


def _tail(f: Formula, m: PrimExpr) -> PrimExpr:
    """log(1 + m) - m"""
    return f.let(m * m * multiply_add(m, horner(m, _LOG), -0.5), "tail")


def _natural(f: Formula, m: PrimExpr, e: PrimExpr) -> PrimExpr:
    """e ln 2 + log(1 + m)"""
    return multiply_add(e, LN2_HIGH, m + multiply_add(e, LN2_LOW, _tail(f, m)))


def _with_limits(f: Formula, x: PrimExpr, value: PrimExpr, zero_at: float) -> PrimExpr:
    """The values outside of the domain: minus infinity at `zero_at`, NaN below, infinity and NaN unchanged."""
    value = select(x < math.inf, value, x)
    value = select(x < zero_at, math.nan, value)
    return select(ops.equal(x, zero_at), -math.inf, value)


@float_rule("log")
def log(f: Formula, x: PrimExpr) -> PrimExpr:
    """The natural logarithm."""
    m, e = split(f, x)
    return _with_limits(f, x, _natural(f, f.let(m - 1.0, "m"), e), 0.0)


@float_rule("log2")
def log2(f: Formula, x: PrimExpr) -> PrimExpr:
    """e + log(1 + m) / ln 2, with 1 / ln 2 in two parts."""
    m, e = split(f, x)
    m = f.let(m - 1.0, "m")
    tail = _tail(f, m)
    low = multiply_add(tail, LOG2_E_HIGH, multiply_add(m, LOG2_E_LOW, tail * LOG2_E_LOW))
    return _with_limits(f, x, multiply_add(m, LOG2_E_HIGH, low) + e, 0.0)


@float_rule("log10")
def log10(f: Formula, x: PrimExpr) -> PrimExpr:
    """e log10(2) + log(1 + m) / ln 10, the constants in two parts."""
    m, e = split(f, x)
    m = f.let(m - 1.0, "m")
    low = multiply_add(_tail(f, m), LOG10_E_HIGH, multiply_add(m, LOG10_E_LOW, e * LOG10_2_LOW))
    return _with_limits(f, x, multiply_add(e, LOG10_2_HIGH, multiply_add(m, LOG10_E_HIGH, low)), 0.0)


def _log1p_finite(f: Formula, x: PrimExpr, extra_doubling: PrimExpr | None = None) -> PrimExpr:
    """log(1 + x) of finite x > -1 that is not tiny, plus ln 2 for each `extra_doubling`.

    u = 1 + x is rounded; its rounding error c is added to the mantissa at the mantissa's scale.
    """
    u = f.let(x + 1.0, "u")
    c = x - (u - 1.0)
    b = f.let(bits_of(u), "b")
    e = f.let((b - SQRT_HALF_BITS) >> 23, "e")
    shifted = f.let(e << 23)
    double_scale = float_of(0x40000000 - shifted)  # 2^(1 - e), and 0 for e = 128
    m = f.let(multiply_add(c * 0.5, double_scale, float_of(b - shifted) - 1.0), "m")
    count = as_float(e)
    return _natural(f, m, f.let(count if extra_doubling is None else count + extra_doubling, "ef"))


def _log1p_tiny(x: PrimExpr) -> PrimExpr:
    return multiply_add(x * x, -0.5, x)


@float_rule("log1p")
def log1p(f: Formula, x: PrimExpr) -> PrimExpr:
    """log(1 + x)"""
    value = _with_limits(f, x, _log1p_finite(f, x), -1.0)
    return select(magnitude(x) < 1e-4, _log1p_tiny(x), value)


@float_rule("asinh")
def asinh(f: Formula, x: PrimExpr) -> PrimExpr:
    """log1p(a + a² / (1 + sqrt(a² + 1))); of large a, log(a) + ln 2."""
    a = f.let(magnitude(x), "a")
    large = f.let(a > 1e4, "large")
    square = f.let(a * a)
    v = f.let(select(large, a - 1.0, a + square / (1.0 + sqrt(square + 1.0))), "v")
    value = _log1p_finite(f, v, select(large, splat(1.0, x), 0.0))
    value = select(a < math.inf, value, a)
    return with_sign(select(a < 1e-3, multiply_add(square * a, -1 / 6, a), value), x)


@float_rule("acosh")
def acosh(f: Formula, x: PrimExpr) -> PrimExpr:
    """log1p(t + sqrt(t² + 2t)) with t = x - 1; of large x, log(x) + ln 2."""
    large = f.let(x > 1e4, "large")
    t = f.let(x - 1.0, "t")
    v = f.let(select(large, t, t + sqrt(multiply_add(t, t, t + t))), "v")
    value = _log1p_finite(f, v, select(large, splat(1.0, x), 0.0))
    value = select(v < 1e-4, _log1p_tiny(v), value)
    value = select(x < math.inf, value, x)
    return select(x < 1.0, math.nan, value)


@float_rule("atanh")
def atanh(f: Formula, x: PrimExpr) -> PrimExpr:
    """log1p(2a / (1 - a)) / 2"""
    a = f.let(magnitude(x), "a")
    v = f.let((a + a) / (1.0 - a), "v")
    value = _with_limits(f, v, _log1p_finite(f, v), -1.0)
    return with_sign(select(a < 1e-3, multiply_add(a * a * a, 1 / 3, a), value * 0.5), x)
