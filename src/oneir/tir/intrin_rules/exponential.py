"""exp, exp2, exp10, sigmoid, tanh, sinh, cosh, erf.

e^x = 2^k * e^r with k = round(x / ln 2) and |r| <= ln(2) / 2, where a polynomial serves.

Exponentials and sigmoids below the smallest normal number, 2^-126, are 0, as in oneDNN and XLA. They would be
subnormal, and so would products of them, which Intel's processors compute many times slower than others: a RegNet whose
gates saturate takes 92 ms on an Emerald Rapids with them, and 77 without; a Swin, whose masks are -100, 100 and 85.
"""

from __future__ import annotations

import math

from ...ir.expr import PrimExpr
from ..op import reinterpret
from .formula import (
    ROUNDER,
    ROUNDER64,
    ROUNDER_BITS,
    Formula,
    at_most,
    bits_of,
    c_function,
    clamp,
    flip_sign,
    float_of,
    float_rule,
    horner,
    like,
    magnitude,
    multiply_add,
    power_of_two,
    round_to_int,
    scale,
    select,
    splat,
    with_sign,
)

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.428606765330187e-06
"""ln 2 in two parts; the first has 17 bits, so that its product with a small whole number is exact."""
LOG2_10 = 3.321928094887362
LOG10_2_HIGH, LOG10_2_LOW = 0.301025390625, 4.605039066518657e-06
LN_SMALLEST, LOG10_SMALLEST = -87.33654022216797, -37.929779052734375
"""The least x for which e^x and 10^x are normal numbers."""
LN10_HIGH, LN10_LOW = 2.3025851249694824, -3.1975435632602967e-08

EXP = (0.5, 0.1666651964187622, 0.041666414588689804, 0.008368822745978832, 0.0013939512427896261)
"""(e^r - 1 - r) / r²"""
_EXPM1 = (
    *(0.5, 0.1666666716337204, 0.04166648909449577, 0.008333208039402962, 0.0013932674191892147),
    0.00019944262749049813,
)
"""The same with one more term, for where 1 is subtracted again."""
_EXP2 = (
    *(0.6931471824645996, 0.24022650718688965, 0.05550359562039375, 0.009618062525987625, 0.0013390989042818546),
    0.0001546288258396089,
)
"""(2^r - 1) / r"""
_ERF_SPLIT = 0.9
_ERF_SMALL = (
    *(0.12837915381946927, -0.37612523330555553, 0.11282141184072345, -0.026778919331545668, 0.005011975589946541),
    -0.0006090416983660696,
)
"""(erf(x) - x) / x in x², up to the split"""
_ERF_LARGE = (
    *(-0.002708858654841606, -1.6160937730041454, -0.9388413847710444, -0.13144278334401072, 0.022475830226982914),
    -0.0018056248418593648,
)
"""log2(1 - erf(a)), from the split to 4; the more exact, the more of the result it is"""
_ERF_EXP2 = (0.69314697759484, 0.24022242082541817, 0.05550733749450526, 0.009671512769629853, 0.0013264725334647398)
"""(2^r - 1) / r, as exact as what is small beside 1 has to be"""


