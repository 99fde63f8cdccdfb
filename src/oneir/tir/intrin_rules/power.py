"""pow, rsqrt, hypot, ldexp."""

from __future__ import annotations

import math

from ...ir import operators as ops
from ...ir.expr import Broadcast, Call, FloatImm, PrimExpr
from ...ir.op import register_intrin_lowering
from ..op import call_pure_extern, reinterpret
from .exponential import exp2_fraction
from .formula import (
    ROUNDER64,
    Formula,
    bits_of,
    float_of,
    float_rule,
    horner,
    like,
    magnitude,
    multiply_add,
    scale,
    select,
    sign_of,
    splat,
    sqrt,
    unary,
)
from .logarithm import split

_LOG2 = (2.885390081790168, 0.9617966732475028, 0.577083601907695, 0.4116717473884811, 0.34074747586325593)
"""log2(m) / s in s², s = (m - 1) / (m + 1)"""


def _wide(x: PrimExpr) -> PrimExpr:
    return ops.cast(like(x.dtype, "float64"), x)


def _narrow(x: PrimExpr) -> PrimExpr:
    return ops.cast(like(x.dtype, "float32"), x)


def _positive_power(f: Formula, a: PrimExpr, y: PrimExpr) -> PrimExpr:
    """a^y = 2^(y log2 a) of a > 0, the exponent in float64, since its error is multiplied by its size."""
    m, e = split(f, a)
    m = f.let(_wide(f.let(m, "m")), "m64")
    s = f.let((m - 1.0) / (m + 1.0), "s")
    logarithm = multiply_add(s, horner(f.let(s * s, "t"), _LOG2), _wide(e))
    w = f.let(logarithm * _wide(y), "w")
    w = f.let(select(w < -160.0, -160.0, w))
    w = f.let(select(w > 140.0, 140.0, w))
    z = f.let(w + ROUNDER64, "z")
    r = f.let(_narrow(w - (z - ROUNDER64)), "r")
    k = f.let(ops.cast(like(a.dtype, "int32"), reinterpret(like(a.dtype, "int64"), z)), "k")
    return f.let(scale(f, exp2_fraction(r), k), "v")


@float_rule("pow")
def power(f: Formula, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """x^y with C's rules: 1 for y = 0 or x = 1, even of NaN; odd powers keep the sign; NaN of roots of negatives."""
    a = f.let(magnitude(x), "a")
    value = _positive_power(f, a, y)
    zero, one, inf = splat(0.0, x), splat(1.0, x), splat(math.inf, x)
    down = f.let(y < 0.0, "down")
    shrinking, growing = f.let(select(down, inf, zero), "shrinking"), f.let(select(down, zero, inf), "growing")
    value = select(ops.equal(a, 0.0), shrinking, value)
    value = select(ops.equal(a, math.inf), growing, value)
    limit = select(ops.equal(a, 1.0), one, select(a > 1.0, growing, shrinking))
    value = select(ops.equal(magnitude(y), math.inf), limit, value)
    value = select(a <= math.inf, value, x)
    value = f.let(select(ops.equal(y, y), value, y), "value")
    half = f.let(y * 0.5, "half")
    whole = f.let(ops.equal(unary("nearbyint", y), y), "whole")
    odd = ops.logical_and(whole, ops.not_equal(unary("nearbyint", half), half))
    sign = select(odd, sign_of(x), 0)
    value = float_of(bits_of(value) ^ sign)
    undefined = ops.logical_and(x < 0.0, ops.logical_and(a < math.inf, ops.logical_not(whole)))
    value = select(ops.logical_and(undefined, ops.equal(y, y)), math.nan, value)
    return select(ops.logical_or(ops.equal(x, 1.0), ops.equal(y, 0.0)), one, value)


_general_power = ops.as_op("tir.pow").get_attr("llvm.FLowerIntrinsic")


def _lower_pow(call: Call) -> PrimExpr:
    """Small constant exponents as products."""
    x, y = call.args
    exponent = y.value if isinstance(y, Broadcast) else y
    if isinstance(exponent, FloatImm) and exponent.value in (1.0, 2.0, 3.0, -1.0):
        f = Formula()
        x = f.let(x, "x")
        product = {1.0: x, 2.0: x * x, 3.0: x * x * x, -1.0: 1.0 / x}[exponent.value]
        return f.close(product)
    return _general_power(call)


register_intrin_lowering("tir.pow", "llvm", f=_lower_pow)


def _lower_rsqrt(call: Call) -> PrimExpr:
    """1 / sqrt(x)"""
    return 1.0 / sqrt(call.args[0])


register_intrin_lowering("tir.rsqrt", "default", f=_lower_rsqrt)


@float_rule("hypot")
def hypot(f: Formula, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """sqrt(x² + y²) in float64, where no square overflows; infinite when either is, whatever the other."""
    x64, y64 = f.let(_wide(x)), f.let(_wide(y))
    infinite = ops.logical_or(ops.equal(magnitude(x), math.inf), ops.equal(magnitude(y), math.inf))
    return select(infinite, math.inf, _narrow(sqrt(multiply_add(x64, x64, y64 * y64))))


def _lower_ldexp(call: Call) -> PrimExpr:
    """x * 2^n, rounded once: in float64 both factors and the product are exact."""
    x, n = call.args
    if call.dtype.element == "float64":
        return call_pure_extern(call.dtype, "ldexp", x, ops.cast(like(n.dtype, "int32"), n))
    n = ops.minimum(ops.maximum(ops.cast(like(x.dtype, "int64"), n), -320), 320)
    factor = reinterpret(like(x.dtype, "float64"), (n + 1023) << 52)
    return ops.cast(call.dtype, _wide(x) * factor)


register_intrin_lowering("tir.ldexp", "llvm", f=_lower_ldexp)
