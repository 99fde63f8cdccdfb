"""What Python's operators over expressions build: operand matching and the folding of constants.

Each function takes expressions or Python numbers, brings both operands to one dtype and lane count, and folds what is
constant: both operands known, or a neutral element. A folded integer wraps and a folded float is rounded, as they would
be at run time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.hook import Hook
from . import expr as e
from .container import Array
from .dtype import BOOL, DataType
from .node import Node
from .op import Op

equal_exprs: Hook[[Any, Any], bool] = Hook("equal_exprs", "oneir.ir.structural")
"""Whether two expressions are structurally equal; what structural equality is built on stands in this package."""

call_global: Hook[[Any, tuple[Any, ...]], Any] = Hook("call_global", "oneir.relax.expr")
"""A graph-level call of a function of the module: `call_global(global_var, args)`."""


def same_expr(lhs: Any, rhs: Any) -> bool:
    """Whether two expressions are the same structure over the same variables."""
    return lhs is rhs or equal_exprs(lhs, rhs)


def same_exprs(lhs: Sequence[Any], rhs: Sequence[Any]) -> bool:
    """Whether two lists of expressions, such as the indices of two accesses, are the same one by one."""
    return len(lhs) == len(rhs) and all(map(same_expr, lhs, rhs))


def as_op(op: Any) -> Any:
    """An operator by name, or the callee as it is."""
    return Op.get(op) if isinstance(op, str) else op


def as_argument(arg: Any) -> Any:
    """An argument of a call: a number or a string becomes a constant, a node of any kind stays."""
    return arg if isinstance(arg, Node) else e.StringImm(arg) if isinstance(arg, str) else e.as_expr(arg)


def as_expr_array(args: Iterable[Any]) -> Array[Any]:
    """The arguments of a call, each as `as_argument` gives it."""
    if isinstance(args, Array) and all(isinstance(a, Node) for a in args):
        return args
    return Array(as_argument(a) for a in args)


def lanes_operand(lanes: Any) -> Any:
    """A lane count: an int, or an expression that is a multiple of vscale."""
    if isinstance(lanes, int):
        return lanes
    lanes = e.as_expr(lanes)
    return lanes.value if isinstance(lanes, e.IntImm) else lanes


def vscale_multiple(lanes: Any) -> int | None:
    """The factor k of a lane count k * vscale; None for anything else."""

    def is_vscale(x: Any) -> bool:
        return isinstance(x, e.Call) and isinstance(x.op, Op) and x.op.name == "tir.vscale"

    if is_vscale(lanes):
        return 1
    if isinstance(lanes, e.Mul):
        for factor, other in ((lanes.a, lanes.b), (lanes.b, lanes.a)):
            if is_vscale(factor) and isinstance(other, e.IntImm):
                return other.value
    return None


def vector_dtype(element: DataType, lanes: Any) -> DataType:
    """The dtype of `lanes` elements."""
    if isinstance(lanes, int):
        if lanes < 1:
            raise InvalidValue(f"a vector needs at least one lane, found {lanes}")
        return element.with_lanes(lanes)
    factor = vscale_multiple(lanes)
    if factor is None:
        raise InvalidValue(f"the lanes of a vector must be an int or a multiple of vscale, found {lanes}")
    return element.with_lanes(factor, scalable=True)


# -- operand matching --


def _lanes_of(vector: Any) -> Any:
    dtype = vector.dtype
    return scalable_lanes(dtype.lanes) if dtype.scalable else dtype.lanes


def scalable_lanes(factor: int) -> Any:
    """The lane count factor * vscale."""
    return e.Mul(e.Call("int32", "tir.vscale", ()), e.IntImm("int32", factor))


def match_types(a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands as expressions of one dtype.

    A Python number takes the dtype of the other operand where it fits. Of two dtypes: float before integer, more bits
    before fewer, signed before unsigned; a scalar is broadcast to the other's lanes.
    """
    a_is_node, b_is_node = isinstance(a, e.ExprOp), isinstance(b, e.ExprOp)
    if a_is_node:
        a = a if isinstance(a, e.PrimExpr) else a.__prim_expr__()
        b = (b if isinstance(b, e.PrimExpr) else b.__prim_expr__()) if b_is_node else _number_like(b, a.dtype)
    elif b_is_node:
        b = b if isinstance(b, e.PrimExpr) else b.__prim_expr__()
        a = _number_like(a, b.dtype)
    else:
        a, b = e.as_expr(a), e.as_expr(b)
    if a.dtype is b.dtype:
        return a, b
    x, y = a.dtype, b.dtype
    if x.lanes != y.lanes or x.scalable != y.scalable:
        if x.is_scalar:
            a = e.Broadcast(a, _lanes_of(b))
        elif y.is_scalar:
            b = e.Broadcast(b, _lanes_of(a))
        else:
            raise TypeMismatch(f"cannot combine vectors of {x.lanes} and {y.lanes} lanes: {a} and {b}")
        if a.dtype is b.dtype:
            return a, b
    wanted = _promoted(a.dtype.element, b.dtype.element)
    if wanted is None:
        raise TypeMismatch(f"cannot combine operands of dtype {x} and {y}: {a} and {b}; convert one with .astype(...)")
    return cast(wanted.with_lanes(a.dtype.lanes, a.dtype.scalable), a), cast(
        wanted.with_lanes(b.dtype.lanes, b.dtype.scalable), b
    )


