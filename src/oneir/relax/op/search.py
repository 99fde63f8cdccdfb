"""Operators that choose elements and look for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import topi
from ...ir.dtype import DataType
from ...runtime.error import TypeMismatch
from ..expr import Call, Constant, Expr
from ..operator_facts import OpPattern
from ..struct_info import VOID, StructInfo, TensorStructInfo, same_extents
from . import reference as numerics
from .arguments import integer
from .inference import broadcast_tensor, common_dtype, fail, tensor_argument
from .op_attrs import ArgmaxArgminAttrs
from .registry import Operator, operator
from .statistical import reduced

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.where", pattern=OpPattern.BROADCAST)
def where(condition: Expr, x1: Expr, x2: Expr) -> Call:
    """x1 where the condition, a tensor of bools, holds, else x2; all three broadcast as NumPy does."""
    return where.call(condition, x1, x2)


where.follow_precision()


@where.struct_info
def _where_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    condition, x1, x2 = (tensor_argument(call, i, name) for i, name in enumerate(("condition", "x1", "x2")))
    if condition.dtype != VOID and not condition.dtype.is_bool:
        raise fail(call, f"the condition must be a tensor of bools, found dtype {condition.dtype}", TypeMismatch)
    dtype = common_dtype(call, [x1, x2])
    return broadcast_tensor(call, [condition, x1, x2], dtype, builder.analyzer)


where.reference(np.where)
where.legalize(topi.where)


@where.simplify
def _where_by_condition(builder: BlockBuilder, call: Call) -> Expr:
    """One of the two, where the condition is the same everywhere and the other changes nothing about the shape."""
    condition = call.args[0]
    known = np.asarray(condition.data) if isinstance(condition, Constant) else None
    if known is None or not known.size or known.any() != known.all():
        return call
    place = 1 if known.any() else 2
    chosen, result = tensor_argument(call, place).extents, call.struct_info
    if chosen is None or not isinstance(result, TensorStructInfo) or result.extents is None:
        return call
    return call.args[place] if same_extents(chosen, result.extents, builder.analyzer) else call


def _index_of(name: str, doc: str, reference: Callable[..., Any], te_function: Callable[..., Any]) -> Operator:
    def function(x: Expr, axis: int | None = None, keepdims: bool = False) -> Expr:
        return made.call(x, axis=None if axis is None else integer(axis), keepdims=bool(keepdims))

    def struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
        info, axis = tensor_argument(call, 0), call.attrs["axis"]
        index = TensorStructInfo(info.shape, "int64", info.vdevice, info.ndim)
        return reduced(call, index, None if axis is None else [axis], call.attrs["keepdims"])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.{name}", pattern=OpPattern.COMM_REDUCE, attrs=ArgmaxArgminAttrs)(function)
    made.struct_info(struct_info)

    @made.reference
    def computed(x: np.ndarray, axis: int | None, keepdims: bool) -> np.ndarray:
        if not (x.size if axis is None else x.shape[axis]):
            return np.zeros(np.any(x, axis, keepdims=keepdims).shape, np.int64)
        return np.asarray(reference(x, axis, keepdims=keepdims), np.int64)

    made.legalize(te_function)
    return made


argmax = _index_of(
    "argmax",
    "Where the largest element along an axis, or of all, is; the first of equals, NaN being the largest; of none, 0.",
    np.argmax,
    topi.argmax,
)
argmin = _index_of(
    "argmin",
    "Where the smallest element along an axis, or of all, is; the first of equals, NaN being the smallest; of none, 0.",
    np.argmin,
    topi.argmin,
)


@operator("relax.bucketize", pattern=OpPattern.OPAQUE)
def bucketize(input_tensor: Expr, boundaries: Expr, out_int32: bool = False, right: bool = False) -> Expr:
    """For each element, the number of the rising `boundaries` below it, or (right) not above it."""
    return bucketize.call(input_tensor, boundaries, out_int32=bool(out_int32), right=bool(right))


@bucketize.struct_info
def _bucketize_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, boundaries = tensor_argument(call, 0, "input_tensor"), tensor_argument(call, 1, "boundaries")
    if boundaries.ndim not in (1, -1):
        raise fail(call, f"argument boundaries must have one dimension, found {boundaries.ndim}")
    dtype = DataType("int32" if call.attrs["out_int32"] else "int64")
    return TensorStructInfo(info.shape, dtype, info.vdevice, info.ndim)


@bucketize.reference
def _bucketize_reference(input_tensor: np.ndarray, boundaries: np.ndarray, out_int32: bool, right: bool) -> np.ndarray:
    values = numerics.comparable(input_tensor)
    found = np.searchsorted(numerics.comparable(boundaries), values, "right" if right else "left")
    return np.asarray(found, np.int32 if out_int32 else np.int64)


@bucketize.legalize_as
def _legalize_bucketize(builder: BlockBuilder, call: Call) -> Expr:
    values, boundaries = call.args
    dtype = call.struct_info.dtype
    return builder.call_te(
        topi.searchsorted, boundaries, values, call.attrs["right"], dtype, primfunc_name_hint="searchsorted"
    )
