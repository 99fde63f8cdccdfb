"""Elementwise functions of one tensor."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.dtype import DataType
from ..ir.expr import IntImm, PrimExpr, Select, as_expr, const
from ..runtime.error import TypeMismatch
from ..target import Target
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir import op_vendor
from . import tag


def _elemwise(x: Tensor, rule: Callable[[Any], Any], name: str = "compute") -> Tensor:
    return te.compute(x.shape, lambda *i: rule(x(*i)), name=name, tag=tag.ELEMWISE)


def _named(x: Tensor, rule: Callable[[Any], Any], name: str) -> Tensor:
    """As `_elemwise`, with indices named ax0, ax1, ..."""
    return te.compute(x.shape, lambda *ax: rule(x(*ax)), name=name, tag=tag.ELEMWISE)


def _float_of(x: Tensor) -> Tensor:
    """An integer tensor as float32, for functions that are defined on floats only."""
    return te.compute(x.shape, lambda *i: x(*i).astype("float32")) if x.dtype.startswith("int") else x


def identity(x: Tensor) -> Tensor:
    """x"""
    return _elemwise(x, lambda v: v)


def negative(x: Tensor) -> Tensor:
    """-x"""
    return _elemwise(x, ops.negative)


def exp(x: Tensor) -> Tensor:
    """e to the power x."""
    return _elemwise(x, tir_op.exp)


def erf(x: Tensor) -> Tensor:
    """The error function."""
    return _elemwise(x, tir_op.erf)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _elemwise(x, tir_op.tanh)


def tan(x: Tensor) -> Tensor:
    """The tangent."""
    return _elemwise(x, tir_op.tan)


def cos(x: Tensor) -> Tensor:
    """The cosine."""
    return _elemwise(x, tir_op.cos)


def cosh(x: Tensor) -> Tensor:
    """The hyperbolic cosine."""
    return _elemwise(x, tir_op.cosh)


def sin(x: Tensor) -> Tensor:
    """The sine."""
    return _elemwise(x, tir_op.sin)


def sinh(x: Tensor) -> Tensor:
    """The hyperbolic sine."""
    return _elemwise(x, tir_op.sinh)


def acos(x: Tensor) -> Tensor:
    """The inverse cosine."""
    return _elemwise(x, tir_op.acos)


def acosh(x: Tensor) -> Tensor:
    """The inverse hyperbolic cosine."""
    return _elemwise(x, tir_op.acosh)


def asin(x: Tensor) -> Tensor:
    """The inverse sine."""
    return _elemwise(x, tir_op.asin)


def asinh(x: Tensor) -> Tensor:
    """The inverse hyperbolic sine."""
    return _elemwise(x, tir_op.asinh)


def atan(x: Tensor) -> Tensor:
    """The inverse tangent."""
    return _elemwise(x, tir_op.atan)


def atanh(x: Tensor) -> Tensor:
    """The inverse hyperbolic tangent."""
    return _elemwise(x, tir_op.atanh)


def floor(x: Tensor) -> Tensor:
    """The largest whole number not above x."""
    return _elemwise(x, tir_op.floor)


def ceil(x: Tensor) -> Tensor:
    """The smallest whole number not below x."""
    return _elemwise(x, tir_op.ceil)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1, as x is negative, zero or positive; 0 for NaN."""
    zero, one = const(0, x.dtype), const(1, x.dtype)
    if x.dtype.is_uint:
        return _named(x, lambda v: Select(ops.greater(v, zero), one, zero), "T_sign")
    below = const(-1, x.dtype)
    return _named(x, lambda v: Select(ops.greater(v, zero), one, Select(ops.less(v, zero), below, zero)), "T_sign")


def trunc(x: Tensor) -> Tensor:
    """x without its fraction."""
    return _elemwise(x, tir_op.trunc)


def abs(x: Tensor) -> Tensor:
    """The magnitude."""
    return _elemwise(x, tir_op.abs)