def _number_like(value: Any, dtype: DataType) -> Any:
    if not isinstance(value, (bool, int, float)):
        return e.as_expr(value)
    element = dtype.element
    if isinstance(value, float) and not element.is_float:
        return e.const(value, "float32")
    if element.is_handle or (isinstance(value, bool) and element.is_bool):
        return e.as_expr(value)
    if element.is_bool:
        return e.as_expr(int(value))
    if element.is_int and not _fits(value, element):
        return e.as_expr(value)
    return e.const(value, element)


def _fits(value: Any, dtype: DataType) -> bool:
    if dtype.code == "uint":
        return 0 <= value < (1 << dtype.bits)
    return -(1 << (dtype.bits - 1)) <= value < (1 << (dtype.bits - 1))


def _promoted(x: DataType, y: DataType) -> DataType | None:
    if x is y:
        return x
    if x.is_handle or y.is_handle or (x.is_custom and y.is_float) or (y.is_custom and x.is_float):
        return None
    if x.is_float and y.is_float:
        if x.bits != y.bits:
            return x if x.bits > y.bits else y
        return None
    if x.is_float or y.is_float:
        return x if x.is_float else y
    if x.is_bool or y.is_bool:
        return y if x.is_bool else x
    if x.bits != y.bits:
        return x if x.bits > y.bits else y
    return x if x.code == "int" else y


# -- folding --


def wrap_int(value: int, dtype: DataType) -> int:
    """An integer reduced to what a dtype holds, as two's complement wraps."""
    value &= (1 << dtype.bits) - 1
    if dtype.code == "int" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def round_float(value: float, dtype: DataType) -> float:
    """A float rounded to what a dtype holds."""
    if (dtype.bits == 64 and dtype.code == "float") or not math.isfinite(value):
        return value
    with np.errstate(over="ignore"):
        return float(round_once(np.float64(value), dtype.to_numpy()))


def round_once(values: Any, dtype: np.dtype) -> Any:
    """float64 values as a narrower float.

    ml_dtypes goes through float32, so what float32 does not hold is cut off there, with the last bit set, which says on
    which side of a tie the value lies.
    """
    if dtype.isbuiltin == 1:
        return values.astype(dtype)
    nearest = np.asarray(values, np.float32)
    back = nearest.astype(np.float64)
    bits = nearest.view(np.int32) - (np.abs(back) > np.abs(values)) | (back != values)
    return bits.astype(np.int32).view(np.float32).astype(dtype)


def trunc_div(a: int, b: int) -> int:
    """The quotient rounded towards zero; 0 when b is 0."""
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def trunc_mod(a: int, b: int) -> int:
    """The remainder of `trunc_div`; a when b is 0."""
    return a - b * trunc_div(a, b)


