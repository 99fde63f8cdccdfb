"""Elementwise operators of two operands, of which one may be a number."""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable
from typing import Any

from .....ir.expr import PrimExpr
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..dtypes import as_fill, as_operand, cast, result_dtype, unified
from ..importer import Importer, as_shape, is_tensor
from ..registry import converter
from .shape import broadcast_shape


def _of_known(choose: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    """The larger or smaller number; where one is NaN, the other."""
    return op.where(op.not_equal(a, a), b, op.where(op.not_equal(b, b), a, choose(a, b)))


def _binary(
    names: str,
    graph_op: Callable[[Any, Any], Expr],
    of_integers: Callable[[Any, Any], Any] | None = None,
    *,
    at_least_float: bool = False,
) -> None:
    """A converter for operators that broadcast; two symbolic integers are combined by `of_integers`."""

    def convert(g: Importer, x: Any, other: Any) -> Any:
        if is_tensor(x) or is_tensor(other):
            return g.emit(graph_op(*unified(x, other, at_least_float=at_least_float)))
        if of_integers is None:
            raise UnsupportedError(f"expected a tensor, found `{x}` and `{other}`")
        return of_integers(x, other)

    converter(*names.split())(convert)


_binary("mul multiply", op.multiply, python.mul)


@converter("true_divide", "truediv", "int_truediv", "_int_truediv")
def true_divide(g: Importer, x: Any, other: Any) -> Any:
    """x / other; of symbolic integers in float64, as of Python's."""
    if is_tensor(x) or is_tensor(other):
        return g.emit(op.divide(*unified(x, other, at_least_float=True)))
    if isinstance(x, PrimExpr) or isinstance(other, PrimExpr):
        return g.emit(op.divide(as_operand(x, "float64"), as_operand(other, "float64")))
    return x / other


@converter("sym_float")
def sym_float(g: Importer, x: Any) -> Any:
    """A symbolic integer in float64."""
    return float(x) if isinstance(x, (int, float)) else g.emit(as_operand(x, "float64"))


@converter("_sym_sqrt", "sym_sqrt")
def sym_sqrt(g: Importer, x: Any) -> Expr:
    """The square root of a number that depends on extents."""
    return g.emit(op.sqrt(as_operand(x, "float64")))


@converter("sym_int")
def sym_int(g: Importer, x: Any) -> Any:
    """The whole part of a number that depends on extents."""
    return g.emit(op.astype(x, "int64")) if is_tensor(x) else x


_binary("floor_divide floordiv", op.floor_divide, python.floordiv)
_binary("remainder mod", op.floor_mod, python.mod)
_binary("fmod", op.mod)
_binary("maximum max.other", op.maximum)
_binary("minimum min.other", op.minimum)
_binary("eq", op.equal, python.eq)
_binary("ne", op.not_equal, python.ne)
_binary("lt less", op.less, python.lt)
_binary("le less_equal", op.less_equal, python.le)
_binary("gt greater", op.greater, python.gt)
_binary("ge greater_equal", op.greater_equal, python.ge)
_binary("logaddexp", op.log_add_exp)
_binary("fmax", lambda a, b: _of_known(op.maximum, a, b))
_binary("fmin", lambda a, b: _of_known(op.minimum, a, b))
_binary("bitwise_and and_ __and__ iand", op.bitwise_and)
_binary("bitwise_or or_ __or__ ior", op.bitwise_or)
_binary("bitwise_xor xor __xor__ ixor", op.bitwise_xor)
_binary("bitwise_left_shift lshift __lshift__", op.left_shift)
_binary("bitwise_right_shift rshift __rshift__", op.right_shift)


def _signed(x: Expr, dtype: str) -> Expr:
    """-1 where x is negative, else 1."""
    return op.where(op.less(x, const(0, dtype)), const(-1, dtype), const(1, dtype))


@converter("atan2", "arctan2")
def atan2(g: Importer, x: Any, other: Any) -> Expr:
    """The angle of the point (other, x), from -pi to pi; zeros count as positive."""
    y, x = (g.emit(v) for v in unified(x, other, at_least_float=True))
    dtype = g.dtype(y)
    zero = const(0, dtype)
    # Of two infinities only the signs count; of other points, the quotient.
    endless = op.logical_and(op.isinf(x), op.isinf(y))
    y, x = op.where(endless, op.sign(y), y), op.where(endless, op.sign(x), x)
    upright = op.equal(x, zero)
    angle = op.atan(op.divide(y, op.where(upright, const(1, dtype), x)))
    angle = op.add(angle, op.where(op.less(x, zero), op.multiply(_signed(y, dtype), const(math.pi, dtype)), zero))
    on_axis = op.where(op.equal(y, zero), zero, op.multiply(_signed(y, dtype), const(math.pi / 2, dtype)))
    return g.emit(op.where(op.logical_and(upright, op.equal(y, y)), on_axis, angle))


@converter("hypot")
def hypot(g: Importer, x: Expr, other: Expr) -> Expr:
    """The length of the vector (x, other), without overflow."""
    a, b = (op.abs(v) for v in unified(x, other, at_least_float=True))
    large, small = g.emit(op.maximum(a, b)), g.emit(op.minimum(a, b))
    dtype = g.dtype(large)
    ratio = op.divide(small, op.where(op.equal(large, const(0, dtype)), const(1, dtype), large))
    ratio = g.emit(op.where(op.isinf(large), const(0, dtype), ratio))
    return g.emit(op.multiply(large, op.sqrt(op.add(op.multiply(ratio, ratio), const(1, dtype)))))


def _scaled(g: Importer, x: Any, alpha: Any) -> Any:
    """alpha * x, as an operand."""
    if alpha == 1:
        return x
    return g.emit(op.multiply(*unified(x, alpha))) if is_tensor(x) else x * alpha


@converter("add", "iadd")
def add(g: Importer, x: Any, other: Any, *, alpha: Any = 1) -> Any:
    """x + alpha * other"""
    if not is_tensor(x) and not is_tensor(other):
        return x + other * alpha
    return g.emit(op.add(*unified(x, _scaled(g, other, alpha))))


@converter("sub", "subtract", "isub")
def sub(g: Importer, x: Any, other: Any, *, alpha: Any = 1) -> Any:
    """x - alpha * other"""
    if not is_tensor(x) and not is_tensor(other):
        return x - other * alpha
    return g.emit(op.subtract(*unified(x, _scaled(g, other, alpha))))


@converter("rsub")
def rsub(g: Importer, x: Any, other: Any, alpha: Any = 1) -> Any:
    """other - alpha * x"""
    return sub(g, other, x, alpha=alpha)


converter("imul")(lambda g, x, other: g.emit(op.multiply(*unified(x, other))))


@converter("div", "divide")
def div(g: Importer, x: Any, other: Any, *, rounding_mode: str | None = None) -> Expr:
    """x / other, rounded down ("floor") or towards zero ("trunc") if that is said."""
    if rounding_mode is None:
        return g.emit(op.divide(*unified(x, other, at_least_float=True)))
    operands = unified(x, other)
    if rounding_mode == "floor":
        return g.emit(op.floor_divide(*operands))
    # The quotient of integers is rounded towards zero already.
    quotient = op.divide(*operands)
    return g.emit(op.trunc(quotient) if "float" in result_dtype(x, other) else quotient)


@converter("float_power")
def float_power(g: Importer, x: Any, exponent: Any) -> Expr:
    """The power, computed in float64."""
    return g.emit(op.power(as_operand(x, "float64"), as_operand(exponent, "float64")))


@converter("pow")
def power(g: Importer, x: Any, exponent: Any) -> Any:
    """x to the power of exponent."""
    if not is_tensor(x) and not is_tensor(exponent):
        if isinstance(x, PrimExpr) and (isinstance(exponent, float) or not exponent >= 0):
            return float_power(g, x, exponent)
        return _integer_power(x, exponent)
    return g.emit(op.power(*unified(x, exponent)))


def _integer_power(x: Any, exponent: Any) -> Any:
    if not isinstance(x, PrimExpr):
        return x**exponent
    if not isinstance(exponent, int) or exponent < 1:
        raise UnsupportedError(f"a symbolic integer to the power of `{exponent}`")
    result: Any = x
    for _ in range(exponent - 1):
        result = result * x
    return result


def _logical(name: str, graph_op: Callable[[Any, Any], Expr]) -> None:
    def convert(g: Importer, x: Expr, other: Expr) -> Expr:
        return g.emit(graph_op(cast(x, "bool"), cast(other, "bool")))

    converter(name)(convert)


_logical("logical_and", op.logical_and)
_logical("logical_or", op.logical_or)
_logical("logical_xor", op.logical_xor)


@converter("outer", "ger")
def outer(g: Importer, x: Expr, vec2: Expr) -> Expr:
    """x[i] * vec2[j]"""
    return g.emit(op.outer(*unified(x, vec2)))


@converter("lerp")
def lerp(g: Importer, x: Expr, end: Expr, weight: Any) -> Expr:
    """x + weight * (end - x)"""
    start, end, weight = unified(x, end, weight)
    return g.emit(op.add(start, op.multiply(weight, op.subtract(end, start))))


@converter("addcmul")
def addcmul(g: Importer, x: Expr, tensor1: Expr, tensor2: Expr, *, value: Any = 1) -> Expr:
    """x + value * tensor1 * tensor2"""
    product = op.multiply(*unified(tensor1, tensor2))
    return add(g, x, g.emit(product), alpha=value)


@converter("addcdiv")
def addcdiv(g: Importer, x: Expr, tensor1: Expr, tensor2: Expr, *, value: Any = 1) -> Expr:
    """x + value * tensor1 / tensor2"""
    quotient = op.divide(*unified(tensor1, tensor2, at_least_float=True))
    return add(g, x, g.emit(quotient), alpha=value)


@converter("clamp", "clip")
def clamp(g: Importer, x: Expr, min: Any = None, max: Any = None) -> Expr:
    """x limited to [min, max], either of which may be a number, a tensor or None."""
    bounds = [b for b in (min, max) if b is not None]
    dtype = result_dtype(x, *bounds)
    x = cast(x, dtype)
    if not bounds:
        return x
    if "float" not in dtype and (len(bounds) < 2 or any(is_tensor(b) for b in bounds)):
        if min is not None:
            x = g.emit(op.maximum(x, as_operand(min, dtype)))
        return x if max is None else g.emit(op.minimum(x, as_operand(max, dtype)))
    if is_tensor(min):
        x, min = g.emit(op.maximum(x, _in_shape_of(g, cast(min, dtype), x))), None
    if is_tensor(max):
        x, max = g.emit(op.minimum(x, _in_shape_of(g, cast(max, dtype), x))), None
    low, high = (float("-inf") if min is None else min), (float("inf") if max is None else max)
    return g.emit(op.clip(x, low, high))


def _in_shape_of(g: Importer, bound: Expr, x: Expr) -> Expr:
    shape = g.shape(x)
    return (
        g.emit(op.broadcast_to(bound, as_shape(shape))) if broadcast_shape([shape, g.shape(bound)]) == shape else bound
    )


@converter("clamp_min")
def clamp_min(g: Importer, x: Expr, min: Any) -> Expr:
    """max(x, min)"""
    return clamp(g, x, min=min)


@converter("clamp_max")
def clamp_max(g: Importer, x: Expr, max: Any) -> Expr:
    """min(x, max)"""
    return clamp(g, x, max=max)


@converter("where", "sym_ite")
def where(g: Importer, condition: Expr, x: Any = None, other: Any = None) -> Expr:
    """x where the condition holds, else other."""
    if x is None or other is None:
        raise UnsupportedError("where with a condition alone gives a tensor whose shape depends on data")
    return g.emit(op.where(cast(condition, "bool"), *unified(x, other)))


@converter("masked_fill")
def masked_fill(g: Importer, x: Expr, mask: Expr, value: Any) -> Expr:
    """The value where the mask holds, else x."""
    dtype = g.dtype(x)
    filled = value if is_tensor(value) else op.full_like(x, as_fill(value, dtype))
    return g.emit(op.where(cast(mask, "bool"), cast(filled, dtype) if is_tensor(value) else filled, x))