def isnan(x: Tensor) -> Tensor:
    """Whether x is NaN."""
    return _elemwise(x, tir_op.isnan)


def isfinite(x: Tensor) -> Tensor:
    """Whether x is neither infinite nor NaN."""
    return _elemwise(x, tir_op.isfinite)


def isinf(x: Tensor) -> Tensor:
    """Whether x is infinite."""
    return _elemwise(x, tir_op.isinf)


def round(x: Tensor) -> Tensor:
    """The nearest whole number; halves go to the even one."""
    return _elemwise(x, tir_op.round)


def log(x: Tensor) -> Tensor:
    """The natural logarithm; of integers, in float32."""
    return _elemwise(_float_of(x), tir_op.log)


def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2; of integers, in float32."""
    return _elemwise(_float_of(x), tir_op.log2)


def log10(x: Tensor) -> Tensor:
    """The logarithm to base 10; of integers, in float32."""
    return _elemwise(_float_of(x), tir_op.log10)


def sqrt(x: Tensor) -> Tensor:
    """The square root; of integers, in float32."""
    return _elemwise(_float_of(x), tir_op.sqrt)


def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x); of integers, in float32."""
    return _elemwise(_float_of(x), tir_op.rsqrt)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))"""
    return _elemwise(x, tir_op.sigmoid)


def left_shift(x: Tensor, n: Any) -> Tensor:
    """x << n, of integers."""
    return _elemwise(x, lambda v: ops.shift_left(v, n))


def right_shift(x: Tensor, n: Any) -> Tensor:
    """x >> n, of integers; the sign is kept."""
    return _elemwise(x, lambda v: ops.shift_right(v, n))


def clip(x: Tensor, a_min: Any, a_max: Any) -> Tensor:
    """x limited to [a_min, a_max], which are converted to its dtype; a_min where that is larger.

    Constants beyond the values of an integer dtype are the nearest of them.
    """
    low, high = (_bound(v, x.dtype) for v in (a_min, a_max))
    return _elemwise(x, lambda v: ops.maximum(ops.minimum(v, high), low))


def _bound(value: Any, dtype: DataType) -> PrimExpr:
    value = as_expr(value)
    if isinstance(value, IntImm) and (dtype.is_int or dtype.is_uint):
        smallest = 0 if dtype.is_uint else -(1 << (dtype.bits - 1))
        return const(builtins.max(smallest, builtins.min(value.value, smallest + (1 << dtype.bits) - 1)), dtype)
    return ops.cast(dtype, value)


def fixed_point_multiply(x: Tensor, multiplier: int, shift: int) -> Tensor:
    """round(x * multiplier * 2**(shift - 31)), of int32: a product with a fixed-point number of 31 fractional bits."""
    arguments = (const(multiplier, "int32"), const(31, "int32"), const(shift, "int32"))
    return _elemwise(x, lambda v: op_vendor.q_multiply_shift(v, *arguments))


def fixed_point_multiply_per_axis(
    x: Tensor,
    y: Tensor,
    lshift: Tensor,
    rshift: Tensor,
    is_lshift_required: int,
    is_rshift_required: int,
    axes: Any,
) -> Tensor:
    """As `fixed_point_multiply`, with a multiplier `y` and shifts to the left and right for each index of `axes`."""
    flags = (const(31, "int32"), const(bool(is_lshift_required), "bool"), const(bool(is_rshift_required), "bool"))

    def element(*i: PrimExpr) -> PrimExpr:
        place = [i[int(axis)] for axis in axes]
        return op_vendor.q_multiply_shift_per_axis(x(*i), y(*place), lshift(*place), rshift(*place), *flags)

    return te.compute(x.shape, element, tag=tag.BROADCAST)


def cast(x: Any, dtype: str, span: Any = None) -> Any:
    """A tensor or an expression converted to another dtype."""
    if isinstance(x, Tensor):
        return _elemwise(x, lambda v: ops.cast(dtype, v))
    return ops.cast(dtype, x, span)


def reinterpret(x: Tensor, dtype: str) -> Tensor:
    """The same bits as another dtype of the same size."""
    return _named(x, lambda v: tir_op.reinterpret(dtype, v), "tensor")


def _horner(x: Any, coefficients: tuple[float, ...]) -> Any:
    """The polynomial with the coefficients, the highest power first."""
    result = const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        result = ops.add(ops.multiply(x, result), const(c, x.dtype))
    return result


def _fast_exp(v: Any) -> Any:
    """2**n * exp(f) for x = n * ln 2 + f, with a polynomial for exp(f) and 2**n put together from bits."""
    x = ops.maximum(ops.minimum(v, 88.3762626647950), -88.3762626647949)
    n = tir_op.floor(x * 1.44269504088896341 + 0.5)
    f = x - n * 0.6931471805599453
    higher = _horner(
        f, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    )
    scale = tir_op.reinterpret("float32", (n + 127.0).astype("int32") << 23)
    return ops.maximum(scale * (higher * f * f + f + 1.0), v)


_TANH_ODD = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)

_ERF_ODD = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_EVEN = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def _rational(x: Any, odd: tuple[float, ...], even: tuple[float, ...]) -> Any:
    """x * P(x**2) / Q(x**2)"""
    square = x * x
    return ops.divide(x * _horner(square, odd), _horner(square, even))


def _fast_input(x: Tensor) -> Tensor:
    return cast(x, "float32") if x.dtype.is_int else x


def fast_exp(x: Tensor) -> Tensor:
    """exp to about 1e-7 of the value, of float32; other floats go through `exp`, integers through float32."""
    x = _fast_input(x)
    return _named(x, _fast_exp if x.dtype == "float32" else tir_op.exp, "T_fast_exp")


def fast_tanh(x: Tensor) -> Tensor:
    """tanh as a quotient of polynomials, of float32; other floats go through `tanh`, integers through float32."""
    x = _fast_input(x)
    if x.dtype != "float32":
        return _named(x, tir_op.tanh, "T_fast_tanh")
    return _named(x, lambda v: _rational(ops.maximum(-9.0, ops.minimum(9.0, v)), _TANH_ODD, _TANH_EVEN), "T_fast_tanh")


def fast_erf(x: Tensor) -> Tensor:
    """erf as a quotient of polynomials, of float32, and of float16 in float32; other floats go through `erf`."""
    if x.dtype not in ("float32", "float16"):
        return erf(x)

    # float16 does not hold the small coefficients.
    def element(v: PrimExpr) -> Any:
        wide = ops.cast("float32", v)
        return ops.cast(x.dtype, _rational(ops.maximum(ops.minimum(wide, 4.0), -4.0), _ERF_ODD, _ERF_EVEN))

    return _named(x, element, "T_fast_erf")


def ceil_log2(x: Any) -> Any:
    """ceil(log2(x)) of an expression, in its dtype; Vulkan counts leading zeros, since it has no log2 of float64."""
    x = as_expr(x)
    if x.dtype.is_float:
        return tir_op.ceil(tir_op.log2(x))
    if not x.dtype.is_int:
        raise TypeMismatch(f"topi.ceil_log2: expected a number, found {x} of dtype {x.dtype}")
    target = Target.current()
    kind = "" if target is None else target.kind.name
    if kind == "vulkan":
        zeros = tir_op.clz(x)
        power_of_two = ops.equal(ops.bitwise_and(x, ops.subtract(x, 1)), 0)
        bits = x.dtype.bits
        return ops.cast(x.dtype, tir_op.if_then_else(power_of_two, bits - 1 - zeros, bits - zeros))
    narrow = kind in ("metal", "rocm", "webgpu") or "adreno" in str(target and target.attrs.get("device", ""))
    return ops.cast(x.dtype, tir_op.ceil(tir_op.log2(ops.cast("float32" if narrow else "float64", x))))