def _constant_pair(a: Any, b: Any) -> bool:
    """Whether both are numbers, of which the result is known: not of a custom dtype, whose arithmetic is its own."""
    return (
        isinstance(a, e.ConstExpr)
        and isinstance(b, e.ConstExpr)
        and not isinstance(a, e.StringImm)
        and not a.dtype.is_custom
    )


def _is_value(x: Any, value: int) -> bool:
    """Whether an expression is the given constant, or a vector of it."""
    if isinstance(x, e.Broadcast):
        x = x.value
    return isinstance(x, (e.IntImm, e.FloatImm)) and x.value == value and not x.dtype.is_custom


def _folded(
    dtype: DataType, of_ints: Callable[[int, int], int], of_floats: Callable[[float, float], float], a: Any, b: Any
) -> Any:
    if dtype.is_float:
        with np.errstate(all="ignore"):
            x, y = round_float(a.value, dtype), round_float(b.value, dtype)
            return e.FloatImm(dtype, round_float(float(of_floats(np.float64(x), np.float64(y))), dtype))
    return e.IntImm(dtype, wrap_int(of_ints(a.value, b.value), dtype))


def _indexing(dtype: DataType) -> bool:
    return not dtype.is_float


def add(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs + rhs"""
    lhs, rhs = match_types(lhs, rhs)
    if _constant_pair(lhs, rhs):
        return _folded(lhs.dtype, operator.add, operator.add, lhs, rhs)
    if _indexing(lhs.dtype):
        if _is_value(lhs, 0):
            return rhs
        if _is_value(rhs, 0):
            return lhs
    return e.Add(lhs, rhs, span=span)


def subtract(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs - rhs"""
    lhs, rhs = match_types(lhs, rhs)
    if _constant_pair(lhs, rhs):
        return _folded(lhs.dtype, operator.sub, operator.sub, lhs, rhs)
    if _indexing(lhs.dtype) and _is_value(rhs, 0):
        return lhs
    return e.Sub(lhs, rhs, span=span)


def difference(end: Any, begin: Any) -> Any:
    """end - begin; of an end written as begin + extent, the extent."""
    end, begin = match_types(end, begin)
    if isinstance(end, e.Add) and same_expr(end.a, begin):
        return end.b
    return _zero_like(end) if end is begin else subtract(end, begin)


def multiply(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs * rhs"""
    lhs, rhs = match_types(lhs, rhs)
    if _constant_pair(lhs, rhs):
        return _folded(lhs.dtype, operator.mul, operator.mul, lhs, rhs)
    if _is_value(lhs, 1):
        return rhs
    if _is_value(rhs, 1):
        return lhs
    if _indexing(lhs.dtype):
        if _is_value(lhs, 0):
            return lhs
        if _is_value(rhs, 0):
            return rhs
    return e.Mul(lhs, rhs, span=span)


def _quotient(a: Any, b: Any) -> Any:
    return a / b


def divide(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs / rhs of floats; raises `TypeMismatch` for integers, where `/` is ambiguous."""
    lhs, rhs = match_types(lhs, rhs)
    if not lhs.dtype.is_float:
        raise div_ambiguity_error()
    if _constant_pair(lhs, rhs) and rhs.value != 0:
        return _folded(lhs.dtype, int.__floordiv__, _quotient, lhs, rhs)
    if _is_value(rhs, 1):
        return lhs
    return e.Div(lhs, rhs, span=span)


def div_ambiguity_error() -> TypeMismatch:
    """The error for `/` between integers."""
    return TypeMismatch(
        "`/` between integers is ambiguous: write `//` (rounds down), truncdiv (rounds towards zero), "
        "or convert an operand to a float first"
    )


def _integer_division(make: type, of_ints: Callable[[int, int], int], a: Any, b: Any, span: Any) -> Any:
    a, b = match_types(a, b)
    if not (a.dtype.is_int or a.dtype.is_bool):
        raise TypeMismatch(f"integer division expects integers, found {a.dtype}: {a} and {b}")
    if isinstance(b, e.IntImm) and b.value == 0:
        raise InvalidValue(f"division by zero: {a} by {b}")
    if _constant_pair(a, b):
        return e.IntImm(a.dtype, wrap_int(of_ints(a.value, b.value), a.dtype))
    if _is_value(a, 0):
        return a
    if _is_value(b, 1):
        return a if make in (e.Div, e.FloorDiv) else _zero_like(a)
    return make(a, b, span)


def _zero_like(a: Any) -> Any:
    return e.const(0, a.dtype) if not a.dtype.scalable else e.Broadcast(e.const(0, a.dtype.element), _lanes_of(a))


def truncdiv(a: Any, b: Any, span: Any = None) -> Any:
    """The quotient of integers rounded towards zero."""
    return _integer_division(e.Div, trunc_div, a, b, span)


def truncmod(a: Any, b: Any, span: Any = None) -> Any:
    """The remainder of `truncdiv`."""
    return _integer_division(e.Mod, trunc_mod, a, b, span)


def floordiv(a: Any, b: Any, span: Any = None) -> Any:
    """The quotient rounded down; of floats floor(a / b)."""
    a, b = match_types(a, b)
    if a.dtype.is_float:
        return call_op("tir.floor", divide(a, b, span))
    return _integer_division(e.FloorDiv, int.__floordiv__, a, b, span)


def floormod(a: Any, b: Any, span: Any = None) -> Any:
    """The remainder of `floordiv`."""
    a, b = match_types(a, b)
    if a.dtype.is_float:
        return subtract(a, multiply(floordiv(a, b, span), b))
    return _integer_division(e.FloorMod, operator.mod, a, b, span)


def negative(a: Any, span: Any = None) -> Any:
    """-a"""
    a = e.as_expr(a)
    if isinstance(a, e.FloatImm) and not a.dtype.is_custom:
        return e.FloatImm(a.dtype, -a.value, span=span)
    if isinstance(a, e.IntImm):
        return e.IntImm(a.dtype, wrap_int(-a.value, a.dtype), span=span)
    if a.dtype.is_float:
        return e.Mul(a, e.const(-1, a.dtype), span=span)
    return subtract(_zero_like(a), a, span)


def absolute(x: Any, span: Any = None) -> Any:
    """The magnitude; of the smallest integer, itself."""
    x = e.as_expr(x)
    if isinstance(x, e.FloatImm) and not x.dtype.is_custom:
        return e.FloatImm(x.dtype, math.fabs(x.value), span=span)
    if isinstance(x, e.IntImm):
        return e.IntImm(x.dtype, wrap_int(abs(x.value), x.dtype), span=span)
    if x.dtype.is_float:
        return e.Call(x.dtype, "tir.fabs", [x], span=span)
    if not x.dtype.is_int:
        raise TypeMismatch(f"abs expects a number, found {x} of dtype {x.dtype}")
    return x if x.dtype.is_uint else e.Select(greater_equal(x, 0), x, negative(x), span=span)


def minimum(a: Any, b: Any, span: Any = None) -> Any:
    """The smaller of a and b."""
    a, b = match_types(a, b)
    if a is b:
        return a
    if _constant_pair(a, b):
        return a if a.value <= b.value or math.isnan(a.value) else b
    return e.Min(a, b, span=span)


def maximum(a: Any, b: Any, span: Any = None) -> Any:
    """The larger of a and b."""
    a, b = match_types(a, b)
    if a is b:
        return a
    if _constant_pair(a, b):
        return a if a.value >= b.value or math.isnan(a.value) else b
    return e.Max(a, b, span=span)


def _compare(make: type, decide: Callable[[Any, Any], bool], a: Any, b: Any, span: Any) -> Any:
    a, b = match_types(a, b)
    if _constant_pair(a, b):
        return e.IntImm(BOOL, int(decide(a.value, b.value)), span=span)
    return make(a, b, span)


def equal(a: Any, b: Any, span: Any = None) -> Any:
    """a == b"""
    return _compare(e.EQ, operator.eq, a, b, span)


def not_equal(a: Any, b: Any, span: Any = None) -> Any:
    """a != b"""
    return _compare(e.NE, operator.ne, a, b, span)


def less(a: Any, b: Any, span: Any = None) -> Any:
    """a < b"""
    return _compare(e.LT, operator.lt, a, b, span)


def less_equal(a: Any, b: Any, span: Any = None) -> Any:
    """a <= b"""
    return _compare(e.LE, operator.le, a, b, span)


def greater(a: Any, b: Any, span: Any = None) -> Any:
    """a > b"""
    return _compare(e.GT, operator.gt, a, b, span)


def greater_equal(a: Any, b: Any, span: Any = None) -> Any:
    """a >= b"""
    return _compare(e.GE, operator.ge, a, b, span)


def logical_and(a: Any, b: Any, span: Any = None) -> Any:
    """a and b"""
    a, b = _bools(a, b)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, e.IntImm):
            return y if x.value else x
    return e.And(a, b, span=span)


def logical_or(a: Any, b: Any, span: Any = None) -> Any:
    """a or b"""
    a, b = _bools(a, b)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, e.IntImm):
            return x if x.value else y
    return e.Or(a, b, span=span)


