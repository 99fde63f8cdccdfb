"""Elementwise functions of one tensor, and of several."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr, Select
from .....ir.expr import const as const_expr
from .....runtime.dtype import numpy_dtype
from .....tir import op as tir_op
from .... import op
from ....expr import Expr, const
from ..context import Context
from ..dtypes import FLOAT4, dtype_name, is_float
from ..objects import is_object
from ..registry import converter
from .strings import strings_equal


def _unary(name: str, function: Callable[[Expr], Expr]) -> None:
    @converter(name)
    def convert(g: Context, x: Expr) -> Expr:
        return g.emit(function(x))


for _name, _function in (
    ("Abs", op.abs),
    ("Acos", op.acos),
    ("Acosh", op.acosh),
    ("Asin", op.asin),
    ("Asinh", op.asinh),
    ("Atan", op.atan),
    ("Atanh", op.atanh),
    ("BitwiseNot", op.bitwise_not),
    ("Ceil", op.ceil),
    ("Cos", op.cos),
    ("Cosh", op.cosh),
    ("Erf", op.erf),
    ("Exp", op.exp),
    ("Floor", op.floor),
    ("IsNaN", op.isnan),
    ("Log", op.log),
    ("Neg", op.negative),
    ("Not", op.logical_not),
    ("Relu", op.nn.relu),
    ("Round", op.round),
    ("Sigmoid", op.sigmoid),
    ("Sin", op.sin),
    ("Sinh", op.sinh),
    ("Sqrt", op.sqrt),
    ("Tan", op.tan),
    ("Tanh", op.tanh),
):
    _unary(_name, _function)


@converter("Identity", "StopGradient")
def identity(g: Context, x: Any) -> Any:
    """The value itself."""
    return x


@converter("Sign")
def sign(g: Context, x: Expr) -> Expr:
    """-1, 0 or 1."""
    return g.emit(op.sign(x))


@converter("Reciprocal")
def reciprocal(g: Context, x: Expr) -> Expr:
    """1 / x"""
    return g.emit(op.divide(g.like(1, x), x))


@converter("Softplus")
def softplus(g: Context, x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow."""
    positive = op.nn.relu(x)
    return g.emit(op.add(positive, op.log(op.add(g.like(1, x), op.exp(op.negative(op.abs(x)))))))


@converter("LeakyRelu")
def leaky_relu(g: Context, x: Expr, *, alpha: float = 0.01) -> Expr:
    """x where it is positive, alpha * x elsewhere."""
    return g.emit(op.nn.leakyrelu(x, alpha))


@converter("HardSwish")
def hard_swish(g: Context, x: Expr) -> Expr:
    """x * min(max(x / 6 + 1/2, 0), 1)"""
    inner = op.add(op.multiply(x, g.like(1 / 6, x)), g.like(0.5, x))
    return g.emit(op.multiply(x, op.clip(inner, 0, 1)))


