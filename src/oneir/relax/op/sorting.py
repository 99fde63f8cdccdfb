"""Operators that order elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.dtype import numpy_dtype
from ...runtime.error import InvalidValue
from ..expr import Call, Expr
from ..operator_facts import OpPattern
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from . import reference as numerics
from .arguments import integer
from .inference import fail, normalize_axis, tensor_argument
from .op_attrs import ArgsortAttrs, SortAttrs, TopKAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _checked(call: Call) -> TensorStructInfo:
    info = tensor_argument(call, 0)
    if info.ndim != -1:
        normalize_axis(call, call.attrs["axis"], info.ndim)
    return info


@operator("relax.sort", pattern=OpPattern.OPAQUE, attrs=SortAttrs)
def sort(x: Expr, axis: int = -1, descending: bool = False) -> Expr:
    """The elements along an axis in order; NaNs last, or first if descending."""
    return sort.call(x, axis=integer(axis), descending=bool(descending))


@sort.struct_info
def _sort_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = _checked(call)
    return TensorStructInfo(info.shape, info.dtype, info.vdevice, info.ndim)


def ordered(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The indices of the elements in order, of equals the first one first."""
    x = numerics.comparable(x)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


sort.reference(lambda x, axis, descending: np.take_along_axis(x, ordered(x, axis, descending), axis))


def te_sort(x: te.Tensor, axis: int, descending: bool) -> te.Tensor:
    """The elements along an axis in order."""
    return topi.sort(x, axis, not descending)


sort.legalize(te_sort, "sort")


@operator("relax.argsort", pattern=OpPattern.OPAQUE, attrs=ArgsortAttrs)
def argsort(data: Expr, axis: int = -1, descending: bool = False, dtype: str = "int32") -> Expr:
    """The indices of the elements along an axis in order, of equals the first one first."""
    return argsort.call(data, axis=integer(axis), descending=bool(descending), dtype=DataType(dtype))


@argsort.struct_info
def _argsort_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = _checked(call)
    return TensorStructInfo(info.shape, call.attrs["dtype"], info.vdevice, info.ndim)


argsort.reference(
    lambda data, axis, descending, dtype: ordered(data, axis, descending).astype(numpy_dtype(dtype)),
)


def te_argsort(data: te.Tensor, axis: int, descending: bool, dtype: str) -> te.Tensor:
    """The indices of the elements along an axis in order."""
    return topi.argsort(data, axis=axis, is_ascend=not descending, dtype=dtype)


argsort.legalize(te_argsort, "argsort")


@operator("relax.topk", pattern=OpPattern.OPAQUE, attrs=TopKAttrs)
def topk(
    data: Expr, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> Expr:
    """The k largest or smallest elements along an axis, in order; all for k below 1.

    `ret_type` says whether the result is "values", "indices" (of `dtype`) or a tuple of "both".
    """
    if ret_type not in ("both", "values", "indices"):
        raise InvalidValue(f'relax.topk: expected ret_type "both", "values" or "indices", found {ret_type!r}')
    largest = bool(largest)
    return topk.call(data, k=integer(k), axis=integer(axis), ret_type=ret_type, largest=largest, dtype=DataType(dtype))


@topk.struct_info
def _topk_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, k = _checked(call), call.attrs["k"]
    extents: list[PrimExpr] | None = None
    if info.extents is not None:
        extents = list(info.extents)
        axis = normalize_axis(call, call.attrs["axis"], info.ndim)
        size = as_int(extents[axis])
        if k > 0 and size is not None and size < k:
            raise fail(call, f"k={k} is more than the {size} elements along axis {axis}")
        extents[axis] = const(k, "int64") if k > 0 else extents[axis]
    values = TensorStructInfo(extents, info.dtype, info.vdevice, info.ndim)
    indices = TensorStructInfo(extents, call.attrs["dtype"], info.vdevice, info.ndim)
    return {"both": TupleStructInfo([values, indices]), "values": values, "indices": indices}[call.attrs["ret_type"]]


@topk.reference
def _topk_reference(data: np.ndarray, k: int, axis: int, ret_type: str, largest: bool, dtype: str) -> Any:
    count = k if k > 0 else data.shape[axis]
    indices = np.take(ordered(data, axis, largest), np.arange(count), axis)
    values = np.take_along_axis(data, indices, axis)
    indices = indices.astype(numpy_dtype(dtype))
    return {"both": [values, indices], "values": values, "indices": indices}[ret_type]


def te_topk(data: te.Tensor, k: int, axis: int, ret_type: str, largest: bool, dtype: str) -> Any:
    """The k largest or smallest elements along an axis."""
    return topi.topk(data, k, axis, ret_type, not largest, dtype)


topk.legalize(te_topk, "topk")
