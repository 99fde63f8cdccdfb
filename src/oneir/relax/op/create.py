"""Operators that make tensors from shapes, numbers and positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import topi
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import FloatImm, IntImm, PrimExpr
from ...ir.expr import const as number
from ...runtime.dtype import numpy_dtype
from ...runtime.error import InvalidValue, TypeMismatch
from ...te import Tensor
from ...tir import op as tir_op
from ..expr import Call, Expr, ShapeExpr, const
from ..operator_facts import OpPattern
from ..struct_info import VOID, PrimStructInfo, StructInfo, TensorStructInfo, as_dtype
from . import reference as numerics
from .arguments import number_value, shape_value
from .inference import fail, shape_argument, tensor_argument
from .op_attrs import InitAttrs
from .registry import Operator, inlined, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def prim_argument(call: Call, index: int, name: str) -> PrimExpr:
    """Argument `index` as a number of known, maybe symbolic value."""
    info = call.args[index].struct_info
    if not isinstance(info, PrimStructInfo) or info.value is None:
        raise fail(call, f"argument {name} must be a number, found `{call.args[index]}`: {info}", TypeMismatch)
    return info.value


def _like(call: Call, info: TensorStructInfo) -> TensorStructInfo:
    """A tensor of the same shape, in the dtype of the attribute if it has one."""
    dtype = call.attrs["dtype"]
    return TensorStructInfo(info.shape, info.dtype if dtype == VOID else dtype, info.vdevice, info.ndim)


def _scalar_argument(call: Call) -> TensorStructInfo:
    info = tensor_argument(call, 1, "fill_value")
    if info.ndim != 0:
        raise fail(call, f"argument fill_value must be a tensor without dimensions, found {info}", TypeMismatch)
    return info


# -- one value everywhere --


@operator("relax.full", pattern=OpPattern.ELEMENTWISE, attrs=InitAttrs)
def full(shape: Any, fill_value: Expr, dtype: str | None = None) -> Expr:
    """A tensor of one value, in the dtype of `fill_value`, a tensor without dimensions, unless one is given."""
    return full.call(shape_value(shape), fill_value, dtype=as_dtype(dtype))


full.follow_precision()


@full.struct_info
def _full_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    shape_argument(call, 0)
    fill = _scalar_argument(call)
    dtype = call.attrs["dtype"]
    return TensorStructInfo(call.args[0], fill.dtype if dtype == VOID else dtype, fill.vdevice)


full.reference(lambda shape, fill_value, dtype: _filled(shape, fill_value, numerics.dtype_or(dtype, fill_value.dtype)))


def _filled(shape: Any, value: Any, dtype: Any) -> np.ndarray:
    return np.broadcast_to(numerics.converted(np.asarray(value), str(np.dtype(dtype))), shape).copy()


@operator("relax.full_like", pattern=OpPattern.ELEMENTWISE, attrs=InitAttrs)
def full_like(x: Expr, fill_value: Expr, dtype: str | None = None) -> Expr:
    """A tensor of one value in the shape of `x`, and its dtype unless one is given."""
    return full_like.call(x, fill_value, dtype=as_dtype(dtype))


full_like.follow_precision()


@full_like.struct_info
def _full_like_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    _scalar_argument(call)
    return _like(call, tensor_argument(call, 0))


full_like.reference(lambda x, fill_value, dtype: _filled(x.shape, fill_value, numerics.dtype_or(dtype, x.dtype)))


def te_full(shape: Any, dtype: str, fill_value: Any) -> Tensor:
    """A tensor of one value, which may be in a tensor without dimensions."""
    return topi.full(shape, dtype, fill_value() if isinstance(fill_value, Tensor) else fill_value)


def _shape_of(call: Call) -> Expr:
    """The shape that the first argument is or has."""
    info = call.args[0].struct_info
    if not isinstance(info, TensorStructInfo):
        return call.args[0]
    if info.extents is None:
        raise fail(call, f"the shape of `{call.args[0]}` is not known: {info}; cast it with match_cast")
    return ShapeExpr(info.extents)


def _legalize_full(builder: BlockBuilder, call: Call) -> Expr:
    value = inlined(call.args[1])
    return builder.call_te(te_full, _shape_of(call), call.struct_info.dtype, value, primfunc_name_hint="full")


full.legalize_as(_legalize_full)
full_like.legalize_as(_legalize_full)


def _constant(name: str, value: float) -> tuple[Operator[..., Expr], Operator[..., Expr]]:
    """The operators `name`, of a shape and a dtype, and `name`_like, of a tensor."""

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        dtype = call.struct_info.dtype
        return builder.call_te(te_full, _shape_of(call), dtype, value, primfunc_name_hint=name)

    def of_shape(shape: Any, dtype: str) -> Expr:
        if as_dtype(dtype) == VOID:
            raise InvalidValue(f"relax.{name} expects a dtype, found {dtype!r}")
        return made.call(shape_value(shape), dtype=DataType(dtype))

    def like(x: Expr, dtype: str | None = None) -> Expr:
        return made_like.call(x, dtype=as_dtype(dtype))

    def struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
        shape_argument(call, 0)
        return TensorStructInfo(call.args[0], call.attrs["dtype"])

    of_shape.__name__ = of_shape.__qualname__ = name
    of_shape.__doc__ = f"A tensor of {name}."
    made = operator(f"relax.{name}", pattern=OpPattern.ELEMENTWISE, attrs=InitAttrs)(of_shape)
    made.follow_precision()
    made.struct_info(struct_info)
    made.reference(lambda shape, dtype: np.full(shape, value, numpy_dtype(dtype)))
    made.legalize_as(legalize)
    like.__name__ = like.__qualname__ = f"{name}_like"
    like.__doc__ = f"A tensor of {name} in the shape of `x`, and its dtype unless one is given."
    made_like = operator(f"relax.{name}_like", pattern=OpPattern.ELEMENTWISE, attrs=InitAttrs)(like)
    made_like.follow_precision()
    made_like.struct_info(lambda call, builder: _like(call, tensor_argument(call, 0)))
    made_like.reference(lambda x, dtype: np.full(x.shape, value, numerics.dtype_or(dtype, x.dtype)))
    made_like.legalize_as(legalize)
    return made, made_like


ones, ones_like = _constant("ones", 1.0)
zeros, zeros_like = _constant("zeros", 0.0)


# -- matrices --


@operator("relax.eye", pattern=OpPattern.INJECTIVE, attrs=InitAttrs)
def eye(n: Any, m: Any = None, k: Any = 0, dtype: str = "float32") -> Expr:
    """An n×m matrix (n×n unless `m` is given) of zeros, with ones on the k-th diagonal above the main one."""
    return eye.call(number_value(n), number_value(n if m is None else m), number_value(k), dtype=DataType(dtype))


eye.follow_precision()


@eye.struct_info
def _eye_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    rows, columns, _ = (prim_argument(call, i, name) for i, name in enumerate(("n", "m", "k")))
    return TensorStructInfo([rows, columns], call.attrs["dtype"])


eye.reference(lambda n, m, k, dtype: np.eye(n, m, k, dtype=numpy_dtype(dtype)))
eye.legalize(topi.eye)


@operator("relax.eye_like", pattern=OpPattern.INJECTIVE, attrs=InitAttrs)
def eye_like(x: Expr, k: Any = 0, dtype: str | None = None) -> Expr:
    """As `eye`, in the shape of the matrix `x`, and its dtype unless one is given."""
    return eye_like.call(x, number_value(k), dtype=as_dtype(dtype))


eye_like.follow_precision()


@eye_like.struct_info
def _eye_like_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    if info.ndim not in (2, -1):
        raise fail(call, f"expected a matrix, found a tensor of {info.ndim} dimensions")
    prim_argument(call, 1, "k")
    made = _like(call, info)
    return TensorStructInfo(made.shape, made.dtype, made.vdevice, 2)


eye_like.reference(lambda x, k, dtype: np.eye(x.shape[0], x.shape[1], k, dtype=numerics.dtype_or(dtype, x.dtype)))


@eye_like.legalize_as
def _legalize_eye_like(builder: BlockBuilder, call: Call) -> Expr:
    return builder.call_te(te_eye, _shape_of(call), call.args[1], call.struct_info.dtype, primfunc_name_hint="eye_like")


def te_eye(shape: Any, k: Any, dtype: str) -> Tensor:
    """A matrix of zeros, with ones on the k-th diagonal above the main one."""
    return topi.eye(shape[0], shape[1], k, dtype)


def _triangle(name: str, doc: str, upper: bool, reference: Callable[..., np.ndarray]) -> Operator[..., Expr]:
    def function(x: Expr, k: Any = 0) -> Expr:
        return made.call(x, number_value(k))

    def struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
        info = tensor_argument(call, 0)
        if info.ndim in (0, 1):
            raise fail(call, f"expected a tensor of at least two dimensions, found {info.ndim}")
        prim_argument(call, 1, "k")
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.{name}", pattern=OpPattern.ELEMENTWISE)(function)
    made.follow_precision()
    made.struct_info(struct_info)
    made.reference(reference)
    made.legalize_as(
        lambda builder, call: builder.call_te(topi.trilu, *call.args, upper=upper, primfunc_name_hint=name)
    )
    return made


tril = _triangle(
    "tril", "Each matrix with zeros above its k-th diagonal.", False, lambda x, k: np.tril(x, k).astype(x.dtype)
)
triu = _triangle(
    "triu", "Each matrix with zeros below its k-th diagonal.", True, lambda x, k: np.triu(x, k).astype(x.dtype)
)


# -- sequences --


@operator("relax.arange", pattern=OpPattern.INJECTIVE, attrs=InitAttrs)
def arange(start: Any, end: Any = None, step: Any = 1, dtype: str | None = None) -> Expr:
    """start, start + step, ... up to but not including `end`; from 0 when only one bound is given.

    The dtype is int64 if all three are integers, else float32, unless it is given.
    """
    start, end = (0, start) if end is None else (start, end)
    bounds = [number_value(v) for v in (start, end, step)]
    if dtype is None:
        infos = [b.struct_info for b in bounds]
        integers = all(isinstance(i, PrimStructInfo) and i.dtype.is_int for i in infos)
        dtype = "int64" if integers else "float32"
    return arange.call(*bounds, dtype=DataType(dtype))


arange.follow_precision()


@arange.struct_info
def _arange_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    start, end, step = (prim_argument(call, i, name) for i, name in enumerate(("start", "end", "step")))
    return TensorStructInfo([_count(call, start, end, step, builder.analyzer)], call.attrs["dtype"])


def _count(call: Call, start: PrimExpr, end: PrimExpr, step: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """How many elements a range has."""
    constants = _constants(start, end, step)
    if constants is not None:
        first, last, by = constants
        if by == 0:
            raise fail(call, "the step must not be 0")
        return number(max(0, math.ceil((last - first) / by)), "int64")
    if not all(v.dtype.is_int for v in (start, end, step)):
        span = ops.divide(ops.cast("float32", ops.subtract(end, start)), ops.cast("float32", step))
        return analyzer.simplify(ops.cast("int64", tir_op.ceil(span)))
    if analyzer.can_prove_greater_equal(step, 1):
        return analyzer.simplify(ops.floordiv(end - start + step - 1, step))
    return analyzer.simplify(ops.negative(ops.floordiv(start - end, step)))


def _constants(*values: PrimExpr) -> list[Any] | None:
    if not all(isinstance(v, (IntImm, FloatImm)) for v in values):
        return None
    return [v.value for v in values if isinstance(v, (IntImm, FloatImm))]


arange.reference(lambda start, end, step, dtype: np.arange(start, end, step).astype(numpy_dtype(dtype)))


@arange.legalize_as
def _legalize_arange(builder: BlockBuilder, call: Call) -> Expr:
    values = [prim_argument(call, i, "bound") for i in range(3)]
    constants = _constants(*values)
    dtype = call.attrs["dtype"]
    if constants is not None:
        return const(np.arange(*constants).astype(numpy_dtype(dtype)), dtype)
    return builder.call_te(topi.arange, *values, dtype, primfunc_name_hint="arange")


@operator("relax.hamming_window", pattern=OpPattern.ELEMENTWISE, attrs=InitAttrs)
def hamming_window(window_size: Any, periodic: Any, alpha: Any, beta: Any, dtype: str) -> Expr:
    """alpha - beta * cos(2 pi i / n) for i below the window's size; n is the size if periodic, else one less."""
    values = [number_value(v) for v in (window_size, periodic, alpha, beta)]
    return hamming_window.call(*values, dtype=DataType(dtype))