def _bools(a: Any, b: Any) -> tuple[Any, Any]:
    return match_types(as_bool(a), as_bool(b))


def as_bool(value: Any) -> Any:
    """A truth value as a bool expression; the integers 0 and 1 count as one."""
    value = e.as_expr(value)
    if isinstance(value, e.IntImm) and not value.dtype.is_bool and value.value in (0, 1):
        return e.IntImm(BOOL, value.value)
    if not value.dtype.is_bool:
        raise TypeMismatch(
            f"expected a bool expression, found `{value}` of dtype {value.dtype}; compare it with a value"
        )
    return value


def logical_not(a: Any, span: Any = None) -> Any:
    """not a"""
    a = as_bool(a)
    return e.IntImm(BOOL, 1 - a.value, span=span) if isinstance(a, e.IntImm) else e.Not(a, span=span)


def _bitwise(name: str, of_ints: Callable[[int, int], int], a: Any, b: Any, span: Any) -> Any:
    a, b = match_types(a, b)
    if not (a.dtype.is_int or a.dtype.is_bool):
        raise TypeMismatch(f"{name} expects integers, found {a.dtype}: {a} and {b}")
    if _constant_pair(a, b):
        return e.IntImm(a.dtype, wrap_int(of_ints(a.value, b.value), a.dtype))
    return e.Call(a.dtype, f"tir.{name}", (a, b), span=span)


