"""Intrinsics of TensorIR: mathematics, control, memory and external calls.

Each operator carries its facts: `TCallEffectKind`, the NumPy `reference` of a pure function (over arrays of its operand
dtype), and `script_name` where TVMScript writes another name than the operator's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ..ir import operators as ops
from ..ir.dtype import BOOL, HANDLE, VOID, DataType
from ..ir.expr import (
    Call,
    CallEffectKind,
    FloatImm,
    IntImm,
    PrimExpr,
    Select,
    StringImm,
    TCallEffectKind,
    Var,
    as_expr,
    const,
)
from ..ir.op import Fact, Op
from ..ir.operators import absolute as abs
from ..runtime.error import InvalidValue, TypeMismatch
from ..target import datatype
from ..target.codegen import llvm_get_intrinsic_name
from .buffer import Buffer
from .expr import BufferLoad

PURE, READ, UPDATE, OPAQUE = (
    CallEffectKind.Pure,
    CallEffectKind.ReadState,
    CallEffectKind.UpdateState,
    CallEffectKind.Opaque,
)


TVectorizable: Fact[bool] = Fact("TVectorizable")
"""Whether a call of vectors is a vector of calls, of an operator that has no `reference`."""

TBranchesOnVectors: Fact[bool] = Fact("TBranchesOnVectors")
"""Whether the arithmetic of a call computes what few arguments need only for vectors with such an argument in them."""

TFlushesSubnormals: Fact[bool] = Fact("TFlushesSubnormals")
"""Whether results of float32 that would be subnormal may be 0."""


def register(
    name: str,
    effect: CallEffectKind = PURE,
    reference: Callable[..., Any] | None = None,
    num_inputs: int = -1,
    **facts: Any,
) -> Op:
    """Registers the operator "tir." + name with its effect and its NumPy reference."""
    if reference is not None:
        facts["reference"] = reference
    op = Op.register(f"tir.{name}", num_inputs=num_inputs, **facts)
    TCallEffectKind.set(op, effect)
    return op


def effect_of(call: Call) -> CallEffectKind:
    """The side effect that a call may have; calls of the module's functions may have any."""
    kind = TCallEffectKind.of(call.op)
    return OPAQUE if kind is None else kind


# -- elementwise mathematics --


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64)).astype(np.asarray(x).dtype)


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reference of a float function: computed in float64 and rounded once."""

    def reference(*args: Any) -> Any:
        dtype = np.asarray(args[0]).dtype
        with np.errstate(all="ignore"):
            return np.asarray(function(*(np.asarray(a, np.float64) for a in args))).astype(dtype)

    return reference


_FLOAT_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "erf": _erf,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "tan": np.tan,
    "cos": np.cos,
    "cosh": np.cosh,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "sin": np.sin,
    "sinh": np.sinh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "nearbyint": np.rint,
    "fabs": np.abs,
}
for _name, _function in _FLOAT_FUNCTIONS.items():
    register(_name, PURE, _wide(_function), 1)
for _name in ("exp", "exp2", "exp10", "sigmoid"):
    TFlushesSubnormals.set(Op.get(f"tir.{_name}"), True)
_FLOAT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "copysign": np.copysign,
}
for _name, _binary in _FLOAT_BINARY.items():
    register(_name, PURE, _wide(_binary), 2)
register("nextafter", PURE, np.nextafter, 2)


def _ldexp(x: Any, exponent: Any) -> Any:
    return np.ldexp(x, np.asarray(exponent).astype(np.int32))


def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


register("ldexp", PURE, _ldexp, 2)
register("fma", PURE, _wide(_multiply_add), 3)


def _float_call(name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A call of a float function; integer arguments are converted to float32."""
    first = as_expr(args[0])
    if not first.dtype.is_float:
        if not (first.dtype.is_int or first.dtype.is_bool):
            raise TypeMismatch(f"{name} expects numbers, found {first} of dtype {first.dtype}")
        first = ops.cast(DataType("float32").with_lanes(first.dtype.lanes, first.dtype.scalable), first)
    operands = [first]
    for other in args[1:]:
        operands = [*ops.match_types(first, other)]
    return Call(operands[0].dtype, f"tir.{name}", operands, span=span)


