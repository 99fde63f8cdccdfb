"""Reductions, and sums and products of all elements so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir import operators as ops
from ...ir.expr import PrimExpr, const
from ..expr import Call, Expr
from ..operator_facts import OpPattern
from ..struct_info import VOID, StructInfo, TensorStructInfo, as_dtype
from . import reference as numerics
from .arguments import integer
from .infer_layout import reduce_layout
from .inference import normalize_axes, normalize_axis, only, tensor_argument
from .manipulate import axis_list, of_shape, product, unknown_shape
from .op_attrs import ScanopAttrs, StatisticalAttrs
from .registry import Operator, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def reduced(call: Call, info: TensorStructInfo, axes: Sequence[int] | None, keepdims: bool) -> TensorStructInfo:
    """A tensor without the given axes (None: all), or with extents of 1 in their places."""
    if info.ndim == -1:
        return of_shape(info, []) if axes is None and not keepdims else unknown_shape(info, -1)
    removed = list(range(info.ndim)) if axes is None else normalize_axes(call, axes, info.ndim)
    if keepdims and len(removed) == info.ndim:
        return of_shape(info, [1] * info.ndim)
    if not keepdims and len(removed) == info.ndim:
        return of_shape(info, [])
    if info.extents is None:
        return unknown_shape(info, info.ndim if keepdims else info.ndim - len(removed))
    if keepdims:
        return of_shape(info, [1 if i in removed else e for i, e in enumerate(info.extents)])
    return of_shape(info, [e for i, e in enumerate(info.extents) if i not in removed])


def _struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    return reduced(call, tensor_argument(call, 0), call.attrs["axis"], call.attrs["keepdims"])


def _reduction(
    name: str, doc: str, reference: Callable[..., Any], te_function: Callable[..., Any], *, of: str | None = None
) -> Operator[..., Expr]:
    """A reduction over an axis, several or all. `of`: see `only`."""

    def function(x: Expr, axis: int | list[int] | None = None, keepdims: bool = False) -> Expr:
        return made.call(x, axis=axis_list(axis), keepdims=bool(keepdims))

    def computed(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
        return np.asarray(reference(x, None if axis is None else tuple(axis), keepdims))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.{name}", pattern=OpPattern.COMM_REDUCE, attrs=StatisticalAttrs)(function)
    made.infer_layout(reduce_layout)
    made.struct_info(_struct_info)
    made.reference(computed)
    made.legalize(te_function, name, check=only(of) if of else None)
    return made


def _sum(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.sum(x, axis, dtype=numerics.sum_dtype(x), keepdims=keepdims).astype(x.dtype)


def _prod(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.prod(x, axis, dtype=numerics.sum_dtype(x), keepdims=keepdims).astype(x.dtype)


def _mean(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    total = np.sum(x, axis, dtype=numerics.sum_dtype(x), keepdims=keepdims)
    count = x.size // total.size if total.size else 1
    return numerics.divide(total, np.asarray(count).astype(total.dtype)).astype(x.dtype)


def _variance(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    values = x.astype(numerics.sum_dtype(x))
    deviation = values - _mean(values, axis, True)
    return _mean(deviation * deviation, axis, keepdims).astype(x.dtype)


def te_mean(x: te.Tensor, axis: Sequence[int] | None, keepdims: bool) -> te.Tensor:
    """The sum divided by the number of elements that are summed; of short floats, both in float32."""
    if x.dtype.is_float and x.dtype.bits < 32:
        return topi.cast(te_mean(topi.cast(x, "float32"), axis, keepdims), x.dtype)
    count: PrimExpr = const(1, "int32")
    for i in range(x.ndim) if axis is None else axis:
        count = count * x.shape[i]
    return topi.divide(topi.sum(x, axis, keepdims), ops.cast(x.dtype, count))


def te_variance(x: te.Tensor, axis: Sequence[int] | None, keepdims: bool) -> te.Tensor:
    """The mean of the squared distances from the mean; of short floats, in float32."""
    if x.dtype.is_float and x.dtype.bits < 32:
        return topi.cast(te_variance(topi.cast(x, "float32"), axis, keepdims), x.dtype)
    deviation = topi.subtract(x, te_mean(x, axis, True))
    return te_mean(topi.multiply(deviation, deviation), axis, keepdims)


def te_std(x: te.Tensor, axis: Sequence[int] | None, keepdims: bool) -> te.Tensor:
    """The square root of the variance."""
    return topi.sqrt(te_variance(x, axis, keepdims))


sum = _reduction("sum", "The sum over an axis, several or all.", _sum, topi.sum)
prod = _reduction("prod", "The product over an axis, several or all.", _prod, topi.prod)
max = _reduction(
    "max",
    "The largest element over an axis, several or all; of none, the dtype's least value.",
    lambda x, a, k: np.max(x, a, keepdims=k, initial=numerics.limits(x.dtype)[0]),
    topi.max,
)
min = _reduction(
    "min",
    "The smallest element over an axis, several or all; of none, the dtype's greatest value.",
    lambda x, a, k: np.min(x, a, keepdims=k, initial=numerics.limits(x.dtype)[1]),
    topi.min,
)
mean = _reduction(
    "mean", "The mean over an axis, several or all; of integers, an integer.", _mean, te_mean, of="numbers"
)
variance = _reduction(
    "variance",
    "The mean squared distance from the mean over an axis, several or all.",
    _variance,
    te_variance,
    of="numbers",
)
std = _reduction(
    "std",
    "The square root of the variance over an axis, several or all.",
    lambda x, a, k: np.sqrt(_variance(x, a, k)),
    te_std,
    of="floats",
)


def _scan(name: str, doc: str, reference: Callable[..., Any], te_function: Callable[..., Any]) -> Operator[..., Expr]:
    """A running sum or product."""

    def function(data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool = False) -> Expr:
        place = None if axis is None else integer(axis)
        return made.call(data, axis=place, dtype=as_dtype(dtype), exclusive=bool(exclusive))

    def computed(data: np.ndarray, axis: int | None, dtype: str, exclusive: bool) -> np.ndarray:
        data = data.ravel() if axis is None else data
        along = 0 if axis is None else axis % data.ndim
        values = numerics.converted(data, np.dtype(numerics.dtype_or(dtype, data.dtype)).name)
        result = reference(values, along, dtype=numerics.sum_dtype(values)).astype(values.dtype)
        if not exclusive:
            return result
        before = np.delete(result, np.s_[-1:], along)
        first = (
            [(0, 0)] * along + [(result.shape[along] - before.shape[along], 0)] + [(0, 0)] * (result.ndim - 1 - along)
        )
        return np.pad(before, first, constant_values=1 if name == "cumprod" else 0)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    made = operator(f"relax.{name}", attrs=ScanopAttrs)(function)
    made.struct_info(_scan_struct_info)
    made.reference(computed)
    made.legalize_as(
        lambda builder, call: builder.call_te(
            te_function,
            call.args[0],
            call.attrs["axis"],
            call.struct_info.dtype,
            call.attrs["exclusive"],
            primfunc_name_hint=name,
        )
    )
    return made


def _scan_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, axis, dtype = tensor_argument(call, 0), call.attrs["axis"], call.attrs["dtype"]
    dtype = info.dtype if dtype == VOID else dtype
    if axis is None:
        if info.extents is None:
            return TensorStructInfo(None, dtype, info.vdevice, 1)
        return TensorStructInfo([builder.analyzer.simplify(product(info.extents))], dtype, info.vdevice)
    if info.ndim != -1:
        normalize_axis(call, axis, info.ndim)
    return TensorStructInfo(info.shape, dtype, info.vdevice, info.ndim)


cumsum = _scan("cumsum", "The sums of the elements up to each one, or (exclusive) before it.", np.cumsum, topi.cumsum)
cumprod = _scan(
    "cumprod", "The products of the elements up to each one, or (exclusive) before it.", np.cumprod, topi.cumprod
)
