"""Elementwise operators of one tensor."""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..dtypes import cast, default_float, dtype_name, is_float, unified
from ..importer import Importer, Pair, is_tensor
from ..registry import converter

if TYPE_CHECKING:
    import torch


def as_float(g: Importer, x: Expr) -> Expr:
    """A tensor of floats: itself, or integers and bools as floats."""
    return x if is_float(g.dtype(x)) else cast(x, default_float())


def _of_floats(names: str, graph_op: Callable[[Expr], Expr]) -> None:
    def convert(g: Importer, x: Expr) -> Expr:
        return g.emit(graph_op(as_float(g, x)))

    converter(*names.split())(convert)


def _of_numbers(names: str, graph_op: Callable[[Expr], Expr], of_integer: Callable[[Any], Any] | None = None) -> None:
    def convert(g: Importer, x: Any) -> Any:
        if is_tensor(x):
            return g.emit(graph_op(x))
        if of_integer is None:
            raise UnsupportedError(f"expected a tensor, found `{x}`")
        return of_integer(x)

    converter(*names.split())(convert)


def _rounding(names: str, graph_op: Callable[[Expr], Expr]) -> None:
    """Integers are whole already."""

    def convert(g: Importer, x: Expr) -> Expr:
        return g.emit(graph_op(x)) if is_float(g.dtype(x)) else x

    converter(*names.split())(convert)


_of_floats("acos arccos", op.acos)
_of_floats("acosh arccosh", op.acosh)
_of_floats("asin arcsin", op.asin)
_of_floats("asinh arcsinh", op.asinh)
_of_floats("atan arctan", op.atan)
_of_floats("atanh arctanh", op.atanh)
_of_floats("cos", op.cos)
_of_floats("cosh", op.cosh)
_of_floats("erf special_erf", op.erf)
_of_floats("exp", op.exp)
_of_floats("log", op.log)
_of_floats("rsqrt", op.rsqrt)
_of_floats("sigmoid", op.sigmoid)
_of_floats("sin", op.sin)
_of_floats("sinh", op.sinh)
_of_floats("sqrt", op.sqrt)
_of_floats("tan", op.tan)
_of_floats("tanh", op.tanh)
_of_numbers("abs absolute", op.abs)
_of_numbers("neg negative", op.negative, python.neg)
_of_numbers("isfinite", op.isfinite)
_of_numbers("isinf", op.isinf)
_of_numbers("isnan", op.isnan)
_of_numbers("bitwise_not invert", op.bitwise_not)
_rounding("ceil", op.ceil)
_rounding("floor", op.floor)
_rounding("trunc fix", op.trunc)


def _scaled(name: str, factor: float) -> None:
    def convert(g: Importer, x: Expr) -> Expr:
        x = as_float(g, x)
        return g.emit(op.multiply(x, const(factor, g.dtype(x))))

    converter(name)(convert)


_scaled("deg2rad", math.pi / 180)
_scaled("rad2deg", 180 / math.pi)


@converter("square")
def square(g: Importer, x: Expr) -> Expr:
    """x * x"""
    return g.emit(op.square(cast(x, "int64") if g.dtype(x) == "bool" else x))


@converter("angle")
def angle(g: Importer, x: Expr) -> Expr:
    """0, or pi where x is negative; NaN stays NaN."""
    x = as_float(g, x)
    dtype = g.dtype(x)
    turned = op.where(op.less(x, const(0, dtype)), const(math.pi, dtype), const(0, dtype))
    return g.emit(op.where(op.isnan(x), x, turned))


@converter("sign", "sgn")
def sign(g: Importer, x: Expr) -> Expr:
    """-1, 0 or 1."""
    return x if g.dtype(x) == "bool" else g.emit(op.sign(x))


@converter("logical_not", "not_")
def logical_not(g: Importer, x: Any) -> Any:
    """Whether x is 0 or False."""
    return g.emit(op.logical_not(cast(x, "bool"))) if is_tensor(x) else not x


@converter("round")
def round_(g: Importer, x: Expr, decimals: int = 0) -> Expr:
    """The nearest whole number, or the nearest with so many decimals; of two, the even one."""
    if not is_float(g.dtype(x)):
        return x
    if decimals == 0:
        return g.emit(op.round(x))
    scale = const(10.0**decimals, g.dtype(x))
    return g.emit(op.divide(op.round(op.multiply(x, scale)), scale))