def bitwise_and(x: Any, y: Any, span: Any = None) -> Any:
    """x & y"""
    return _bitwise("bitwise_and", int.__and__, x, y, span)


def bitwise_or(x: Any, y: Any, span: Any = None) -> Any:
    """x | y"""
    return _bitwise("bitwise_or", int.__or__, x, y, span)


def bitwise_xor(x: Any, y: Any, span: Any = None) -> Any:
    """x ^ y"""
    return _bitwise("bitwise_xor", int.__xor__, x, y, span)


def bitwise_not(x: Any, span: Any = None) -> Any:
    """~x"""
    x = e.as_expr(x)
    if not x.dtype.is_int:
        raise TypeMismatch(f"bitwise_not expects an integer, found {x.dtype}: {x}")
    return e.Call(x.dtype, "tir.bitwise_not", (x,), span=span)


def shift_count_valid(bits: int, count: int) -> bool:
    """Whether a shift moves by fewer bits than there are."""
    return 0 <= count < bits


def fold_shift_left(a: int, count: int, dtype: DataType) -> int:
    """a << count, 0 once every bit is shifted out."""
    return wrap_int(a << count, dtype) if shift_count_valid(dtype.bits, count) else 0


def fold_shift_right(a: int, count: int, dtype: DataType) -> int:
    """a >> count; the sign, or 0, once every bit is shifted out."""
    return a >> count if shift_count_valid(dtype.bits, count) else (-1 if a < 0 else 0)


