"""Operators that read parts of tensors by indices and bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select, Var, as_int, const
from ...runtime.error import InvalidValue, TypeMismatch
from ...tir import op as tir_op
from ...topi.slicing import slice_length
from ..expr import Call, Constant, Expr, PrimValue, Tuple
from ..operator_facts import FDataDependent, OpPattern
from ..struct_info import VOID, PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .arguments import integer
from .base import tensor_to_shape
from .gather import bounded, extents_of
from .infer_layout import slice_layout
from .inference import fail, normalize_axes, normalize_axis, tensor_argument, tensor_or_number
from .manipulate import of_shape, unknown_shape
from .op_attrs import StridedSliceAttrs, TakeAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.take", pattern=OpPattern.INJECTIVE, attrs=TakeAttrs)
def take(x: Expr, indices: Any, axis: int | None = None, mode: str = "fast") -> Expr:
    """The elements at `indices`, a tensor or a number, along an axis, which may be left out of a vector.

    `mode` says what an index outside gives: "clip" the nearest element, "wrap" the one that many times around, "nan"
    NaN; with "fast", there must be none.
    """
    if mode not in ("fast", "clip", "wrap", "nan"):
        raise InvalidValue(f'relax.take: expected the mode "fast", "clip", "wrap" or "nan", found {mode!r}')
    return take.call(x, indices, axis=None if axis is None else integer(axis), mode=mode)


take.follow_precision()


@take.struct_info
def _take_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, indices, axis = tensor_argument(call, 0), tensor_or_number(call, 1), call.attrs["axis"]
    if indices.dtype != VOID and not indices.dtype.is_int:
        raise fail(call, f"the indices must be integers, found dtype {indices.dtype}", TypeMismatch)
    if call.attrs["mode"] == "nan" and info.dtype != VOID and not info.dtype.is_float:
        raise fail(call, f'the mode "nan" needs a tensor of floats, found dtype {info.dtype}', TypeMismatch)
    if axis is None and info.ndim not in (1, -1):
        raise fail(call, f"without an axis, expected a tensor of one dimension, found {info.ndim}")
    if info.ndim == -1 or indices.ndim == -1:
        return unknown_shape(info, -1)
    place = 0 if axis is None else normalize_axis(call, axis, info.ndim)
    if info.extents is None or indices.extents is None:
        return unknown_shape(info, info.ndim + indices.ndim - 1)
    return of_shape(info, [*info.extents[:place], *indices.extents, *info.extents[place + 1 :]])


@take.reference
def _take_reference(x: np.ndarray, indices: Any, axis: int | None, mode: str) -> np.ndarray:
    axis = 0 if axis is None else axis
    size, indices = x.shape[axis], np.asarray(indices)
    # The dtype of the indices may not hold the extent; one of these two does.
    indices = indices if indices.dtype == np.uint64 else indices.astype(np.int64)
    if mode == "clip":
        return np.take(x, np.clip(indices, 0, size - 1).astype(np.int64), axis)
    if mode != "nan":
        return np.take(x, (indices % indices.dtype.type(size)).astype(np.int64), axis)
    inside = (indices >= 0) & (indices < size)
    taken = np.take(x, np.where(inside, indices, 0).astype(np.int64), axis)
    after = x.ndim - 1 - axis % x.ndim
    return np.where(inside.reshape(*inside.shape, *[1] * after), taken, np.nan).astype(x.dtype)


def te_take(x: te.Tensor, indices: Any, axis: int | None, mode: str) -> te.Tensor:
    """The elements at indices; a number takes its axis away."""
    return topi.take(x, indices, 0 if axis is None else axis, mode=mode)


take.legalize(te_take, "take")


@take.bound_indices
def _bound_take(builder: BlockBuilder, call: Call) -> Expr:
    x, indices = call.args
    axis, extents = call.attrs["axis"], extents_of(x)
    if call.attrs["mode"] != "fast":
        return call
    if isinstance(indices, Constant) and indices.struct_info.ndim == 0:
        # Of a number, kernels know where they read.
        number, extent = int(indices.data.numpy()), None if extents is None else as_int(extents[axis or 0])
        inside = extent is not None and 0 <= number < extent
        return take(x, PrimValue(number), axis, "fast" if inside else "clip")
    if not isinstance(indices, Constant) or extents is None:
        return take(x, indices, axis, "clip")
    return call if bounded(builder, indices, [extents[axis or 0]]) is indices else take(x, indices, axis, "clip")


# -- slices --


def _numbers(value: Any) -> Expr:
    """Several integers as a tuple of numbers."""
    if isinstance(value, Expr):
        return value
    if not isinstance(value, (list, tuple)):
        raise TypeMismatch(f"relax.strided_slice: expected a list of integers, found {value!r}")
    return Tuple([v if isinstance(v, Expr) else PrimValue(v) for v in value])


@operator("relax.strided_slice", pattern=OpPattern.INJECTIVE, attrs=StridedSliceAttrs)
def strided_slice(x: Expr, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: bool = False) -> Expr:
    """x[begin:end:strides] along some axes. Bounds count from the end where negative, and are cut to the extent.

    With `assume_inbound`, symbolic bounds are taken to be inside.
    """
    bounds = [_numbers(v) for v in (axes, begin, end)]
    return strided_slice.call(
        x, *bounds, None if strides is None else _numbers(strides), assume_inbound=bool(assume_inbound)
    )


def _known_numbers(call: Call, index: int, name: str) -> list[PrimExpr] | None:
    """The numbers of a tuple; None if one is not known."""
    info = call.args[index].struct_info
    if not isinstance(info, TupleStructInfo):
        raise fail(
            call, f"argument {name} must be a tuple of integers, found `{call.args[index]}`: {info}", TypeMismatch
        )
    values = []
    for field in info.fields:
        if not isinstance(field, PrimStructInfo) or not field.dtype.is_int:
            raise fail(call, f"argument {name} must be a tuple of integers, found {info}", TypeMismatch)
        values.append(field.value)
    return None if any(v is None for v in values) else values


def _slice_bounds(call: Call) -> tuple[list[Any] | None, ...]:
    """axes, begin, end, strides; each None if it is not known."""
    names = ("axes", "begin", "end", "strides")
    counts = {len(a.struct_info.fields) for a in call.args[1:] if isinstance(a.struct_info, TupleStructInfo)}
    axes, begin, end, *strides = (
        _known_numbers(call, i, name) for i, name in enumerate(names[: len(call.args) - 1], 1)
    )
    if len(counts) > 1:
        raise fail(call, "expected as many values in axes, begin, end and strides")
    return axes, begin, end, strides[0] if strides else [const(1, "int64")] * counts.pop()


strided_slice.selects()

strided_slice.follow_precision()
strided_slice.infer_layout(slice_layout)


@strided_slice.struct_info
def _strided_slice_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    axes, begin, end, strides = _slice_bounds(call)
    known = None if axes is None else [as_int(a) for a in axes]
    if known is not None and not known:
        return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)
    if info.ndim == -1 or info.extents is None or known is None or None in known:
        return unknown_shape(info, info.ndim)
    if begin is None or end is None or strides is None:
        return unknown_shape(info, info.ndim)
    extents = list(info.extents)
    order = normalize_axes(call, [a for a in known if a is not None], info.ndim)
    for axis, first, last, step in zip(order, begin, end, strides, strict=True):
        if as_int(step) == 0:
            raise fail(call, "the strides must not be 0")
        length = slice_length(first, last, step, extents[axis], call.attrs["assume_inbound"])
        length = builder.analyzer.simplify(length)
        extents[axis] = const(0, "int64") if (as_int(length) or 0) < 0 else length
    return of_shape(info, extents)


@strided_slice.reference
def _strided_slice_reference(
    x: np.ndarray, axes: Any, begin: Any, end: Any, strides: Any = None, *, assume_inbound: bool
) -> np.ndarray:
    slices = [slice(None)] * x.ndim
    for axis, first, last, step in zip(axes, begin, end, strides or [1] * len(axes), strict=True):
        # NumPy takes -1 for the last element, where -size - 1 and below stand for the place before the first.
        extent = x.shape[axis]
        stop = None if step < 0 and last < -extent else last
        slices[axis] = slice(first, stop, step)
    return x[tuple(slices)]


@strided_slice.legalize_as
def _legalize_strided_slice(builder: BlockBuilder, call: Call) -> Expr:
    axes, begin, end, strides = _slice_bounds(call)
    if axes is None or begin is None or end is None or strides is None:
        raise fail(call, "axes, begin, end and strides must be written out; use dynamic_strided_slice for tensors")
    return builder.call_te(
        topi.strided_slice,
        call.args[0],
        begin,
        end,
        strides,
        [as_int(a) for a in axes],
        slice_mode="end",
        assume_inbound=call.attrs["assume_inbound"],
        primfunc_name_hint="strided_slice",
    )


@operator("relax.dynamic_strided_slice")
def dynamic_strided_slice(x: Expr, begin: Expr, end: Expr, strides: Expr) -> Expr:
    """x[begin:end:strides], the bounds of all axes in tensors of int64, which are read when the program runs."""
    return dynamic_strided_slice.call(x, begin, end, strides)


dynamic_strided_slice.follow_precision()


@dynamic_strided_slice.struct_info
def _dynamic_strided_slice_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    for i, name in enumerate(("begin", "end", "strides"), 1):
        bounds = tensor_argument(call, i, name)
        if bounds.ndim not in (1, -1) or bounds.dtype not in (VOID, "int64"):
            raise fail(call, f"argument {name} must be a vector of int64, found {bounds}", TypeMismatch)
        count = as_int(bounds.extents[0]) if bounds.extents is not None else None
        if -1 != info.ndim != count and count is not None:
            raise fail(call, f"argument {name} has {count} elements for a tensor of {info.ndim} dimensions")
    return unknown_shape(info, info.ndim)


@dynamic_strided_slice.reference
def _dynamic_strided_slice_reference(x: np.ndarray, begin: Any, end: Any, strides: Any) -> np.ndarray:
    bounds = [[int(v) for v in values] for values in (begin, end, strides)]
    return _strided_slice_reference(x, list(range(x.ndim)), *bounds, assume_inbound=False)


def shape_func(data: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor) -> te.Tensor:
    """The shape of a slice whose bounds are in tensors."""

    def from_front(index: PrimExpr, extent: PrimExpr, step: PrimExpr) -> PrimExpr:
        backwards = ops.less(step, 0)
        low = Select(backwards, const(-1, "int64"), const(0, "int64"))
        high = Select(backwards, ops.subtract(extent, 1), extent)
        index = Select(ops.less(index, 0), ops.add(index, extent), index)
        return ops.minimum(ops.maximum(index, low), high)

    def length(i: PrimExpr) -> PrimExpr:
        extent: PrimExpr = const(-1, "int64")
        for axis, e in enumerate(data.shape):
            extent = Select(ops.equal(i, const(axis, "int64")), e, extent)
        step = strides(i)
        first, last = from_front(begin(i), extent, step), from_front(end(i), extent, step)
        backwards = tir_op.ceildiv(ops.subtract(first, last), ops.negative(step))
        return Select(ops.less(step, 0), backwards, tir_op.ceildiv(ops.subtract(last, first), step))

    return te.compute((begin.shape[0],), length, name="T_shape_func_strided_slice_dynamic")


FDataDependent.set(dynamic_strided_slice.op, True)


@dynamic_strided_slice.legalize_as
def _legalize_dynamic_strided_slice(builder: BlockBuilder, call: Call) -> Expr:
    shape = builder.emit(tensor_to_shape(builder.emit(builder.call_te(shape_func, *call.args))))
    extents = [Var("s", "int64") for _ in range(tensor_argument(call, 0).ndim)]
    builder.match_cast(shape, ShapeStructInfo(extents))
    return builder.call_te(topi.dynamic_strided_slice, *call.args, output_shape=extents)