@converter("HardSigmoid")
def hard_sigmoid(g: Context, x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    """min(max(alpha * x + beta, 0), 1)"""
    return g.emit(op.clip(op.add(op.multiply(x, g.like(alpha, x)), g.like(beta, x)), 0, 1))


@converter("Elu")
def elu(g: Context, x: Expr, *, alpha: float = 1.0) -> Expr:
    """x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    below = op.multiply(g.like(alpha, x), op.subtract(op.exp(op.minimum(x, g.like(0, x))), g.like(1, x)))
    return g.emit(op.where(op.greater(x, g.like(0, x)), x, below))


@converter("Selu")
def selu(g: Context, x: Expr, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875):
    """gamma times ELU."""
    return g.emit(op.multiply(g.like(gamma, x), elu(g, x, alpha=alpha)))


@converter("ThresholdedRelu")
def thresholded_relu(g: Context, x: Expr, *, alpha: float = 1.0) -> Expr:
    """x where it is above alpha, 0 elsewhere."""
    return g.emit(op.where(op.greater(x, g.like(alpha, x)), x, g.like(0, x)))


@converter("Gelu", since=20)
def gelu(g: Context, x: Expr, *, approximate: str = "none") -> Expr:
    """x * P(X <= x), X a normal variable."""
    return g.emit(op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x))


@converter("IsInf", since=10)
def is_inf(g: Context, x: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    """Whether an element is infinite, of one sign or both."""
    if detect_negative and detect_positive:
        return g.emit(op.isinf(x))
    if not detect_negative and not detect_positive:
        return g.broadcast(const(False, "bool"), g.shape(x))
    return g.emit(op.equal(x, g.like(math.inf if detect_positive else -math.inf, x)))


@converter("Clip", since=6)
def clip_attributes(g: Context, x: Expr, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38):
    """min(max(x, min), max)"""
    return g.emit(op.minimum(op.maximum(x, g.like(min, x)), g.like(max, x)))


@converter("Clip", since=11)
def clip(g: Context, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    """min(max(x, low), high)"""
    if low is not None:
        x = op.maximum(x, low)
    return g.emit(x if high is None else op.minimum(x, high))


@converter("PRelu")
def prelu(g: Context, x: Expr, slope: Expr) -> Expr:
    """x where it is positive, slope * x elsewhere."""
    return g.emit(op.where(op.less(x, g.like(0, x)), op.multiply(x, slope), x))


# -- two tensors --


def _binary(name: str, function: Callable[[Expr, Expr], Expr]) -> None:
    @converter(name)
    def convert(g: Context, a: Expr, b: Expr) -> Expr:
        return g.emit(function(*g.broadcastable(a, b)))


for _name, _operator in (
    ("Add", op.add),
    ("And", op.logical_and),
    ("BitwiseAnd", op.bitwise_and),
    ("BitwiseOr", op.bitwise_or),
    ("BitwiseXor", op.bitwise_xor),
    ("Div", op.divide),
    ("Greater", op.greater),
    ("GreaterOrEqual", op.greater_equal),
    ("Less", op.less),
    ("LessOrEqual", op.less_equal),
    ("Mul", op.multiply),
    ("Or", op.logical_or),
    ("Sub", op.subtract),
    ("Xor", op.logical_xor),
):
    _binary(_name, _operator)


@converter("Equal")
def equal(g: Context, a: Expr, b: Expr) -> Expr:
    """Where elements, numbers or strings, are equal."""
    return strings_equal(g, a, b) if is_object(g, a) else g.emit(op.equal(*g.broadcastable(a, b)))


@converter("Pow")
def power(g: Context, x: Expr, exponent: Expr) -> Expr:
    """x to a power, in the dtype of x."""
    dtype, other = g.dtype(x), g.dtype(exponent)
    value = g.array(exponent)
    if is_float(dtype) and value is not None and value.size == 1:
        simple = {2.0: op.square, 0.5: op.sqrt, 1.0: lambda y: y}.get(float(value.reshape(-1)[0]))
        if simple is not None and value.ndim <= g.ndim(x):
            return g.emit(simple(x))
    if is_float(dtype):
        return g.emit(op.power(x, g.cast(exponent, dtype)))
    wide = "float64" if is_float(other) or dtype in ("int64", "uint64") else "float32"
    result = op.power(g.cast(x, wide), g.cast(exponent, wide))
    # A power that is computed by logarithms may be slightly less than the exact integer.
    return g.emit(op.astype(result if is_float(other) else op.round(result), dtype))


@converter("Mod")
def modulo(g: Context, a: Expr, b: Expr, *, fmod: int = 0) -> Expr:
    """The remainder, with the sign of b; of a with fmod."""
    if fmod or not is_float(g.dtype(a)):
        return g.emit(op.mod(a, b) if fmod else op.floor_mod(a, b))
    rest, zero = g.emit(op.mod(a, b)), g.like(0, b)
    apart = op.logical_xor(op.less(rest, zero), op.less(b, zero))
    return g.emit(op.where(op.logical_and(op.not_equal(rest, zero), apart), op.add(rest, b), rest))


@converter("BitShift")
def bit_shift(g: Context, x: Expr, count: Expr, *, direction: str) -> Expr:
    """Bits moved to the left or right."""
    return g.emit(op.left_shift(x, count) if direction == "LEFT" else op.right_shift(x, count))


@converter("Where")
def where(g: Context, condition: Expr, a: Expr, b: Expr) -> Expr:
    """a where the condition holds, else b."""
    return g.emit(op.where(*g.broadcastable(condition, a, b)))


def _folded(name: str, function: Callable[[Expr, Expr], Expr]) -> None:
    @converter(name)
    def convert(g: Context, *tensors: Expr) -> Expr:
        return g.emit(functools.reduce(function, g.broadcastable(*tensors)))


_folded("Max", op.maximum)
_folded("Min", op.minimum)
_folded("Sum", op.add)


@converter("Mean")
def mean(g: Context, *tensors: Expr) -> Expr:
    """The mean of tensors."""
    return g.emit(op.divide(functools.reduce(op.add, tensors), g.like(len(tensors), tensors[0])))


# -- dtypes --


@converter("Cast")
def cast(g: Context, x: Expr, *, to: int, saturate: int = 1, round_mode: str = "up") -> Expr:
    """The elements in another dtype."""
    return converted(g, x, dtype_name(to), saturate, round_mode)


@converter("CastLike")
def cast_like(g: Context, x: Expr, like: Expr, *, saturate: int = 1, round_mode: str = "up") -> Expr:
    """The elements in the dtype of another tensor."""
    return converted(g, x, g.dtype(like), saturate, round_mode)


def converted(g: Context, x: Expr, dtype: str, saturate: int, round_mode: str = "up") -> Expr:
    old = g.dtype(x)
    if old == dtype:
        return x
    if FLOAT4 in (dtype, old):
        return g.cast(x, dtype)
    if dtype == "float8_e8m0fnu":
        return g.te(_te_power_of_two, g.cast(x, "float32"), saturate, round_mode, name="power_of_two")
    if dtype.startswith("float8") and saturate:
        limit = {"e4m3fn": 448.0, "e4m3fnuz": 240.0, "e5m2": 57344.0, "e5m2fnuz": 57344.0}[
            dtype.removeprefix("float8_")
        ]
        wide = x if old in ("float32", "float64") else op.astype(x, "float32")
        return g.emit(op.astype(op.clip(wide, -limit, limit), dtype))
    if dtype == "bool" and is_float(old):
        return g.emit(op.not_equal(x, g.like(0, x)))
    if is_float(old) and dtype in ("int4", "uint4", "int2", "uint2"):
        x = op.astype(x, "int32")  # short integers keep the low bits
    return g.emit(op.astype(x, dtype))


def _te_power_of_two(data: te.Tensor, saturate: int, round_mode: str) -> te.Tensor:
    """Floats as powers of two, whose only bits are those of the exponent."""
    up = {"up": 1, "down": 1 << 23, "nearest": 1 << 22}[round_mode]

    def element(*index: PrimExpr) -> PrimExpr:
        bits = tir_op.reinterpret("uint32", data(*index))
        exponent = ops.cast("int32", ops.floordiv(ops.floormod(bits, const_expr(1 << 31, "uint32")), 1 << 23))
        mantissa = ops.cast("int32", ops.floormod(bits, const_expr(1 << 23, "uint32")))
        rounded = exponent + Select(mantissa >= up, ops.cast("int32", 1), ops.cast("int32", 0))
        if saturate:
            rounded = ops.minimum(rounded, 254)
        special = Select(ops.equal(exponent, 255), ops.cast("int32", 255), rounded)
        return tir_op.reinterpret("float8_e8m0fnu", ops.cast("uint8", special))

    return te.compute(data.shape, element, name="power_of_two")


@converter("BitCast", since=26)
def bit_cast(g: Context, x: Expr, *, to: int) -> Expr:
    """The same bits as another dtype of as many bits."""
    dtype = dtype_name(to)
    value = g.array(x)
    if value is not None:
        return g.constant(np.ascontiguousarray(value).view(numpy_dtype(dtype)))
    if "bool" in (dtype, g.dtype(x)):
        return g.emit(op.astype(x, dtype))
    return g.te(
        lambda data: te.compute(data.shape, lambda *i: tir_op.reinterpret(dtype, data(*i)), name="bits"), x, name="bits"
    )
