"""The vocabulary of the rules: temporaries, bit patterns, polynomials, powers of two.

    @float_rule("cbrt")
    def cbrt(f, x):
        a = f.let(magnitude(x))
        ...

Everything works on scalars and on vectors of any length: Python numbers take the lanes of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import Call, Let, PrimExpr, Select, Var, const
from ...ir.op import register_intrin_lowering
from ..expr import Shuffle
from ..op import call_pure_extern, reinterpret

ROUNDER = 12582912.0
"""1.5 * 2^23: adding it to a float32 below 2^22 in magnitude leaves the nearest whole number in the low bits."""
ROUNDER_BITS = 0x4B400000
ROUNDER64 = 6755399441055744.0
"""1.5 * 2^52, the same for float64."""
SIGN_BIT = -0x80000000
SMALLEST_NORMAL = 2.0**-126


class Formula:
    """A lowering in progress: temporaries that are computed once, in the order of their bindings."""

    def __init__(self) -> None:
        self._bound: list[tuple[Var, PrimExpr]] = []

    def let(self, value: PrimExpr, name: str = "t") -> PrimExpr:
        """A variable that stands for `value`."""
        if isinstance(value, Var):
            return value
        var = Var(name, value.dtype)
        self._bound.append((var, value))
        return var

    def close(self, result: PrimExpr) -> PrimExpr:
        """`result` inside of everything that was bound."""
        for var, value in reversed(self._bound):
            result = Let(var, value, result)
        return result


def like(dtype: DataType, element: str) -> DataType:
    """`element` with as many lanes as `dtype` has."""
    return DataType(element).with_lanes(dtype.lanes, dtype.scalable)


def splat(value: float, x: PrimExpr) -> PrimExpr:
    """A constant of the dtype and lanes of `x`."""
    return ops.cast(x.dtype, const(value, x.dtype.element))


def fma(a: Any, b: Any, c: Any) -> PrimExpr:
    """a * b + c, rounded once; numbers take the dtype of whichever of the three is an expression."""
    args = _of_one_dtype(a, b, c)
    return Call(args[0].dtype, "tir.fma", args)


def multiply_add(a: Any, b: Any, c: Any) -> PrimExpr:
    """a * b + c, rounded once where the processor can, and twice where that would take a function of the C library."""
    a, b, c = _of_one_dtype(a, b, c)
    return a * b + c


def _of_one_dtype(*values: Any) -> list[PrimExpr]:
    shape = next(v for v in values if isinstance(v, PrimExpr))
    return [v if isinstance(v, PrimExpr) else splat(v, shape) for v in values]


def select(condition: PrimExpr, a: Any, b: Any) -> PrimExpr:
    """`a` where the condition holds, else `b`; at least one of them is an expression."""
    return Select(condition, *ops.match_types(a, b))


def unary(name: str, x: PrimExpr) -> PrimExpr:
    """A call of a one-argument operator that code generation emits as it is."""
    return Call(x.dtype, f"tir.{name}", [x])


def sqrt(x: PrimExpr) -> PrimExpr:
    """The square root."""
    return unary("sqrt", x)


def bits_of(x: PrimExpr) -> PrimExpr:
    """The bit pattern of a float32 as int32."""
    return reinterpret(like(x.dtype, "int32"), x)


def float_of(bits: PrimExpr) -> PrimExpr:
    """The float32 of a bit pattern."""
    return reinterpret(like(bits.dtype, "float32"), bits)


def magnitude(x: PrimExpr) -> PrimExpr:
    """|x|"""
    return float_of(bits_of(x) & 0x7FFFFFFF)


def sign_of(x: PrimExpr) -> PrimExpr:
    """The sign bit of x, alone, as int32."""
    return bits_of(x) & SIGN_BIT


def with_sign(value: PrimExpr, x: PrimExpr) -> PrimExpr:
    """A value that is not negative, with the sign of x."""
    return float_of(bits_of(value) | sign_of(x))


def flip_sign(value: PrimExpr, sign: Any = SIGN_BIT) -> PrimExpr:
    """`value`, negated where `sign` has the sign bit."""
    return float_of(bits_of(value) ^ sign)


def clamp(f: Formula, x: PrimExpr, low: float, high: float) -> PrimExpr:
    """x within bounds; NaN stays NaN."""
    x = f.let(select(x < low, low, x))
    return f.let(select(x > high, high, x))


def at_most(f: Formula, x: PrimExpr, high: float) -> PrimExpr:
    """x or the bound, whichever is smaller; NaN stays NaN."""
    return f.let(select(x > high, high, x))


def horner(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """c[0] + c[1] x + c[2] x² + ..."""
    value: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = multiply_add(value, x, c)
    return value


def power_of_two(n: PrimExpr) -> PrimExpr:
    """2^n as float32, for n within [-126, 127]."""
    return float_of((n + 127) << 23)


def scale(f: Formula, x: PrimExpr, n: PrimExpr) -> PrimExpr:
    """x * 2^n for n within [-252, 254] and x near 1, rounded once.

    It multiplies by two factors, since adding to the exponent bits would be wrong for NaN, overflow and denormals.
    """
    half = f.let(n >> 1, "half")
    return x * power_of_two(half) * power_of_two(n - half)


def round_to_int(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The nearest whole number, as float32 and as int32, of |x| < 2^22; no conversion that NaN could upset."""
    z = f.let(x + ROUNDER, "z")
    return f.let(z - ROUNDER, "n"), f.let(bits_of(z) - ROUNDER_BITS, "k")


def any_lane(f: Formula, condition: PrimExpr) -> PrimExpr | None:
    """Whether a condition holds in some lane; None where the number of lanes is unknown.

    Halves, overlapping where the count is odd, are combined until one lane is left.
    """
    if condition.dtype.scalable:
        return None
    lanes = condition.dtype.lanes
    while lanes > 1:
        condition, half = f.let(condition, "some"), (lanes + 1) // 2
        low, high = range(half), range(lanes - half, lanes)
        condition, lanes = ops.logical_or(Shuffle([condition], low), Shuffle([condition], high)), half
    return condition


Rule = Callable[..., PrimExpr]


def c_function(name: str) -> Callable[..., PrimExpr]:
    """Calls of a C function of float64."""
    return lambda *args: call_pure_extern(args[0].dtype, name, *args)


def float_rule(name: str, double: Callable[..., PrimExpr] | None = None) -> Callable[[Rule], Rule]:
    """Registers `rule(f, *args)` over float32 as the lowering of "tir." + name on LLVM targets.

    Half precision goes through float32. float64 is `double(*args)`; by default the C function of that name.
    """

    def register(rule: Rule) -> Rule:
        def lower(call: Call) -> PrimExpr:
            element = call.dtype.element
            if element == "float64":
                return (double or c_function(name))(*call.args)
            f = Formula()
            wide = like(call.dtype, "float32")
            args = [f.let(ops.cast(wide, a), "x") for a in call.args]
            return f.close(ops.cast(call.dtype, rule(f, *args)))

        register_intrin_lowering(f"tir.{name}", "llvm", f=lower)
        return rule

    return register
