"""Pooling: the largest elements or means of windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import topi
from ....ir import operators as ops
from ....ir.expr import const
from ....te import Tensor
from ....tir.data_layout import Layout
from ...expr import Call, Expr
from ...operator_facts import CallRewrite, OpPattern, StructInfoRule
from ...struct_info import StructInfo, TensorStructInfo
from .. import reference as numerics
from ..infer_layout import window_layouts
from ..inference import fail, tensor_argument
from ..op_attrs import (
    AdaptivePool1DAttrs,
    AdaptivePool2DAttrs,
    AdaptivePool3DAttrs,
    Pool1DAttrs,
    Pool2DAttrs,
    Pool3DAttrs,
)
from ..registry import Operator, operator
from .layout import complete_padding, from_layout, in_layout, per_dimension

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_POOL_ATTRS = {1: Pool1DAttrs, 2: Pool2DAttrs, 3: Pool3DAttrs}
_ADAPTIVE_ATTRS = {1: AdaptivePool1DAttrs, 2: AdaptivePool2DAttrs, 3: AdaptivePool3DAttrs}
_POOL: dict[int, Callable[..., Any]] = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}
_ADAPTIVE: dict[int, Callable[..., Any]] = {
    1: topi.nn.adaptive_pool1d,
    2: topi.nn.adaptive_pool,
    3: topi.nn.adaptive_pool3d,
}


def _unknown(call: Call, info: TensorStructInfo) -> TensorStructInfo:
    return TensorStructInfo(None, info.dtype, info.vdevice, len(Layout(call.attrs["out_layout"])))


def _pool_struct_info(spatial: str) -> StructInfoRule:
    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        attrs, count, info = call.attrs, len(spatial), tensor_argument(call, 0)
        data = in_layout(call, info, attrs["layout"], "NC" + spatial, "data")
        if data is None:
            return _unknown(call, info)
        extents = data[:2]
        for i in range(count):
            padding = attrs["padding"][i] + attrs["padding"][count + i]
            span = data[2 + i] + padding - (attrs["pool_size"][i] - 1) * attrs["dilation"][i] - 1
            if builder.analyzer.can_prove(ops.less(span, 0)):
                raise fail(call, f"the window is larger than the padded data along {spatial[i]}")
            if attrs["ceil_mode"]:
                span = span + (attrs["strides"][i] - 1)
            extents.append(builder.analyzer.simplify(ops.floordiv(span, attrs["strides"][i]) + 1))
        shape = from_layout(call, extents, attrs["out_layout"], "NC" + spatial, "output")
        return TensorStructInfo(shape, info.dtype, info.vdevice)

    return rule


def _pool_reference(kind: str) -> Callable[..., np.ndarray]:
    def computed(
        data: np.ndarray,
        pool_size: list[int],
        strides: list[int],
        dilation: list[int],
        padding: list[int],
        ceil_mode: bool,
        count_include_pad: bool,
        layout: str,
        out_layout: str,
    ) -> np.ndarray:
        dims = len(pool_size)
        canonical = "NC" + _SPATIAL[dims]
        x = np.transpose(data, [layout.index(c) for c in canonical])
        sizes = []
        for i in range(dims):
            span = x.shape[2 + i] + padding[i] + padding[dims + i] - (pool_size[i] - 1) * dilation[i] - 1
            sizes.append((span + (strides[i] - 1 if ceil_mode else 0)) // strides[i] + 1)
        result = np.zeros((*x.shape[:2], *sizes), data.dtype)
        for place in itertools.product(*map(range, sizes)):
            rows, padded = [], 1
            for i, p in enumerate(place):
                start = p * strides[i] - padding[i]
                every = np.arange(start, start + pool_size[i] * dilation[i], dilation[i])
                rows.append(every[(every >= 0) & (every < x.shape[2 + i])])
                padded *= int((every < x.shape[2 + i] + padding[dims + i]).sum())
            window = x[(slice(None), slice(None), *np.ix_(*rows))].reshape(*x.shape[:2], math.prod(map(len, rows)))
            result[(slice(None), slice(None), *place)] = _of_window(window, kind, padded if count_include_pad else 0)
        return np.transpose(result, [canonical.index(c) for c in out_layout])

    return computed


def _of_window(window: np.ndarray, kind: str, count: int) -> np.ndarray:
    if kind == "max":
        return window.max(-1)
    total = numerics.wide(window).sum(-1)
    count = max(count or window.shape[-1], 1)
    return (total / count if numerics.is_float(window) else np.trunc(total / count)).astype(window.dtype)


def _pool_legalization(name: str, kind: str, dims: int) -> CallRewrite:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = call.attrs
        if attrs["out_layout"] != attrs["layout"]:
            return call
        return builder.call_te(
            _POOL[dims],
            call.args[0],
            kernel=attrs["pool_size"],
            stride=attrs["strides"],
            dilation=attrs["dilation"],
            padding=attrs["padding"],
            pool_type=kind,
            ceil_mode=attrs["ceil_mode"],
            layout=attrs["layout"],
            count_include_pad=attrs["count_include_pad"],
            primfunc_name_hint=name,
        )

    return legalize


def _pool(kind: str, dims: int, default_layout: str) -> Operator[..., Call]:
    """The operator max_pool or avg_pool of so many dimensions."""
    name = f"{kind}_pool{dims}d"

    def function(
        data: Expr,
        pool_size: int | tuple[int, ...] = (1,) * dims,
        strides: int | tuple[int, ...] | None = (1,) * dims,
        padding: int | tuple[int, ...] = (0,) * dims,
        dilation: int | tuple[int, ...] = (1,) * dims,
        ceil_mode: bool = False,
        count_include_pad: bool = kind == "avg" and dims != 2,
        layout: str = default_layout,
        out_layout: str | None = None,
    ) -> Call:
        return made.call(
            data,
            pool_size=per_dimension(name, pool_size, dims, "window extents"),
            strides=per_dimension(name, pool_size if strides is None else strides, dims, "strides"),
            dilation=per_dimension(name, dilation, dims, "dilations"),
            padding=complete_padding(name, padding, dims),
            ceil_mode=bool(ceil_mode),
            count_include_pad=bool(count_include_pad),
            layout=layout,
            out_layout=out_layout or layout,
        )

    what = "largest element" if kind == "max" else "mean"
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The {what} of each window, along {dims} dimension{"s" if dims > 1 else ""}.

    `strides` of None are the window's extents. With `ceil_mode`, a last window may reach beyond the data. With
    `count_include_pad`, padding counts as elements of a mean.
    """
    made = operator(f"relax.nn.{name}", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=_POOL_ATTRS[dims])(function)
    made.follow_precision()
    made.infer_layout(window_layouts("layout", "out_layout"))
    made.struct_info(_pool_struct_info(_SPATIAL[dims]))
    made.reference(_pool_reference(kind))
    made.legalize_as(_pool_legalization(name, kind, dims))
    if kind == "max":
        made.selects()
    return made


