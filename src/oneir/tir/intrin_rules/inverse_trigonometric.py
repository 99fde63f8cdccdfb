"""atan, atan2, asin, acos."""

from __future__ import annotations

from ...ir import operators as ops
from ...ir.expr import PrimExpr
from .formula import (
    Formula,
    bits_of,
    flip_sign,
    float_rule,
    horner,
    magnitude,
    multiply_add,
    select,
    sign_of,
    splat,
    sqrt,
    with_sign,
)

_HALF_PI, _HALF_PI_LOW = 1.5707963705062866, -4.371139e-08
_PI, _PI_LOW = 3.1415927410125732, -8.742278e-08
"""Rounded to float32, and what is left to the true value."""
_ATAN = (
    *(-0.33333152532577515, 0.19993767142295837, -0.14211001992225647, 0.10665770620107651, -0.0755167081952095),
    *(0.043204985558986664, -0.01636345125734806, 0.0029195179231464863),
)
_ASIN = (0.16666753590106964, 0.07495252043008804, 0.0454760417342186, 0.02415209263563156, 0.04221179708838463)


def _atan_small(f: Formula, z: PrimExpr) -> PrimExpr:
    """atan(z) for |z| <= 1."""
    t = f.let(z * z, "t")
    return f.let(multiply_add(z * t, horner(t, _ATAN), z), "small")


@float_rule("atan")
def atan(f: Formula, x: PrimExpr) -> PrimExpr:
    """Above 1, pi/2 - atan(1/x)."""
    a = f.let(magnitude(x), "a")
    large = f.let(a > 1.0, "large")
    y = _atan_small(f, f.let(select(large, -1.0, a) / select(large, a, 1.0), "z"))
    return with_sign(select(large, (y + _HALF_PI_LOW) + _HALF_PI, y), x)


@float_rule("atan2")
def atan2(f: Formula, y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """The angle of (x, y): that of the smaller over the larger magnitude, put into its octant."""
    ax, ay = f.let(magnitude(x), "ax"), f.let(magnitude(y), "ay")
    steep = f.let(ay > ax, "steep")
    smaller, larger = select(steep, ax, ay), f.let(select(steep, ay, ax), "larger")
    z = select(ops.equal(ax, ay), select(ops.equal(larger, 0.0), splat(0.0, x), 1.0), smaller / larger)
    angle = _atan_small(f, f.let(z, "z"))
    angle = f.let(select(steep, (_HALF_PI_LOW - angle) + _HALF_PI, angle), "angle")
    angle = with_sign(select(bits_of(x) < 0, (_PI_LOW - angle) + _PI, angle), y)
    return select(ops.logical_or(ops.not_equal(x, x), ops.not_equal(y, y)), x + y, angle)


def _asin_parts(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Whether |x| > 1/2, and asin(|x|), or then asin(sqrt((1 - |x|) / 2))."""
    a = f.let(magnitude(x), "a")
    large = f.let(a > 0.5, "large")
    t = f.let(select(large, multiply_add(a, -0.5, 0.5), x * x), "t")
    z = f.let(select(large, sqrt(t), a), "z")
    return large, f.let(multiply_add(z * t, horner(t, _ASIN), z), "y")


@float_rule("asin")
def asin(f: Formula, x: PrimExpr) -> PrimExpr:
    """Above 1/2, pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    large, y = _asin_parts(f, x)
    return with_sign(select(large, _HALF_PI - multiply_add(y, 2.0, -_HALF_PI_LOW), y), x)


@float_rule("acos")
def acos(f: Formula, x: PrimExpr) -> PrimExpr:
    """Above 1/2, 2 asin(sqrt((1 - x) / 2)); below -1/2, pi minus that of -x."""
    large, y = _asin_parts(f, x)
    double = f.let(y + y)
    far = select(x < 0.0, _PI - (double - _PI_LOW), double)
    near = _HALF_PI - (flip_sign(y, sign_of(x)) - _HALF_PI_LOW)
    return select(large, far, near)