@hamming_window.struct_info
def _hamming_window_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    dtype = call.attrs["dtype"]
    if not dtype.is_float:
        raise fail(call, f"expected a dtype of floats, found {dtype}", TypeMismatch)
    names = ("window_size", "periodic", "alpha", "beta")
    size, _, alpha, beta = (prim_argument(call, i, name) for i, name in enumerate(names))
    if not size.dtype.is_int:
        raise fail(call, f"argument window_size must be an integer, found {size} of dtype {size.dtype}", TypeMismatch)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not value.dtype.is_float:
            raise fail(call, f"argument {name} must be a float, found {value} of dtype {value.dtype}", TypeMismatch)
    if builder.analyzer.can_prove(ops.less(size, 1)):
        raise fail(call, f"argument window_size must be at least 1, found {size}")
    return TensorStructInfo([size], dtype)


@hamming_window.reference
def _hamming_window_reference(window_size: int, periodic: bool, alpha: float, beta: float, dtype: str) -> np.ndarray:
    period = window_size if periodic else window_size - 1
    if window_size == 1:
        return np.ones(1, numpy_dtype(dtype))
    angles = 2 * np.pi * np.arange(window_size) / period
    return (alpha - beta * np.cos(angles)).astype(numpy_dtype(dtype))


hamming_window.legalize(topi.hamming_window)