def exp(x: Any, span: Any = None) -> PrimExpr:
    """e to the power x."""
    return _float_call("exp", x, span=span)


def exp2(x: Any, span: Any = None) -> PrimExpr:
    """2 to the power x."""
    return _float_call("exp2", x, span=span)


def exp10(x: Any, span: Any = None) -> PrimExpr:
    """10 to the power x."""
    return _float_call("exp10", x, span=span)


def erf(x: Any, span: Any = None) -> PrimExpr:
    """The error function."""
    return _float_call("erf", x, span=span)


def tanh(x: Any, span: Any = None) -> PrimExpr:
    """The hyperbolic tangent."""
    return _float_call("tanh", x, span=span)


def sigmoid(x: Any, span: Any = None) -> PrimExpr:
    """1 / (1 + exp(-x))"""
    return _float_call("sigmoid", x, span=span)


def log(x: Any, span: Any = None) -> PrimExpr:
    """The natural logarithm."""
    return _float_call("log", x, span=span)


def log2(x: Any, span: Any = None) -> PrimExpr:
    """The logarithm to base 2."""
    return _float_call("log2", x, span=span)


def log10(x: Any, span: Any = None) -> PrimExpr:
    """The logarithm to base 10."""
    return _float_call("log10", x, span=span)


def log1p(x: Any, span: Any = None) -> PrimExpr:
    """log(1 + x), exact near 0."""
    return _float_call("log1p", x, span=span)


def tan(x: Any, span: Any = None) -> PrimExpr:
    """The tangent of x radians."""
    return _float_call("tan", x, span=span)


def cos(x: Any, span: Any = None) -> PrimExpr:
    """The cosine of x radians."""
    return _float_call("cos", x, span=span)


def cosh(x: Any, span: Any = None) -> PrimExpr:
    """The hyperbolic cosine."""
    return _float_call("cosh", x, span=span)


def acos(x: Any, span: Any = None) -> PrimExpr:
    """The inverse cosine, in radians."""
    return _float_call("acos", x, span=span)


def acosh(x: Any, span: Any = None) -> PrimExpr:
    """The inverse hyperbolic cosine."""
    return _float_call("acosh", x, span=span)


def sin(x: Any, span: Any = None) -> PrimExpr:
    """The sine of x radians."""
    return _float_call("sin", x, span=span)


def sinh(x: Any, span: Any = None) -> PrimExpr:
    """The hyperbolic sine."""
    return _float_call("sinh", x, span=span)


def asin(x: Any, span: Any = None) -> PrimExpr:
    """The inverse sine, in radians."""
    return _float_call("asin", x, span=span)


def asinh(x: Any, span: Any = None) -> PrimExpr:
    """The inverse hyperbolic sine."""
    return _float_call("asinh", x, span=span)


def atan(x: Any, span: Any = None) -> PrimExpr:
    """The inverse tangent, in radians."""
    return _float_call("atan", x, span=span)


def atanh(x: Any, span: Any = None) -> PrimExpr:
    """The inverse hyperbolic tangent."""
    return _float_call("atanh", x, span=span)


def atan2(x1: Any, x2: Any, span: Any = None) -> PrimExpr:
    """The angle of the point (x2, x1), in radians."""
    return _float_call("atan2", x1, x2, span=span)


def sqrt(x: Any, span: Any = None) -> PrimExpr:
    """The square root."""
    return _float_call("sqrt", x, span=span)


def rsqrt(x: Any, span: Any = None) -> PrimExpr:
    """1 / sqrt(x)"""
    return _float_call("rsqrt", x, span=span)


def hypot(x1: Any, x2: Any, span: Any = None) -> PrimExpr:
    """sqrt(x1² + x2²)"""
    return _float_call("hypot", x1, x2, span=span)