max_pool1d = _pool("max", 1, "NCW")
max_pool2d = _pool("max", 2, "NCHW")
max_pool3d = _pool("max", 3, "NCDHW")
avg_pool1d = _pool("avg", 1, "NCW")
avg_pool2d = _pool("avg", 2, "NCHW")
avg_pool3d = _pool("avg", 3, "NCDHW")


# -- adaptive --


def _adaptive_struct_info(spatial: str) -> StructInfoRule:
    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        attrs, info = call.attrs, tensor_argument(call, 0)
        data = in_layout(call, info, attrs["layout"], "NC" + spatial, "data")
        if data is None:
            return _unknown(call, info)
        sizes = attrs["output_size"]
        pooled = data[2:] if sizes is None else [const(s, "int64") for s in sizes]
        shape = from_layout(call, [*data[:2], *pooled], attrs["out_layout"], "NC" + spatial, "output")
        return TensorStructInfo(shape, info.dtype, info.vdevice)

    return rule


def _adaptive_reference(data: np.ndarray, output_size: Any, layout: str, out_layout: str) -> np.ndarray:
    dims = data.ndim - 2
    canonical = "NC" + _SPATIAL[dims]
    x = np.transpose(data, [layout.index(c) for c in canonical])
    sizes = list(x.shape[2:]) if output_size is None else list(output_size)
    result = np.zeros((*x.shape[:2], *sizes), data.dtype)
    for place in itertools.product(*map(range, sizes)):
        window = tuple(
            slice(p * n // s, -(-(p + 1) * n // s)) for p, n, s in zip(place, x.shape[2:], sizes, strict=True)
        )
        part = x[(slice(None), slice(None), *window)]
        part = part.reshape(*x.shape[:2], math.prod(part.shape[2:]))
        result[(slice(None), slice(None), *place)] = _of_window(part, "avg", 0)
    return np.transpose(result, [canonical.index(c) for c in out_layout])


def _adaptive_pool(dims: int, default_layout: str) -> Operator[..., Call]:
    name = f"adaptive_avg_pool{dims}d"

    def function(
        data: Expr,
        output_size: int | tuple[int, ...] | None = None,
        layout: str = default_layout,
        out_layout: str | None = None,
    ) -> Call:
        sizes = None if output_size is None else per_dimension(name, output_size, dims, "output sizes")
        return made.call(data, output_size=sizes, layout=layout, out_layout=out_layout or layout)

    def te_function(data: Tensor, output_size: Any, layout: str) -> Tensor:
        if output_size is None:
            output_size = [data.shape[layout.index(c)] for c in _SPATIAL[dims]]
        return _ADAPTIVE[dims](data, output_size, "avg", layout)

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = call.attrs
        if attrs["out_layout"] != attrs["layout"]:
            return call
        return builder.call_te(
            te_function, call.args[0], attrs["output_size"], attrs["layout"], primfunc_name_hint=name
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "The means of `output_size` windows that cover the data evenly; of each element unless given."
    made = operator(f"relax.nn.{name}", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=_ADAPTIVE_ATTRS[dims])(function)
    made.follow_precision()
    made.infer_layout(window_layouts("layout", "out_layout"))
    made.struct_info(_adaptive_struct_info(_SPATIAL[dims]))
    made.reference(_adaptive_reference)
    made.legalize_as(legalize)
    return made


adaptive_avg_pool1d = _adaptive_pool(1, "NCW")
adaptive_avg_pool2d = _adaptive_pool(2, "NCHW")
adaptive_avg_pool3d = _adaptive_pool(3, "NCDHW")
