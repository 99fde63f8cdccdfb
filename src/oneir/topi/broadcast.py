"""Operators of one or two operands that broadcast against each other, as in NumPy.

Each takes tensors, expressions and numbers; of operands none of which is a tensor it makes an expression.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import Let, PrimExpr, Select, Var, as_int, const
from ..runtime.error import ShapeMismatch, TypeMismatch
from ..te.tensor import Tensor, tensor_operator
from ..tir import op as tir_op
from ..tir.expr import expr_array
from . import tag
from .index import Shape, broadcast_index, broadcast_shape, is_equal, shape_text


def broadcast_to(data: Tensor, shape: Shape) -> Tensor:
    """`data` repeated along dimensions that it lacks, or of extent 1, so that it has `shape`."""
    target = expr_array(shape)
    common = broadcast_shape(target, data.shape, "broadcast_to")
    fits = len(common) == len(target) and all(
        as_int(extent) is None or is_equal(extent, c) for extent, c in zip(target, common, strict=True)
    )
    if not fits:
        raise ShapeMismatch(
            f"topi.broadcast_to: a tensor of shape {shape_text(data.shape)} does not broadcast to {shape_text(target)}"
        )
    return te.compute(
        target, lambda *ax: data(*broadcast_index(ax, data.shape, common)), name="T_broadcast_to", tag=tag.BROADCAST
    )


def _binary(name: str, rule: Callable[[Any, Any], Any], lhs: Any, rhs: Any) -> Any:
    """Applies a function to both operands: tensors are broadcast, expressions and numbers used for every element."""
    if isinstance(lhs, Tensor) and isinstance(rhs, Tensor):
        shape = broadcast_shape(lhs.shape, rhs.shape, name)
        return te.compute(
            shape,
            lambda *ax: rule(
                lhs(*broadcast_index(ax, lhs.shape, shape)),
                rhs(*broadcast_index(ax, rhs.shape, shape)),
            ),
            name=f"T_{name}",
            tag=tag.BROADCAST,
        )
    if isinstance(lhs, Tensor):
        return te.compute(lhs.shape, lambda *ax: rule(lhs(*ax), rhs), name=f"T_{name}", tag=tag.ELEMWISE)
    if isinstance(rhs, Tensor):
        return te.compute(rhs.shape, lambda *ax: rule(lhs, rhs(*ax)), name=f"T_{name}", tag=tag.ELEMWISE)
    return rule(lhs, rhs)


def _unary(name: str, rule: Callable[[Any], Any], data: Any) -> Any:
    if isinstance(data, Tensor):
        return te.compute(data.shape, lambda *ax: rule(data(*ax)), name=f"T_{name}", tag=tag.ELEMWISE)
    return rule(data)


def add(lhs: Any, rhs: Any) -> Any:
    """lhs + rhs; of bools, lhs or rhs."""
    return _binary("add", _add, lhs, rhs)


def _add(a: Any, b: Any) -> Any:
    a, b = ops.match_types(a, b)
    return ops.logical_or(a, b) if a.dtype.is_bool else ops.add(a, b)


def subtract(lhs: Any, rhs: Any) -> Any:
    """lhs - rhs"""
    return _binary("subtract", ops.subtract, lhs, rhs)


def multiply(lhs: Any, rhs: Any) -> Any:
    """lhs * rhs"""
    return _binary("multiply", ops.multiply, lhs, rhs)


def divide(lhs: Any, rhs: Any) -> Any:
    """lhs / rhs; of integers, rounded towards zero."""
    return _binary("divide", _divide, lhs, rhs)


def _divide(a: Any, b: Any) -> Any:
    a, b = ops.match_types(a, b)
    return ops.divide(a, b) if a.dtype.is_float else ops.truncdiv(a, b)


def floor_divide(lhs: Any, rhs: Any) -> Any:
    """lhs / rhs rounded down."""
    return _binary("floor_divide", _floor_divide, lhs, rhs)


def _floor_divide(a: Any, b: Any) -> Any:
    a, b = ops.match_types(a, b)
    return tir_op.floor(ops.divide(a, b)) if a.dtype.is_float else ops.floordiv(a, b)


def log_add_exp(lhs: Any, rhs: Any) -> Any:
    """log(exp(lhs) + exp(rhs)), without overflow."""
    return _binary("log_add_exp", tir_op.logaddexp, lhs, rhs)


def mod(lhs: Any, rhs: Any) -> Any:
    """The remainder of lhs / rhs with the sign of lhs."""
    return _binary("mod", _mod, lhs, rhs)


def _mod(a: Any, b: Any) -> Any:
    a, b = ops.match_types(a, b)
    return tir_op.fmod(a, b) if a.dtype.is_float else ops.truncmod(a, b)


def floor_mod(lhs: Any, rhs: Any) -> Any:
    """The remainder of lhs / rhs rounded down; it has the sign of rhs."""
    return _binary("floor_mod", _floor_mod, lhs, rhs)


def _floor_mod(a: Any, b: Any) -> Any:
    a, b = ops.match_types(a, b)
    if not a.dtype.is_float:
        return ops.floormod(a, b)
    # a - floor(a / b) * b would be off by as much as the quotient is rounded, and NaN for infinite b.
    rest = Var("rest", a.dtype)
    other_sign = ops.not_equal(ops.less(rest, 0.0), ops.less(b, 0.0))
    corrected = Select(ops.logical_and(ops.not_equal(rest, 0.0), other_sign), ops.add(rest, b), rest)
    return Let(rest, tir_op.fmod(a, b), corrected)


def maximum(lhs: Any, rhs: Any) -> Any:
    """The larger of lhs and rhs."""
    return _binary("maximum", ops.maximum, lhs, rhs)


def minimum(lhs: Any, rhs: Any) -> Any:
    """The smaller of lhs and rhs."""
    return _binary("minimum", ops.minimum, lhs, rhs)


def power(lhs: Any, rhs: Any) -> Any:
    """lhs to the power rhs; of integers, an integer: products wrap, and below an exponent of 0 only powers of 1 and -1
    are not 0.
    """
    return _binary("power", _power, lhs, rhs)


def _power(a: Any, b: Any) -> Any:
    a, b = ops.match_types(a, b)
    return tir_op.power(a, b) if a.dtype.is_float else _integer_power(a, b)


def _integer_power(a: Any, b: Any) -> Any:
    """The product of the squares of squares of `a` that the bits of `b` choose."""
    dtype, one = a.dtype, const(1, a.dtype)
    known = as_int(b)
    signed = not dtype.is_uint
    bits = dtype.bits - signed if known is None else max(known.bit_length(), 1)
    squares = [Var(f"square{i}", dtype) for i in range(bits)]
    factors = [Select(ops.equal(ops.bitwise_and(ops.shift_right(b, i), 1), 1), s, one) for i, s in enumerate(squares)]
    product = functools.reduce(ops.multiply, factors)
    if signed:
        # Of 1 and -1 the lowest bit decides, whatever the sign.
        shrinks = ops.logical_and(ops.less(b, 0), ops.logical_and(ops.not_equal(a, 1), ops.not_equal(a, -1)))
        product = Select(shrinks, const(0, dtype), product)
    for i in reversed(range(bits)):
        product = Let(squares[i], ops.multiply(squares[i - 1], squares[i - 1]) if i else a, product)
    return product


def left_shift(lhs: Any, rhs: Any) -> Any:
    """lhs << rhs, of integers."""
    return _binary("left_shift", ops.shift_left, lhs, rhs)


def right_shift(lhs: Any, rhs: Any) -> Any:
    """lhs >> rhs, of integers; the sign is kept."""
    return _binary("right_shift", ops.shift_right, lhs, rhs)


def greater(lhs: Any, rhs: Any) -> Any:
    """lhs > rhs"""
    return _binary("greater", ops.greater, lhs, rhs)


def less(lhs: Any, rhs: Any) -> Any:
    """lhs < rhs"""
    return _binary("less", ops.less, lhs, rhs)


def equal(lhs: Any, rhs: Any) -> Any:
    """lhs == rhs"""
    return _binary("equal", ops.equal, lhs, rhs)


def not_equal(lhs: Any, rhs: Any) -> Any:
    """lhs != rhs"""
    return _binary("not_equal", ops.not_equal, lhs, rhs)


def greater_equal(lhs: Any, rhs: Any) -> Any:
    """lhs >= rhs"""
    return _binary("greater_equal", ops.greater_equal, lhs, rhs)


def less_equal(lhs: Any, rhs: Any) -> Any:
    """lhs <= rhs"""
    return _binary("less_equal", ops.less_equal, lhs, rhs)


def logical_and(lhs: Any, rhs: Any) -> Any:
    """lhs and rhs, of bools."""
    return _binary("logical_and", ops.logical_and, lhs, rhs)


def logical_or(lhs: Any, rhs: Any) -> Any:
    """lhs or rhs, of bools."""
    return _binary("logical_or", ops.logical_or, lhs, rhs)


def logical_xor(lhs: Any, rhs: Any) -> Any:
    """Whether lhs and rhs differ, of bools."""
    return _binary("logical_xor", ops.bitwise_xor, lhs, rhs)


def bitwise_and(lhs: Any, rhs: Any) -> Any:
    """lhs & rhs, of integers and bools."""
    return _binary("bitwise_and", ops.bitwise_and, lhs, rhs)


def bitwise_or(lhs: Any, rhs: Any) -> Any:
    """lhs | rhs, of integers and bools."""
    return _binary("bitwise_or", ops.bitwise_or, lhs, rhs)


def bitwise_xor(lhs: Any, rhs: Any) -> Any:
    """lhs ^ rhs, of integers and bools."""
    return _binary("bitwise_xor", ops.bitwise_xor, lhs, rhs)


def logical_not(data: Any) -> Any:
    """not data, of bools."""
    return _unary("logical_not", ops.logical_not, data)


def bitwise_not(data: Any) -> Any:
    """~data, of integers and bools."""
    return _unary("bitwise_not", lambda v: ops.logical_not(v) if v.dtype.is_bool else ops.bitwise_not(v), data)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where the condition holds (is not 0), else y; all three broadcast against each other."""
    if x.dtype != y.dtype:
        raise TypeMismatch(f"topi.where: expected x and y of one dtype, found {x.dtype} and {y.dtype}")
    shape = broadcast_shape(condition.shape, broadcast_shape(x.shape, y.shape, "where"), "where")

    def select(*ax: PrimExpr) -> Any:
        chosen, if_true, if_false = (t(*broadcast_index(ax, t.shape, shape)) for t in (condition, x, y))
        holds = chosen if chosen.dtype.is_bool else ops.not_equal(chosen, 0)
        return Select(holds, if_true, if_false)

    return te.compute(shape, select, name="T_where", tag=tag.BROADCAST)


_PYTHON_OPERATORS = {"add": add, "subtract": subtract, "multiply": multiply, "divide": divide}
tensor_operator.provide(lambda name, lhs, rhs: _PYTHON_OPERATORS[name](lhs, rhs))