def shift_left(x: Any, y: Any, span: Any = None) -> Any:
    """x << y; 0 when y is not smaller than the width."""
    x, y = match_types(x, y)
    return _bitwise("shift_left", lambda a, count: fold_shift_left(a, count, x.dtype), x, y, span)


def shift_right(x: Any, y: Any, span: Any = None) -> Any:
    """x >> y, keeping the sign; when y is not smaller than the width, what remains is the sign."""
    x, y = match_types(x, y)
    return _bitwise("shift_right", lambda a, count: fold_shift_right(a, count, x.dtype), x, y, span)


def float_to_int(value: float, dtype: DataType) -> int:
    """A float truncated towards zero; out of range the nearest value of the dtype, and 0 for NaN."""
    if math.isnan(value):
        return 0
    low, high = (
        (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.code == "int" else (0, (1 << dtype.bits) - 1)
    )
    if math.isinf(value):
        return low if value < 0 else high
    return min(max(int(value), low), high)


def cast(dtype: Any, value: Any, span: Any = None) -> Any:
    """`value` converted to a dtype; a scalar is broadcast when the dtype is a vector's."""
    dtype, value = DataType(dtype), e.as_expr(value)
    if value.dtype is dtype:
        return value
    if value.dtype.is_scalar and not dtype.is_scalar:
        element = cast(dtype.element, value, span)
        return e.Broadcast(element, scalable_lanes(dtype.lanes) if dtype.scalable else dtype.lanes, span=span)
    if isinstance(value, e.Broadcast) and value.dtype.lanes == dtype.lanes:
        return e.Broadcast(cast(dtype.element, value.value, span), value.lanes, span=span)
    if isinstance(value, e.Ramp) and _has_same_lanes_in(dtype, value):
        base, stride = (cast(dtype.element, part, span) for part in (value.base, value.stride))
        return e.Ramp(base, stride, value.lanes, span=span)
    if isinstance(value, (e.IntImm, e.FloatImm)):
        folded = _cast_constant(dtype, value, span)
        if folded is not None:
            return folded
    return e.Cast(dtype, value, span=span)


def _has_same_lanes_in(dtype: DataType, ramp: Any) -> bool:
    """Whether a ramp of constants has the same values as a ramp of another integer dtype."""
    base, stride = ramp.base, ramp.stride
    if not (
        dtype.is_int and isinstance(base, e.IntImm) and isinstance(stride, e.IntImm) and isinstance(ramp.lanes, int)
    ):
        return False
    ends = base.value, base.value + stride.value * (ramp.lanes - 1)
    return all(wrap_int(end, to) == end for end in (*ends, stride.value) for to in (base.dtype, dtype.element))


def _cast_constant(dtype: DataType, value: Any, span: Any) -> Any:
    source = value.value
    if value.dtype.is_custom:
        return None
    if dtype.is_bool:
        return e.IntImm(dtype, int(source != 0), span=span)
    if dtype.is_int:
        whole = (
            float_to_int(round_float(source, value.dtype), dtype)
            if isinstance(value, e.FloatImm)
            else wrap_int(source, dtype)
        )
        return e.IntImm(dtype, whole, span=span)
    if dtype.is_float:
        if isinstance(value, e.IntImm):
            return e.FloatImm(dtype, float(source), span=span)
        narrowed = round_float(source, value.dtype) if value.dtype.bits < dtype.bits else source
        return e.FloatImm(dtype, narrowed, span=span)
    return None


def call_op(name: str, *args: Any, dtype: Any = None, span: Any = None) -> Any:
    """A call of a registered operator whose result has the first argument's dtype unless given."""
    operands = [e.as_expr(a) for a in args]
    if len(operands) == 2:
        operands = list(match_types(args[0], args[1]))
    return e.Call(dtype or operands[0].dtype, name, operands, span=span)