def _reduce(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """r and k of x = k ln 2 + r."""
    z = f.let(multiply_add(x, LOG2_E, ROUNDER), "z")
    n = f.let(z - ROUNDER, "n")
    r = multiply_add(n, -LN2_LOW, multiply_add(n, -LN2_HIGH, x))
    return f.let(r, "r"), f.let(bits_of(z) - ROUNDER_BITS, "k")


def exp_parts(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """p and k of e^x = p * 2^k, p within [0.7, 1.42]."""
    r, k = _reduce(f, x)
    return f.let(multiply_add(r * r, horner(r, EXP), r) + 1.0, "p"), k


def expm1_parts(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """p and k of e^x = (1 + p) * 2^k."""
    r, k = _reduce(f, x)
    return f.let(multiply_add(r * r, horner(r, _EXPM1), r), "p"), k


def exp2_fraction(r: PrimExpr) -> PrimExpr:
    """2^r for |r| <= 1/2."""
    return multiply_add(horner(r, _EXP2), r, 1.0)


LN2_HIGH64, LN2_LOW64 = 0.6931471803691238, 1.9082149292705877e-10
"""ln 2 in two parts; the first has 32 bits, so that its product with a small whole number is exact in float64."""
_EXP64 = tuple(1 / math.factorial(n) for n in range(2, 14))
"""(e^r - 1 - r) / r² for |r| <= ln(2) / 2, whose next term is below half of the last digit"""


def _exp_of_doubles(x: PrimExpr) -> PrimExpr:
    """e^x of float64, as of float32, but with subnormal results; between the bounds, 2^k is the product of two factors.

    A function of the C library would be called for one element after the other.
    """
    f, integer = Formula(), like(x.dtype, "int64")
    x = clamp(f, f.let(x, "x"), -746.0, 710.0)
    z = f.let(multiply_add(x, LOG2_E, ROUNDER64), "z")
    n = f.let(z - ROUNDER64, "n")
    r = f.let(multiply_add(n, -LN2_LOW64, multiply_add(n, -LN2_HIGH64, x)), "r")
    p = f.let(multiply_add(r * r, horner(r, _EXP64), r) + 1.0, "p")
    k = f.let(reinterpret(integer, z) - reinterpret(integer, splat(ROUNDER64, x)), "k")
    half = f.let(k >> 1, "half")
    return f.close(p * _power_of_two64(half) * _power_of_two64(k - half))


def _power_of_two64(n: PrimExpr) -> PrimExpr:
    """2^n as float64, for n within [-1022, 1023]."""
    return reinterpret(like(n.dtype, "float64"), (n + 1023) << 52)


@float_rule("exp", _exp_of_doubles)
def exp(f: Formula, x: PrimExpr) -> PrimExpr:
    """e^x; the upper bound keeps 2^k within two factors and still overflows."""
    zero = f.let(x < LN_SMALLEST, "zero")
    p, k = exp_parts(f, at_most(f, f.let(select(zero, 0.0, x)), 89.0))
    return select(zero, 0.0, scale(f, p, k))


@float_rule("exp2")
def exp2(f: Formula, x: PrimExpr) -> PrimExpr:
    """2^x"""
    zero = f.let(x < -126.0, "zero")
    x = at_most(f, f.let(select(zero, 0.0, x)), 129.0)
    n, k = round_to_int(f, x)
    r = f.let(x - n, "r")
    return select(zero, 0.0, scale(f, f.let(exp2_fraction(r), "p"), k))


def _exp10_of_doubles(x: PrimExpr) -> PrimExpr:
    return c_function("pow")(splat(10.0, x), x)


@float_rule("exp10", _exp10_of_doubles)
def exp10(f: Formula, x: PrimExpr) -> PrimExpr:
    """10^x = 2^k * e^(r ln 10) with x = k log10(2) + r."""
    zero = f.let(x < LOG10_SMALLEST, "zero")
    x = at_most(f, f.let(select(zero, 0.0, x)), 39.0)
    z = f.let(multiply_add(x, LOG2_10, ROUNDER), "z")
    n = f.let(z - ROUNDER, "n")
    r = f.let(multiply_add(n, -LOG10_2_LOW, multiply_add(n, -LOG10_2_HIGH, x)), "r")
    s = f.let(multiply_add(r, LN10_HIGH, r * LN10_LOW), "s")
    p = f.let(multiply_add(s * s, horner(s, _EXPM1), s) + 1.0, "p")
    return select(zero, 0.0, scale(f, p, f.let(bits_of(z) - ROUNDER_BITS, "k")))


def _sigmoid_of_doubles(x: PrimExpr) -> PrimExpr:
    return 1.0 / (1.0 + _exp_of_doubles(x * -1.0))


@float_rule("sigmoid", _sigmoid_of_doubles)
def sigmoid(f: Formula, x: PrimExpr) -> PrimExpr:
    """1 / (1 + e^-x); between the bounds, 2^k is one factor."""
    zero = f.let(x < LN_SMALLEST, "zero")
    p, k = exp_parts(f, flip_sign(clamp(f, x, LN_SMALLEST, 40.0)))
    return select(zero, 0.0, 1.0 / multiply_add(p, power_of_two(k), 1.0))


@float_rule("tanh")
def tanh(f: Formula, x: PrimExpr) -> PrimExpr:
    """em / (em + 2) with em = e^(2|x|) - 1."""
    a = at_most(f, f.let(magnitude(x), "a"), 10.0)
    p, k = expm1_parts(f, f.let(a + a))
    s = f.let(power_of_two(k), "s")
    em = f.let(multiply_add(p, s, s - 1.0), "em")
    return with_sign(em / (em + 2.0), x)


@float_rule("sinh")
def sinh(f: Formula, x: PrimExpr) -> PrimExpr:
    """2h + 2 h / (4h + 1) with h = (e^|x| - 1) / 4, which stays finite up to the clamp."""
    a = f.let(magnitude(x), "a")
    p, k = expm1_parts(f, at_most(f, a, 89.5))
    s = f.let(power_of_two(k - 2), "s")
    h = f.let(multiply_add(p, s, s - 0.25), "h")
    q = f.let(h / multiply_add(h, 4.0, 1.0), "q")
    return with_sign(select(a < 1e-4, a, multiply_add(h, 2.0, q + q)), x)


@float_rule("cosh")
def cosh(f: Formula, x: PrimExpr) -> PrimExpr:
    """2e + 1 / (8e) with e = e^|x| / 4."""
    p, k = exp_parts(f, at_most(f, f.let(magnitude(x), "a"), 89.5))
    e = f.let(p * power_of_two(k - 2), "e")
    return multiply_add(e, 2.0, 0.125 / e)


@float_rule("erf")
def erf(f: Formula, x: PrimExpr) -> PrimExpr:
    """A polynomial for small x; else 1 - 2^q(|x|), which is 1 from 4 on."""
    a = f.let(magnitude(x), "a")
    small = multiply_add(x, horner(f.let(x * x), _ERF_SMALL), x)
    exponent = f.let(horner(at_most(f, a, 4.0), _ERF_LARGE))
    n, k = round_to_int(f, exponent)
    r = f.let(exponent - n, "r")
    tail = float_of(bits_of(f.let(multiply_add(r, horner(r, _ERF_EXP2), 1.0))) + (k << 23))
    return select(a > _ERF_SPLIT, with_sign(1.0 - tail, x), small)
