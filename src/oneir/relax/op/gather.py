"""Operators that read elements wherever indices say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, TypeMismatch
from ..expr import Call, Constant, Expr, ShapeExpr, Tuple
from ..expr import const as relax_const
from ..operator_facts import OpPattern
from ..struct_info import VOID, PrimStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .arguments import integer, number_value
from .base import shape_to_tensor
from .binary import maximum, minimum, subtract
from .datatype import astype
from .inference import (
    broadcast_extents,
    common_dtype,
    common_vdevice,
    fail,
    normalize_axis,
    tensor_argument,
    tensors_of_tuple,
)
from .manipulate import of_shape, tuple_fields, unknown_shape
from .op_attrs import GatherElementsAttrs, GatherNDAttrs, MeshgridAttrs, OneHotAttrs
from .registry import operator
from .unary import clip, negative

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def check_integers(call: Call, info: TensorStructInfo, what: str = "indices") -> None:
    """An error unless a tensor is of integers, or its dtype is not known."""
    if info.dtype != VOID and not info.dtype.is_int:
        raise fail(call, f"argument {what} must be a tensor of integers, found dtype {info.dtype}", TypeMismatch)


def check_inside(
    call: Call, data: TensorStructInfo, indices: TensorStructInfo, axis: int, builder: BlockBuilder
) -> None:
    """An error if indices are known to exceed the data along another axis than theirs."""
    for i, (extent, taken) in enumerate(zip(data.extents or (), indices.extents or (), strict=False)):
        if i != axis and builder.analyzer.can_prove(ops.less(extent, taken)):
            raise fail(
                call,
                f"indices of the shape {list(indices.extents or ())} must not reach behind data of the shape "
                f"{list(data.extents or ())} along dimension {i}; the axis is {axis}",
            )


def bounded(
    builder: BlockBuilder, indices: Expr, extents: Sequence[PrimExpr] | None, *, from_end: bool = False
) -> Expr:
    """Indices below an extent, the nearest for those outside; `from_end`, down to minus the extent.

    Several extents are those of the elements along the last dimension. What is not known stays as it is.
    """
    info = indices.struct_info
    if extents is None or not isinstance(info, TensorStructInfo) or info.dtype == VOID:
        return indices
    if isinstance(indices, Constant) and None not in map(as_int, extents):
        values, sizes = indices.data.numpy().astype("int64"), np.array(list(map(as_int, extents)))
        if ((values >= (-sizes if from_end else 0)) & (values < sizes)).all():
            return indices
    if len(extents) == 1:
        lowest = ops.subtract(0, extents[0]) if from_end and not info.dtype.is_uint else 0
        return builder.emit(clip(indices, lowest, ops.subtract(extents[0], 1)))
    sizes = builder.emit(astype(shape_to_tensor(ShapeExpr(extents)), info.dtype))
    if not info.dtype.is_uint:
        indices = maximum(indices, negative(sizes) if from_end else relax_const(0, info.dtype))
    return builder.emit(minimum(indices, subtract(sizes, relax_const(1, info.dtype))))


@operator("relax.gather_elements", pattern=OpPattern.INJECTIVE, attrs=GatherElementsAttrs)
def gather_elements(data: Expr, indices: Expr, axis: int = 0) -> Expr:
    """out[i][j][k] = data[i][indices[i][j][k]][k], for axis 1 of 3; has the shape of `indices`."""
    return gather_elements.call(data, indices, axis=integer(axis))


@gather_elements.struct_info
def _gather_elements_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, indices = tensor_argument(call, 0, "data"), tensor_argument(call, 1, "indices")
    check_integers(call, indices)
    axis = call.attrs["axis"] if info.ndim == -1 else normalize_axis(call, call.attrs["axis"], info.ndim)
    if -1 in (info.ndim, indices.ndim):
        return unknown_shape(info, max(info.ndim, indices.ndim))
    if info.ndim != indices.ndim:
        raise fail(call, f"expected indices of {info.ndim} dimensions like the data, found {indices.ndim}")
    check_inside(call, info, indices, axis, builder)
    return TensorStructInfo(indices.shape, info.dtype, info.vdevice, indices.ndim)


gather_elements.reference(lambda data, indices, axis: np.take_along_axis(_cut(data, indices, axis), indices, axis))


def _cut(data: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """The data cut to the extents of the indices along all other axes."""
    axis %= data.ndim
    return data[tuple(slice(None) if i == axis else slice(e) for i, e in enumerate(indices.shape))]


gather_elements.legalize_as(
    lambda builder, call: builder.call_te(
        topi.gather, call.args[0], call.attrs["axis"], call.args[1], primfunc_name_hint="gather"
    )
)


@gather_elements.bound_indices
def _bound_gather_elements(builder: BlockBuilder, call: Call) -> Expr:
    data, indices = call.args
    extents = extents_of(data)
    return gather_elements(data, bounded(builder, indices, extents and [extents[call.attrs["axis"]]]), **call.attrs)


@operator("relax.gather_nd", pattern=OpPattern.INJECTIVE, attrs=GatherNDAttrs)
def gather_nd(data: Expr, indices: Expr, batch_dims: int = 0) -> Expr:
    """Elements or parts of `data` at the places that the rows along the last dimension of `indices` name.

    The first `batch_dims` dimensions are common to both.
    """
    if batch_dims < 0:
        raise InvalidValue(f"relax.gather_nd: expected batch_dims of at least 0, found {batch_dims}")
    return gather_nd.call(data, indices, batch_dims=integer(batch_dims))


@gather_nd.struct_info
def _gather_nd_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, indices = tensor_argument(call, 0, "data"), tensor_argument(call, 1, "indices")
    batch = call.attrs["batch_dims"]
    check_integers(call, indices)
    if -1 in (info.ndim, indices.ndim):
        return unknown_shape(info, -1)
    if indices.ndim == 0:
        raise fail(call, "expected indices of at least one dimension, along which places are named, found a scalar")
    if batch > info.ndim or batch > indices.ndim - 1:
        raise fail(call, f"batch_dims={batch} is too large for data of {info.ndim} and indices of {indices.ndim} axes")
    for i, (x, y) in enumerate(zip((info.extents or ())[:batch], (indices.extents or ())[:batch], strict=False)):
        if builder.analyzer.can_prove(ops.not_equal(x, y)):
            raise fail(call, f"data and indices have batch_dims={batch} in common, found {x} and {y} at dimension {i}")
    count = as_int(indices.extents[-1]) if indices.extents is not None else None
    if count is None or indices.extents is None:
        return unknown_shape(info, -1)
    if count > info.ndim - batch:
        raise fail(call, f"each index names {count} places in data of {info.ndim} dimensions with batch_dims={batch}")
    if info.extents is None:
        return unknown_shape(info, indices.ndim - 1 + info.ndim - count - batch)
    return of_shape(info, [*indices.extents[:-1], *info.extents[batch + count :]])


@gather_nd.reference
def _gather_nd_reference(data: np.ndarray, indices: np.ndarray, batch_dims: int) -> np.ndarray:
    count = indices.shape[-1]
    batch = np.indices(indices.shape[:batch_dims]) if batch_dims else []
    more = (1,) * (indices.ndim - 1 - batch_dims)
    return data[(*(b.reshape(*b.shape, *more) for b in batch), *(indices[..., i] for i in range(count)))]


def te_gather_nd(data: te.Tensor, indices: te.Tensor, batch_dims: int) -> te.Tensor:
    """Elements of the data; the places are named along the last dimension of the indices."""
    last = indices.ndim - 1
    return topi.gather_nd(data, topi.transpose(indices, [last, *range(last)]), batch_dims)


gather_nd.legalize(te_gather_nd)


@gather_nd.bound_indices
def _bound_gather_nd(builder: BlockBuilder, call: Call) -> Expr:
    data, indices = call.args
    return gather_nd(
        data, bounded(builder, indices, rows_extents(data, indices, call.attrs["batch_dims"])), **call.attrs
    )


def rows_extents(data: Expr, indices: Expr, batch_dims: int = 0) -> Sequence[PrimExpr] | None:
    """The extents that the rows of indices of several dimensions name places in; None if they are not known."""
    have, rows = extents_of(data), extents_of(indices)
    count = as_int(rows[-1]) if rows else None
    return have[batch_dims : batch_dims + count] if have and count else None


def extents_of(x: Expr) -> list[PrimExpr] | None:
    """The extents of a tensor; None if they are not known."""
    info = x.struct_info
    return list(info.extents) if isinstance(info, TensorStructInfo) and info.extents is not None else None


@operator("relax.index_tensor", pattern=OpPattern.INJECTIVE)
def index_tensor(data: Expr, indices: Any) -> Expr:
    """data[i0, i1, ...]: the index tensors broadcast to one shape, which takes the place of the axes they index."""
    return index_tensor.call(data, Tuple(indices) if isinstance(indices, (list, tuple)) else indices)


@index_tensor.struct_info
def _index_tensor_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, indices = tensor_argument(call, 0, "data"), tensors_of_tuple(call, 1)
    if not indices:
        raise fail(call, "expected at least one index tensor, found none")
    for index in indices:
        check_integers(call, index)
    if -1 != info.ndim < len(indices):
        raise fail(call, f"found {len(indices)} index tensors for data of {info.ndim} dimensions")
    common = indexed_extents(call, indices, builder)
    if info.ndim == -1 or any(i.ndim == -1 for i in indices):
        return unknown_shape(info, -1)
    if common is None or info.extents is None:
        return unknown_shape(info, max(i.ndim for i in indices) + info.ndim - len(indices))
    return of_shape(info, [*common, *info.extents[len(indices) :]])


def indexed_extents(call: Call, indices: list[TensorStructInfo], builder: BlockBuilder) -> list[PrimExpr] | None:
    """The shape that index tensors broadcast to; None if it is not known."""
    common: list[PrimExpr] | None = []
    for index in indices:
        if index.extents is None or common is None:
            return None
        common = broadcast_extents(call, common, index.extents, builder.analyzer)
    return common


index_tensor.reference(lambda data, indices: data[tuple(indices)])


@index_tensor.legalize_as
def _legalize_index_tensor(builder: BlockBuilder, call: Call) -> Expr:
    indices = tuple_fields(builder, call.args[1])
    from_front = all(isinstance(i, Constant) and (i.data.numpy() >= 0).all() for i in indices)
    te_function = topi.adv_index if from_front else topi.index_tensor
    return builder.call_te(te_function, call.args[0], indices, primfunc_name_hint="index_tensor")


@operator("relax.meshgrid", pattern=OpPattern.INJECTIVE, attrs=MeshgridAttrs)
def meshgrid(tensors: Any, indexing: str | None = "ij") -> Expr:
    """Vectors as tensors over all their combinations; "xy" exchanges the first two dimensions, "ij" does not."""
    if indexing not in ("ij", "xy", None):
        raise InvalidValue(f'relax.meshgrid: expected indexing "ij" or "xy", found {indexing!r}')
    return meshgrid.call(Tuple(tensors) if isinstance(tensors, (list, tuple)) else tensors, indexing=indexing)


@meshgrid.struct_info
def _meshgrid_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = tensors_of_tuple(call)
    if not infos:
        raise fail(call, "expected at least one vector, found none")
    for info in infos:
        if info.ndim not in (1, -1):
            raise fail(call, f"expected vectors, found a tensor of {info.ndim} dimensions")
    common = TensorStructInfo(None, common_dtype(call, infos), common_vdevice(infos), len(infos))
    extents = [i.extents[0] for i in infos if i.extents is not None]
    if len(extents) < len(infos):
        return TupleStructInfo([common] * len(infos))
    if call.attrs["indexing"] == "xy":
        extents[:2] = reversed(extents[:2])
    return TupleStructInfo([of_shape(common, extents)] * len(infos))


meshgrid.reference(lambda tensors, indexing: list(np.meshgrid(*tensors, indexing=indexing or "ij")))


@meshgrid.legalize_as
def _legalize_meshgrid(builder: BlockBuilder, call: Call) -> Expr:
    fields, indexing = tuple_fields(builder, call.args[0]), call.attrs["indexing"] or "ij"
    made = builder.call_te(topi.meshgrid, fields, indexing, primfunc_name_hint="meshgrid")
    # A kernel of one output gives a tensor, not a tuple of one.
    return Tuple([made]) if len(fields) == 1 else made


@operator("relax.one_hot", pattern=OpPattern.INJECTIVE, attrs=OneHotAttrs)
def one_hot(indices: Expr, on_value: Any, off_value: Any, depth: int, axis: int = -1) -> Expr:
    """A new axis of extent `depth` with `on_value` where its index is that in `indices`, elsewhere `off_value`."""
    if depth < 1:
        raise InvalidValue(f"relax.one_hot: expected a depth of at least 1, found {depth}")
    return one_hot.call(
        indices, number_value(on_value), number_value(off_value), depth=integer(depth), axis=integer(axis)
    )


@one_hot.struct_info
def _one_hot_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0, "indices")
    check_integers(call, info)
    on, off = (call.args[i].struct_info for i in (1, 2))
    if not isinstance(on, PrimStructInfo) or not isinstance(off, PrimStructInfo) or on.dtype != off.dtype:
        raise fail(call, f"on_value and off_value must be numbers of one dtype, found {on} and {off}", TypeMismatch)
    made = TensorStructInfo(None, on.dtype, info.vdevice, -1 if info.ndim == -1 else info.ndim + 1)
    if info.ndim == -1:
        return made
    axis = normalize_axis(call, call.attrs["axis"], info.ndim + 1)
    if info.extents is None:
        return made
    return of_shape(made, [*info.extents[:axis], const(call.attrs["depth"], "int64"), *info.extents[axis:]])


@one_hot.reference
def _one_hot_reference(indices: np.ndarray, on_value: Any, off_value: Any, depth: int, axis: int) -> np.ndarray:
    axis %= indices.ndim + 1
    places = np.arange(depth).reshape(-1, *[1] * (indices.ndim - axis))
    return np.where(np.expand_dims(indices, axis) == places, on_value, off_value)


@one_hot.legalize_as
def _legalize_one_hot(builder: BlockBuilder, call: Call) -> Expr:
    indices, on, off = call.args
    axis = call.attrs["axis"] % (indices.struct_info.ndim + 1)
    dtype = call.struct_info.dtype
    return builder.call_te(
        topi.one_hot, indices, on, off, call.attrs["depth"], axis, dtype, primfunc_name_hint="one_hot"
    )


@index_tensor.bound_indices
def _bound_index_tensor(builder: BlockBuilder, call: Call) -> Expr:
    return index_tensor(call.args[0], bounded_each(builder, call.args[0], tuple_fields(builder, call.args[1])))


def bounded_each(builder: BlockBuilder, data: Expr, indices: Sequence[Expr]) -> list[Expr]:
    """Index tensors for the first axes of the data, each inside of its own, counted from either end."""
    extents = extents_of(data) or [None] * len(indices)
    pairs = zip(indices, extents, strict=False)
    return [bounded(builder, i, None if e is None else [e], from_end=True) for i, e in pairs]