@converter("signbit")
def signbit(g: Importer, x: Expr) -> Expr:
    """Whether a number is negative; the sign of a negative zero is seen through its reciprocal."""
    dtype = g.dtype(x)
    if dtype == "bool":
        return g.emit(op.zeros_like(x))
    negative = op.less(x, const(0, dtype))
    if is_float(dtype):
        of_zero = op.less(op.divide(const(1, dtype), x), const(0, dtype))
        negative = op.logical_or(negative, op.logical_and(op.equal(x, const(0, dtype)), of_zero))
    return g.emit(negative)


@converter("copysign")
def copysign(g: Importer, x: Expr, other: Any) -> Expr:
    """x with the sign of another number."""
    size, other = (g.emit(v) for v in unified(x, other, at_least_float=True))
    size = op.abs(size)
    return g.emit(op.where(signbit(g, other), op.negative(size), size))


@converter("frac")
def frac(g: Importer, x: Expr) -> Expr:
    """x - trunc(x)"""
    return g.emit(op.subtract(x, op.trunc(x)))


@converter("reciprocal")
def reciprocal(g: Importer, x: Expr) -> Expr:
    """1 / x"""
    x = as_float(g, x)
    return g.emit(op.divide(const(1.0, g.dtype(x)), x))


@converter("log2")
def log2(g: Importer, x: Expr) -> Expr:
    """The logarithm to base 2."""
    x = as_float(g, x)
    return g.emit(op.divide(op.log(x), const(math.log(2), g.dtype(x))))


@converter("log10")
def log10(g: Importer, x: Expr) -> Expr:
    """The logarithm to base 10."""
    x = as_float(g, x)
    return g.emit(op.divide(op.log(x), const(math.log(10), g.dtype(x))))


@converter("log1p")
def log1p(g: Importer, x: Expr) -> Expr:
    """log(1 + x)"""
    x = as_float(g, x)
    return g.emit(op.log(op.add(x, const(1, g.dtype(x)))))


@converter("exp2")
def exp2(g: Importer, x: Expr) -> Expr:
    """2 to the power of x."""
    x = as_float(g, x)
    return g.emit(op.exp(op.multiply(x, const(math.log(2), g.dtype(x)))))


@converter("expm1")
def expm1(g: Importer, x: Expr) -> Expr:
    """exp(x) - 1"""
    x = as_float(g, x)
    return g.emit(op.subtract(op.exp(x), const(1, g.dtype(x))))


@converter("erfc", "special_erfc")
def erfc(g: Importer, x: Expr) -> Expr:
    """1 - erf(x)"""
    x = as_float(g, x)
    return g.emit(op.subtract(const(1, g.dtype(x)), op.erf(x)))


@converter("to", "_to_copy", "type", "astype")
def to(g: Importer, x: Expr, *args: Any, dtype: torch.dtype | str | None = None, **kwargs: Any) -> Expr:
    """The tensor in another dtype; graphs have no devices."""
    for argument in args:
        if is_tensor(argument):
            dtype = g.dtype(argument)
        elif type(argument).__name__ == "dtype" or (isinstance(argument, str) and not _is_device(argument)):
            dtype = argument
    if dtype is None:
        return x
    return convert_dtype(g, x, dtype)


def _is_device(argument: Any) -> bool:
    return isinstance(argument, str) and argument.split(":")[0] in ("cpu", "cuda", "mps", "meta", "xpu", "hpu")


@converter("prims::convert_element_type")
def convert_dtype(g: Importer, x: Expr, dtype: torch.dtype) -> Any:
    """The tensor in a dtype of PyTorch or of ours; complex, with imaginary parts of 0."""
    if getattr(dtype, "is_complex", False):
        real = convert_dtype(g, x, dtype.to_real())
        return Pair(real, g.emit(op.zeros_like(real)))
    name = dtype_name(dtype)
    return x if g.dtype(x) == name else g.emit(op.astype(x, name))


@converter("type_as")
def type_as(g: Importer, x: Expr, other: Expr) -> Expr:
    """The tensor in the dtype of another."""
    return convert_dtype(g, x, g.dtype(other))


for _name, _dtype in (
    ("float", "float32"),
    ("half", "float16"),
    ("double", "float64"),
    ("int", "int32"),
    ("long", "int64"),
    ("bool", "bool"),
    ("bfloat16", "bfloat16"),
):
    converter(_name)(lambda g, x, _dtype=_dtype: convert_dtype(g, x, _dtype))


@converter("is_floating_point")
def is_floating_point(g: Importer, x: Expr) -> bool:
    """Whether the tensor is one of floats."""
    return is_float(g.dtype(x))