def copysign(x1: Any, x2: Any, span: Any = None) -> PrimExpr:
    """The magnitude of x1 with the sign of x2."""
    return _float_call("copysign", x1, x2, span=span)


def fma(x: Any, y: Any, z: Any, span: Any = None) -> PrimExpr:
    """x * y + z of floats, rounded once."""
    x, y = ops.match_types(x, y)
    x, z = ops.match_types(x, z)
    y, z = ops.match_types(y, z)
    if not x.dtype.is_float:
        raise TypeMismatch(f"fma expects floats, found {x.dtype}: {x}, {y} and {z}")
    return Call(x.dtype, "tir.fma", [x, y, z], span=span)


def nextafter(x1: Any, x2: Any, span: Any = None) -> PrimExpr:
    """The next representable value from x1 towards x2."""
    return _float_call("nextafter", x1, x2, span=span)


def ldexp(x1: Any, x2: Any, span: Any = None) -> PrimExpr:
    """x1 times 2 to the power x2, x2 an integer."""
    x1 = as_expr(x1)
    return Call(x1.dtype, "tir.ldexp", [x1, as_expr(x2)], span=span)


def fmod(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """The remainder of x / y with the sign of x."""
    return _float_call("fmod", x, y, span=span)


def power(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """x to the power y."""
    return _float_call("pow", x, y, span=span)


pow = power


def _rounding(name: str, x: Any, span: Any) -> PrimExpr:
    x = as_expr(x)
    if not x.dtype.is_float:
        return x
    if isinstance(x, FloatImm) and math.isfinite(x.value) and not x.dtype.is_custom:
        return FloatImm(x.dtype, float(_FLOAT_FUNCTIONS[name](ops.round_float(x.value, x.dtype))), span=span)
    return Call(x.dtype, f"tir.{name}", [x], span=span)


def floor(x: Any, span: Any = None) -> PrimExpr:
    """The largest whole number not above x."""
    return _rounding("floor", x, span)


def ceil(x: Any, span: Any = None) -> PrimExpr:
    """The smallest whole number not below x."""
    return _rounding("ceil", x, span)


def trunc(x: Any, span: Any = None) -> PrimExpr:
    """x without its fraction."""
    return _rounding("trunc", x, span)


def round(x: Any, span: Any = None) -> PrimExpr:
    """The nearest whole number; halves go to the even one."""
    return _rounding("round", x, span)


def nearbyint(x: Any, span: Any = None) -> PrimExpr:
    """The nearest whole number; halves go to the even one."""
    return _rounding("nearbyint", x, span)


# -- predicates of floats --

for _name, _question in {"isnan": np.isnan, "isfinite": np.isfinite, "isinf": np.isinf}.items():
    register(_name, PURE, _question, 1)


def _float_question(name: str, x: Any, of_integers: bool, span: Any) -> PrimExpr:
    x = as_expr(x)
    if x.dtype.is_int or x.dtype.is_bool:
        return const(of_integers, BOOL.with_lanes(x.dtype.lanes))
    return Call(BOOL.with_lanes(x.dtype.lanes, x.dtype.scalable), f"tir.{name}", [x], span=span)


def isnan(x: Any, span: Any = None) -> PrimExpr:
    """Whether x is not a number."""
    return _float_question("isnan", x, False, span)


def isfinite(x: Any, span: Any = None) -> PrimExpr:
    """Whether x is neither infinite nor NaN."""
    return _float_question("isfinite", x, True, span)


def isinf(x: Any, span: Any = None) -> PrimExpr:
    """Whether x is infinite."""
    return _float_question("isinf", x, False, span)


register("isnullptr", PURE, num_inputs=1)


def isnullptr(x: Any, span: Any = None) -> PrimExpr:
    """Whether a pointer is null."""
    return Call(BOOL, "tir.isnullptr", [x], span=span)


# -- integers and bits --


def _integers(x: Any) -> list[int]:
    return np.ravel(x).tolist()


def _lanewise(function: Callable[[int, int, DataType], int]) -> Callable[[Any, Any], Any]:
    """The reference that applies a function of Python's integers, defined for every count, to each lane."""

    def reference(x: Any, count: Any) -> Any:
        dtype = DataType(x.dtype.name)
        lanes = [function(a, b, dtype) for a, b in zip(_integers(x), _integers(count), strict=True)]
        return np.array(lanes, x.dtype).reshape(np.shape(x))

    return reference


register("bitwise_and", PURE, np.bitwise_and, 2)
register("bitwise_or", PURE, np.bitwise_or, 2)
register("bitwise_xor", PURE, np.bitwise_xor, 2)
register("bitwise_not", PURE, np.bitwise_not, 1)
register("shift_left", PURE, _lanewise(ops.fold_shift_left), 2)
register("shift_right", PURE, _lanewise(ops.fold_shift_right), 2)


def _unsigned(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def _popcount(x: Any) -> Any:
    return np.bitwise_count(_unsigned(x))


def _clz(x: Any) -> Any:
    def of_one(value: Any) -> int:
        return x.dtype.itemsize * 8 - int(value).bit_length()

    return np.vectorize(of_one, otypes=[np.int64])(_unsigned(x))


register("popcount", PURE, _popcount, 1)
register("clz", PURE, _clz, 1)
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor, ops.bitwise_not
shift_left, shift_right = ops.shift_left, ops.shift_right


def popcount(x: Any, span: Any = None) -> PrimExpr:
    """How many bits are 1."""
    x = as_expr(x)
    return Call(x.dtype, "tir.popcount", [x], span=span)


def clz(x: Any, span: Any = None) -> PrimExpr:
    """How many leading bits are 0; the width for 0. The result is int32."""
    x = as_expr(x)
    return Call("int32", "tir.clz", [x], span=span)


TVectorizable.set(register("reinterpret", PURE, num_inputs=1), True)


def reinterpret(dtype: str, value: Any, span: Any = None) -> PrimExpr:
    """The same bits as another dtype of the same size."""
    value, wanted = as_expr(value), DataType(dtype)
    if wanted.bits * wanted.lanes != value.dtype.bits * value.dtype.lanes:
        raise TypeMismatch(f"reinterpret expects dtypes of one size, found {value.dtype} and {wanted}")
    return value if value.dtype is wanted else Call(wanted, "tir.reinterpret", [value], span=span)


div, truncdiv, truncmod = ops.truncdiv, ops.truncdiv, ops.truncmod
floordiv, floormod, indexdiv, indexmod = ops.floordiv, ops.floormod, ops.floordiv, ops.floormod


def ceildiv(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:
    """The quotient rounded up."""
    return ops.floordiv(ops.add(lhs, ops.subtract(rhs, 1)), rhs, span)


def logaddexp(lhs: Any, rhs: Any, span: Any = None) -> PrimExpr:
    """log(exp(lhs) + exp(rhs)), without overflow."""
    lhs, rhs = ops.match_types(lhs, rhs)
    larger = ops.maximum(lhs, rhs)
    # The difference of equal infinities would be NaN.
    distance = Select(ops.equal(lhs, rhs), const(0, lhs.dtype), abs(ops.subtract(lhs, rhs)))
    return ops.add(larger, log1p(exp(ops.negative(distance))), span)


# -- limits --


def min_value(dtype: str, span: Any = None) -> PrimExpr:
    """The smallest finite value of a dtype; of a custom one, what `target.datatype.register_min_func` says.

    Raises `NotRegistered` where that was not called.
    """
    wanted = DataType(dtype)
    if wanted.is_custom:
        return datatype.min_value(wanted)
    if wanted.is_float:
        return FloatImm(wanted, -_largest(wanted), span=span)
    return IntImm(wanted, -(1 << (wanted.bits - 1)) if wanted.code == "int" else 0, span=span)


def max_value(dtype: str, span: Any = None) -> PrimExpr:
    """The largest finite value of a dtype; raises `InvalidValue` for a custom one, which does not say it."""
    wanted = DataType(dtype)
    if wanted.is_custom:
        raise InvalidValue(f"the largest value of {wanted} is not known; min_value gives the smallest one")
    if wanted.is_float:
        return FloatImm(wanted, _largest(wanted), span=span)
    return IntImm(wanted, (1 << (wanted.bits - (wanted.code == "int"))) - 1, span=span)


def _limits(dtype: DataType) -> np.finfo[Any]:
    if dtype.code == "float" and dtype.bits in (16, 32, 64):
        return np.finfo(str(dtype))
    import ml_dtypes

    return cast(np.finfo[Any], ml_dtypes.finfo(dtype.to_numpy()))


def _largest(dtype: DataType) -> float:
    return float(_limits(dtype).max)


def infinity(dtype: str, span: Any = None) -> PrimExpr:
    """Positive infinity of a float dtype."""
    if not DataType(dtype).is_float:
        raise TypeMismatch(f"expected a float dtype for infinity, found {dtype}")
    return FloatImm(dtype, math.inf, span=span)


def nan(dtype: str, span: Any = None) -> PrimExpr:
    """NaN of a float dtype."""
    return FloatImm(dtype, math.nan, span=span)


# -- choice and truth --

register("if_then_else", PURE, num_inputs=3)
TVectorizable.set(register("likely", CallEffectKind.ExprAnnotation, num_inputs=1), True)
register("vscale", PURE, num_inputs=0)
register("undef", READ, num_inputs=0)
register("assume", CallEffectKind.EmbedInfo, num_inputs=1)


def if_then_else(cond: Any, t: Any, f: Any, span: Any = None) -> PrimExpr:
    """t where cond holds, else f; only the one chosen is evaluated."""
    cond = ops.as_bool(cond)
    t, f = ops.match_types(t, f)
    if isinstance(cond, IntImm):
        return t if cond.value else f
    return Call(t.dtype, "tir.if_then_else", [cond, t, f], span=span)


def likely(cond: Any, span: Any = None) -> PrimExpr:
    """cond, which is expected to hold."""
    cond = ops.as_bool(cond)
    return cond if isinstance(cond, IntImm) else Call(cond.dtype, "tir.likely", [cond], span=span)


def assume(cond: Any = None) -> PrimExpr:
    """States that a condition holds, for the compiler to use."""
    return Call(BOOL, "tir.assume", [ops.as_bool(cond)])


def undef() -> PrimExpr:
    """A value that may be anything."""
    return Call("int32", "tir.undef", [])


def vscale() -> PrimExpr:
    """The multiple of the smallest vector length that the target's scalable vectors have."""
    return Call("int32", "tir.vscale", [])


def any(*args: Any, span: Any = None) -> PrimExpr:
    """Whether one of several conditions holds."""
    if not args:
        raise InvalidValue("any expects at least one condition")
    result = ops.as_bool(args[0])
    for arg in args[1:]:
        result = ops.logical_or(result, arg, span)
    return result


def all(*args: Any, span: Any = None) -> PrimExpr:
    """Whether all of several conditions hold."""
    if not args:
        raise InvalidValue("all expects at least one condition")
    result = ops.as_bool(args[0])
    for arg in args[1:]:
        result = ops.logical_and(result, arg, span)
    return result


# -- control --

register("ret", CallEffectKind.ControlJump, num_inputs=1)
register("thread_return", CallEffectKind.ControlJump, num_inputs=0)
register("continue_loop", CallEffectKind.ControlJump, num_inputs=0)
register("break_loop", CallEffectKind.ControlJump, num_inputs=0)


def ret(val: Any, span: Any = None) -> PrimExpr:
    """Returns a value from the function."""
    val = as_expr(val)
    return Call(val.dtype, "tir.ret", [val], span=span)


def thread_return(span: Any = None) -> PrimExpr:
    """Ends this thread's part of a kernel."""
    return Call(VOID, "tir.thread_return", [], span=span)


def continue_loop(span: Any = None) -> PrimExpr:
    """Goes on with the next iteration of the innermost loop."""
    return Call(VOID, "tir.continue_loop", [], span=span)


def break_loop(span: Any = None) -> PrimExpr:
    """Leaves the innermost loop."""
    return Call(VOID, "tir.break_loop", [], span=span)


# -- external calls --

register("call_extern", OPAQUE, script_dtype_first=True)
register("call_pure_extern", PURE, script_dtype_first=True)
register("call_llvm_intrin", OPAQUE, script_dtype_first=True)
TVectorizable.set(register("call_llvm_pure_intrin", PURE, script_dtype_first=True), True)
for _name in ("tvm_call_packed", "tvm_call_cpacked", "tvm_call_packed_lowered", "tvm_call_cpacked_lowered"):
    register(_name, OPAQUE, script_name=_name.removeprefix("tvm_"))


def call_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A C function of that name."""
    return Call(dtype, "tir.call_extern", [StringImm(func_name), *args], span=span)


def call_pure_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A C function of that name that has no effect but its value."""
    return Call(dtype, "tir.call_pure_extern", [StringImm(func_name), *args], span=span)


def call_intrin(dtype: str, func_name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A call of a registered operator."""
    return Call(dtype, func_name, list(args), span=span)


def _intrinsic(name: Any) -> StringImm:
    """The name of an LLVM intrinsic, which may be given by its number."""
    number = getattr(name, "value", name)
    return StringImm(llvm_get_intrinsic_name(number) if isinstance(number, int) else number)


def call_llvm_intrin(dtype: str, name: str | int, *args: Any, span: Any = None) -> PrimExpr:
    """An LLVM intrinsic, "llvm.prefetch.p0" for instance."""
    return Call(dtype, "tir.call_llvm_intrin", [_intrinsic(name), *args], span=span)


def call_llvm_pure_intrin(dtype: str, name: str | int, *args: Any, span: Any = None) -> PrimExpr:
    """An LLVM intrinsic that has no effect but its value; by its name, or its number (`llvm_lookup_intrinsic_id`)."""
    return Call(dtype, "tir.call_llvm_pure_intrin", [_intrinsic(name), *args], span=span)


def _packed(op: str, args: tuple[Any, ...], span: Any) -> PrimExpr:
    return Call("int32", op, [pack_buffer(a) for a in args], span=span)


def call_packed(*args: Any, span: Any = None) -> PrimExpr:
    """Calls a registered function: its name, then its arguments; buffers are passed as tensors."""
    return _packed("tir.tvm_call_packed", args, span)


def call_cpacked(*args: Any, span: Any = None) -> PrimExpr:
    """Calls a function with the packed convention by its symbol: its name, then its arguments."""
    return _packed("tir.tvm_call_cpacked", args, span)


def call_packed_lowered(*args: Any, span: Any = None) -> PrimExpr:
    """A packed call whose arguments lie on the stack: name, stack of values, begin and end."""
    return _packed("tir.tvm_call_packed_lowered", args, span)


def call_cpacked_lowered(*args: Any, span: Any = None) -> PrimExpr:
    """A packed call by symbol whose arguments lie on the stack."""
    return _packed("tir.tvm_call_cpacked_lowered", args, span)


def call_tir(global_var: Any, *args: Any) -> PrimExpr:
    """A call of another function of the module."""
    return Call("void", global_var, list(args))


def pack_buffer(value: Any) -> Any:
    """A buffer as an argument of a packed call: its pointer, shape, strides, rank, element and offset."""
    if not isinstance(value, Buffer):
        return value
    shape = Call(HANDLE, "tir.tvm_stack_make_shape", value.shape)
    strides = Call(HANDLE, "tir.tvm_stack_make_shape", value.strides) if value.strides else 0
    element = const(0, value.dtype)
    return Call(
        HANDLE,
        "tir.tvm_stack_make_array",
        [value.data, shape, strides, const(len(value.shape)), element, value.elem_offset],
    )


# -- memory and the stack --

for _name, _effect, _count in (
    ("address_of", PURE, 1),
    ("tvm_access_ptr", CallEffectKind.SpecialCallArg, 5),
    ("type_annotation", PURE, 0),
    ("tvm_stack_alloca", OPAQUE, 2),
    ("tvm_stack_make_shape", OPAQUE, -1),
    ("tvm_stack_make_array", OPAQUE, 6),
    ("tvm_struct_get", READ, 3),
    ("tvm_struct_set", UPDATE, 4),
    ("check_tensor", READ, -1),
    ("handle_add_byte_offset", PURE, 2),
    ("tvm_tuple", CallEffectKind.EmbedInfo, -1),
    ("lookup_param", READ, 1),
    ("tvm_throw_last_error", OPAQUE, 0),
    ("tvm_context_id", READ, 0),
    ("prefetch", OPAQUE, 4),
):
    register(_name, _effect, num_inputs=_count)


def address_of(obj: Any, span: Any = None) -> PrimExpr:
    """The address of a buffer's element (a load of it), or of its first element."""
    if isinstance(obj, Buffer):
        obj = BufferLoad(obj, [const(0, d.dtype) for d in obj.shape])
    if not isinstance(obj, BufferLoad):
        raise TypeMismatch(f"address_of expects a buffer or an element of one, found {obj}")
    return Call(HANDLE, "tir.address_of", [obj], span=span)


def type_annotation(dtype: str) -> PrimExpr:
    """A type as an argument of a call."""
    return Call(dtype, "tir.type_annotation", [])


def tvm_access_ptr(ptype: Any, data: Var, offset: Any, extent: Any, rw_mask: Any) -> PrimExpr:
    """The address `offset` elements into `data`, of which `extent` will be read (1), written (2) or both (3)."""
    ptype = type_annotation(ptype) if isinstance(ptype, str) else ptype
    return Call(HANDLE, "tir.tvm_access_ptr", [ptype, data, offset, extent, rw_mask])


def tvm_stack_alloca(dtype_str: str, num: Any) -> PrimExpr:
    """Memory on the stack for `num` items: "shape", "array", "arg_value" or "arg_tcode"."""
    return Call(HANDLE, "tir.tvm_stack_alloca", [StringImm(dtype_str), num])


def tvm_stack_make_shape(*args: Any) -> PrimExpr:
    """A shape on the stack."""
    return Call(HANDLE, "tir.tvm_stack_make_shape", list(args))


def tvm_stack_make_array(data: Any, shape: Any, strides: Any, ndim: Any, arr_dtype: Any, elem_offset: Any) -> PrimExpr:
    """A tensor descriptor on the stack."""
    return Call(HANDLE, "tir.tvm_stack_make_array", [data, shape, strides, ndim, arr_dtype, elem_offset])


def tvm_struct_get(arr: Any, index: Any, field: int, dtype: str) -> PrimExpr:
    """A field of the `index`-th structure that `arr` points to."""
    return Call(dtype, "tir.tvm_struct_get", [arr, index, field])


def tvm_struct_set(arr: Any, index: Any, field: int, value: Any) -> PrimExpr:
    """Sets a field of the `index`-th structure that `arr` points to."""
    return Call("int32", "tir.tvm_struct_set", [arr, index, field, value])


def handle_add_byte_offset(handle: Any, offset: Any) -> PrimExpr:
    """An address moved by bytes."""
    return Call(HANDLE, "tir.handle_add_byte_offset", [handle, offset])


def tvm_tuple(*value: Any) -> PrimExpr:
    """Several values where one is expected."""
    return Call(HANDLE, "tir.tvm_tuple", list(value))


def lookup_param(param_name: str, span: Any = None) -> PrimExpr:
    """The address of a parameter of that name."""
    return Call(HANDLE, "tir.lookup_param", [StringImm(param_name)], span=span)


def tvm_throw_last_error() -> PrimExpr:
    """Raises the last error."""
    return Call(HANDLE, "tir.tvm_throw_last_error", [])
