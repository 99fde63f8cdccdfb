"""sin, cos, tan.

x = k pi/2 + r with |r| <= pi/4. Up to 2^16 the reduction takes pi/2 in three float32 parts. Beyond, 2/pi is multiplied
in integers, to as many bits as the exponent asks for; that is computed only when a lane needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select, const
from ...ir.op import Op
from ..op import TBranchesOnVectors, if_then_else
from .formula import (
    ROUNDER,
    Formula,
    any_lane,
    bits_of,
    float_of,
    float_rule,
    fma,
    horner,
    like,
    magnitude,
    multiply_add,
    select,
)

_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100059e-15)
_SIN = (-0.16666655242443085, 0.008332191035151482, -0.0001951859740074724)
_COS = (0.04166664555668831, -0.00138873013202101, 2.443066841806285e-05)
_TAN = (
    *(0.3333313763141632, 0.13339245319366455, 0.05337771773338318, 0.024540415033698082, 0.00295540364459157),
    0.009476711973547935,
)
_LARGE = 65536.0
_LARGE_EXPONENT = 143
"""The biased exponent of `_LARGE`."""
_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561
"""The first 256 bits of the fraction 2 / pi."""


def _windows() -> list[tuple[int, int]]:
    """128 bits of 2/pi from each 32nd on, nine zero bits put first; as two words of 64."""
    stream = _TWO_OVER_PI >> 9  # 9 zeros, then 2/pi: 256 bits
    mask = (1 << 64) - 1
    words = [(stream >> (128 - 32 * i)) & ((1 << 128) - 1) for i in range(4)]
    return [(w >> 64, w & mask) for w in words]


def _reduce_small(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    z = f.let(multiply_add(x, 2 / math.pi, ROUNDER), "z")
    n = f.let(z - ROUNDER, "n")
    r = x
    for part in _HALF_PI:
        r = fma(n, -part, r)
    return f.let(r, "r"), f.let(bits_of(z), "k")  # the low two bits of the rounder's own pattern are 0


def _choose(index: PrimExpr, values: list[int]) -> PrimExpr:
    """values[index] as uint64."""
    wide = like(index.dtype, "uint64")
    result = ops.cast(wide, const(values[-1], "uint64"))
    for i in range(len(values) - 2, -1, -1):
        result = Select(ops.less_equal(index, i), ops.cast(wide, const(values[i], "uint64")), result)
    return result


def _reduce_large(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """r and k for finite |x| >= 2^16.

    x = m 2^s with a whole m. Only 2^s 2/pi modulo 4 matters: 2 integer bits, 62 of fraction, and 32 more
    that carry into those once m has been multiplied in.
    """
    b = f.let(bits_of(x), "b")
    start = f.let(((b >> 23) & 255) - _LARGE_EXPONENT, "start")
    wide = like(x.dtype, "uint64")
    index = f.let(start >> 5, "index")
    shift = f.let(ops.cast(wide, start & 31), "shift")
    windows = _windows()
    first = f.let(_choose(index, [w[0] for w in windows]), "first")
    second = f.let(_choose(index, [w[1] for w in windows]), "second")
    head = (first << shift) | ((second >> 1) >> (63 - shift))
    tail = (second << shift) >> 32
    m = f.let(ops.cast(wide, (b & 0x7FFFFF) | 0x800000), "m")
    quarters = f.let(m * head + ((m * tail) >> 32), "quarters")
    k = f.let((quarters + (1 << 61)) >> 62, "quadrant")
    rest = ops.cast(like(x.dtype, "int64"), quarters - (k << 62))
    r = ops.cast(x.dtype, ops.cast(like(x.dtype, "float64"), rest) * (math.pi / 2 * 2.0**-62))
    negative = f.let(b < 0, "negative")
    k = ops.cast(like(x.dtype, "int32"), k)
    return f.let(select(negative, r * -1.0, r), "r"), f.let(select(negative, 0 - k, k), "k")


def _sine(f: Formula, r: PrimExpr, k: PrimExpr) -> PrimExpr:
    """sin(k pi/2 + r)"""
    t = f.let(r * r, "t")
    sine = multiply_add(r * t, horner(t, _SIN), r)
    cosine = multiply_add(t * t, horner(t, _COS), multiply_add(t, -0.5, 1.0))
    value = select(ops.not_equal(k & 1, 0), cosine, sine)
    return float_of(bits_of(value) ^ ((k & 2) << 30))


def _cosine(f: Formula, r: PrimExpr, k: PrimExpr) -> PrimExpr:
    return _sine(f, r, f.let(k + 1, "k"))


def _tangent(f: Formula, r: PrimExpr, k: PrimExpr) -> PrimExpr:
    t = f.let(r * r, "t")
    value = f.let(multiply_add(r * t, horner(t, _TAN), r), "tangent")
    odd = f.let(ops.not_equal(k & 1, 0), "odd")
    return select(odd, -1.0, value) / select(odd, value, 1.0)


def _everywhere(f: Formula, x: PrimExpr, finish: Callable[[Formula, PrimExpr, PrimExpr], PrimExpr]) -> PrimExpr:
    """`finish(f, r, k)` after the reduction for the magnitude of x; NaN for infinity, by the reduction of small x."""
    small = f.let(finish(f, *_reduce_small(f, x)), "small")
    a = f.let(magnitude(x), "a")
    large = f.let(ops.logical_and(a >= _LARGE, a < math.inf), "large")
    rare = Formula()
    chosen = rare.close(select(large, finish(rare, *_reduce_large(rare, x)), small))
    needed = any_lane(f, large)
    return chosen if needed is None else if_then_else(needed, chosen, small)


@float_rule("sin")
def sin(f: Formula, x: PrimExpr) -> PrimExpr:
    """The sine; -0 of -0."""
    return select(ops.equal(x, 0.0), x, _everywhere(f, x, _sine))


@float_rule("cos")
def cos(f: Formula, x: PrimExpr) -> PrimExpr:
    """The cosine."""
    return _everywhere(f, x, _cosine)


@float_rule("tan")
def tan(f: Formula, x: PrimExpr) -> PrimExpr:
    """The tangent; -0 of -0."""
    return select(ops.equal(x, 0.0), x, _everywhere(f, x, _tangent))


for _name in ("sin", "cos", "tan"):
    TBranchesOnVectors.set(Op.get(f"tir.{_name}"), True)
