"""Operators that give a tensor with some elements replaced, wherever indices say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, TypeMismatch
from ..expr import Call, Expr, Tuple
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .arguments import integer, number_value
from .create import prim_argument
from .gather import (
    bounded,
    bounded_each,
    check_inside,
    check_integers,
    extents_of,
    indexed_extents,
    rows_extents,
)
from .inference import (
    broadcast_extents,
    common_dtype,
    fail,
    normalize_axis,
    tensor_argument,
    tensors_of_tuple,
)
from .manipulate import tuple_fields
from .op_attrs import IndexPutAttrs, ScatterElementsAttrs, ScatterNDAttrs, SliceScatterAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "max": np.maximum,
    "min": np.minimum,
}


def _check_reduction(name: str, reduction: str, allowed: tuple[str, ...]) -> None:
    if reduction not in allowed:
        raise InvalidValue(f"relax.{name}: expected the reduction to be one of {allowed}, found {reduction!r}")


def _like_data(info: TensorStructInfo) -> TensorStructInfo:
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


def _check_dtypes(call: Call, data: TensorStructInfo, indices: TensorStructInfo, updates: TensorStructInfo) -> None:
    common_dtype(call, [data, updates])
    check_integers(call, indices)


@operator("relax.scatter_elements", attrs=ScatterElementsAttrs)
def scatter_elements(data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update") -> Expr:
    """`data` with out[i][indices[i][j]] = f(out[i][indices[i][j]], updates[i][j]), for axis 1 of 2.

    `reduction` names f: "update" takes the update; "add", "mul", "mean", "max" and "min" combine both.
    """
    _check_reduction("scatter_elements", reduction, tuple(_COMBINE))
    return scatter_elements.call(data, indices, updates, axis=integer(axis), reduction=reduction)


@scatter_elements.struct_info
def _scatter_elements_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    data, indices, updates = (tensor_argument(call, i, n) for i, n in enumerate(("data", "indices", "updates")))
    _check_dtypes(call, data, indices, updates)
    ranks = (data.ndim, indices.ndim, updates.ndim)
    if len(set(ranks) - {-1}) > 1:
        raise fail(call, f"expected data, indices and updates of as many dimensions, found {ranks}")
    if data.ndim != -1:
        check_inside(call, data, indices, normalize_axis(call, call.attrs["axis"], data.ndim), builder)
    for x, y in zip(indices.extents or (), updates.extents or (), strict=False):
        if builder.analyzer.can_prove(ops.not_equal(x, y)):
            raise fail(call, f"indices and updates must have one shape, found {indices.shape} and {updates.shape}")
    return _like_data(data)


@scatter_elements.reference
def _scatter_elements_reference(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str
) -> np.ndarray:
    result, combine = data.copy(), _COMBINE[reduction]
    for place in np.ndindex(indices.shape):
        target = list(place)
        target[axis] = indices[place]
        result[tuple(target)] = combine(result[tuple(target)], updates[place])
    return result


scatter_elements.legalize(topi.scatter_elements)


@scatter_elements.bound_indices
def _bound_scatter_elements(builder: BlockBuilder, call: Call) -> Expr:
    data, indices, updates = call.args
    extents = extents_of(data)
    indices = bounded(builder, indices, extents and [extents[call.attrs["axis"]]], from_end=True)
    return scatter_elements(data, indices, updates, **call.attrs)


REDUCTIONS_OF_ND = ("update", "add", "mul", "max", "min")


@operator("relax.scatter_nd", attrs=ScatterNDAttrs)
def scatter_nd(data: Expr, indices: Expr, updates: Expr, reduction: str = "update") -> Expr:
    """`data` with the elements or parts at the places that the rows of `indices` name combined with `updates`.

    `reduction`: "update" takes the update; "add", "mul", "max" and "min" combine both.
    """
    _check_reduction("scatter_nd", reduction, REDUCTIONS_OF_ND)
    return scatter_nd.call(data, indices, updates, reduction=reduction)


@scatter_nd.struct_info
def _scatter_nd_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    data, indices, updates = (tensor_argument(call, i, n) for i, n in enumerate(("data", "indices", "updates")))
    _check_dtypes(call, data, indices, updates)
    if data.extents is None or indices.extents is None or updates.extents is None:
        return _like_data(data)
    if not indices.extents:
        raise fail(call, "expected indices of at least one dimension, along which places are named, found a scalar")
    count = as_int(indices.extents[-1])
    if count is None:
        raise fail(call, f"the last extent of indices must be a constant, found {indices.shape}")
    if not 1 <= count <= data.ndim:
        raise fail(call, f"each index names {count} places in data of {data.ndim} dimensions")
    expected: list[PrimExpr] = [*indices.extents[:-1], *data.extents[count:]]
    differ = any(
        builder.analyzer.can_prove(ops.not_equal(x, y)) for x, y in zip(expected, updates.extents, strict=False)
    )
    if differ or len(expected) != updates.ndim:
        shape = ", ".join(map(str, expected))
        raise fail(call, f"expected updates of the shape ({shape}), which indices and data give, found {updates.shape}")
    return _like_data(data)


@scatter_nd.reference
def _scatter_nd_reference(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str) -> np.ndarray:
    result, combine = data.copy(), _COMBINE[reduction]
    for place in np.ndindex(indices.shape[:-1]):
        target = tuple(indices[place])
        result[target] = combine(result[target], updates[place])
    return result


def te_scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str) -> te.Tensor:
    """The places are named along the last dimension of the indices."""
    last = indices.ndim - 1
    return topi.scatter_nd(data, topi.transpose(indices, [last, *range(last)]), updates, reduction)


scatter_nd.legalize(te_scatter_nd, "scatter_nd")


@scatter_nd.bound_indices
def _bound_scatter_nd(builder: BlockBuilder, call: Call) -> Expr:
    data, indices, updates = call.args
    indices = bounded(builder, indices, rows_extents(data, indices), from_end=True)
    return scatter_nd(data, indices, updates, **call.attrs)


@operator("relax.index_put", attrs=IndexPutAttrs)
def index_put(data: Expr, indices: Any, values: Expr, accumulate: bool = False) -> Expr:
    """`data` with data[i0, i1, ...] = values, or (accumulate) += values; the index tensors are broadcast."""
    places = Tuple(indices) if isinstance(indices, (list, tuple)) else indices
    return index_put.call(data, places, values, accumulate=bool(accumulate))


@index_put.struct_info
def _index_put_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    data, values = tensor_argument(call, 0, "data"), tensor_argument(call, 2, "values")
    given = call.args[1].struct_info
    indices = tensors_of_tuple(call, 1) if isinstance(given, TupleStructInfo) else [tensor_argument(call, 1, "indices")]
    common_dtype(call, [data, values])
    for index in indices:
        check_integers(call, index)
    if not indices or -1 != data.ndim < len(indices):
        raise fail(call, f"expected 1 to {data.ndim} index tensors, found {len(indices)}")
    common = indexed_extents(call, indices, builder)
    if common is not None and data.extents is not None and values.extents is not None:
        region = [*common, *data.extents[len(indices) :]]
        whole = broadcast_extents(call, region, values.extents, builder.analyzer) or region
        grown = (builder.analyzer.can_prove(ops.not_equal(x, y)) for x, y in zip(whole, region, strict=False))
        if len(whole) != len(region) or any(grown):
            raise fail(
                call, f"values of the shape {list(values.extents)} do not broadcast to {region}, which is indexed"
            )
    return _like_data(data)


@index_put.reference
def _index_put_reference(data: np.ndarray, indices: Any, values: np.ndarray, accumulate: bool) -> np.ndarray:
    result = data.copy()
    places = tuple(indices) if isinstance(indices, (list, tuple)) else (indices,)
    if accumulate:
        np.add.at(result, places, values)
    else:
        result[places] = values
    return result


@index_put.legalize_as
def _legalize_index_put(builder: BlockBuilder, call: Call) -> Expr:
    data, indices, values = call.args
    places = tuple_fields(builder, indices) if isinstance(indices.struct_info, TupleStructInfo) else [indices]
    return builder.call_te(
        topi.index_put, data, places, values, accumulate=call.attrs["accumulate"], primfunc_name_hint="index_put"
    )


@index_put.bound_indices
def _bound_index_put(builder: BlockBuilder, call: Call) -> Expr:
    data, indices, values = call.args
    places = tuple_fields(builder, indices) if isinstance(indices.struct_info, TupleStructInfo) else [indices]
    return index_put(data, bounded_each(builder, data, places), values, **call.attrs)


@operator("relax.slice_scatter", attrs=SliceScatterAttrs)
def slice_scatter(input_tensor: Expr, src: Expr, start: Any, end: Any, step: Any = 1, axis: int = 0) -> Expr:
    """The tensor with the slice start:end:step along an axis replaced by `src`."""
    bounds = [number_value(v) for v in (start, end, step)]
    return slice_scatter.call(input_tensor, src, *bounds, axis=integer(axis))


@slice_scatter.struct_info
def _slice_scatter_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    data, src = tensor_argument(call, 0, "input_tensor"), tensor_argument(call, 1, "src")
    analyzer = builder.analyzer
    common_dtype(call, [data, src])
    start, end, step = (prim_argument(call, i, n) for i, n in ((2, "start"), (3, "end"), (4, "step")))
    for name, value in (("start", start), ("end", end), ("step", step)):
        if not value.dtype.is_int:
            raise fail(call, f"argument {name} must be an integer, found {value} of dtype {value.dtype}", TypeMismatch)
    if analyzer.can_prove(step < 1):
        raise fail(call, f"the step must be at least 1, found {step}")
    # A negative bound counts from the end, so one may be below the other and behind it.
    one_sign = (as_int(start) or 0) < 0 or (as_int(end) or 0) >= 0
    if one_sign and analyzer.can_prove(end < start):
        raise fail(call, f"the start must not be after the end, found {start} and {end}")
    if len({data.ndim, src.ndim} - {-1}) > 1:
        raise fail(call, f"expected src of {data.ndim} dimensions like the tensor, found {src.ndim}")
    if data.extents is not None and src.extents is not None:
        axis = normalize_axis(call, call.attrs["axis"], data.ndim)
        expected = list(data.extents)
        extent, *bounds = (as_int(v) for v in (expected[axis], start, end, step))
        if extent is not None and None not in bounds:
            expected[axis] = const(len(range(*slice(*bounds).indices(extent))), "int64")
        elif one_sign:
            expected[axis] = analyzer.simplify(ops.floordiv(end - start + step - 1, step))
        else:
            expected[axis] = src.extents[axis]
        for x, y in zip(expected, src.extents, strict=True):
            if analyzer.can_prove(ops.not_equal(x, y)):
                shape = ", ".join(map(str, expected))
                raise fail(call, f"expected src of the shape ({shape}), that of the slice, found {src.shape}")
    return _like_data(data)


@slice_scatter.reference
def _slice_scatter_reference(
    input_tensor: np.ndarray, src: np.ndarray, start: int, end: int, step: int, axis: int
) -> np.ndarray:
    result = input_tensor.copy()
    place = [slice(None)] * result.ndim
    place[axis] = slice(start, end, step)
    result[tuple(place)] = src
    return result


slice_scatter.legalize(topi.slice_scatter)
