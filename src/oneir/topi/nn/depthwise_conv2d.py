"""Convolutions of each channel by itself, and their gradients."""

from __future__ import annotations

from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from ..index import Extent, Padding, Shape, Sizes, require_ndim, shape_text
from .dilate import dilate
from .pad import pad
from .window import dilated, output_extent, padding_of, per_dimension


def depthwise_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None = None
) -> Tensor:
    """Each channel of data NCHW with its own filters, (channels, multiplier, height, width)."""
    return _depthwise(Input, Filter, stride, padding, dilation, out_dtype, "NCHW")


def depthwise_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None = None
) -> Tensor:
    """Each channel of data NHWC with its own filters, (height, width, channels, multiplier)."""
    return _depthwise(Input, Filter, stride, padding, dilation, out_dtype, "NHWC")


def _depthwise(
    data: Tensor, weight: Tensor, stride: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None, layout: str
) -> Tensor:
    function = f"depthwise_conv2d_{layout.lower()}"
    require_ndim(data, 4, f"nn.{function}", "Input")
    require_ndim(weight, 4, f"nn.{function}", "Filter")
    dtype = out_dtype or data.dtype
    first = layout == "NCHW"
    if first:
        batch, channels, *extents = data.shape
        filter_channels, multiplier, *kernel = weight.shape
    else:
        batch, *extents, channels = data.shape
        *kernel, filter_channels, multiplier = weight.shape
    if None not in (as_int(channels), as_int(filter_channels)) and as_int(channels) != as_int(filter_channels):
        raise ShapeMismatch(
            f"topi.nn.{function}: the data of shape {shape_text(data.shape)} has {channels} channels, the filter of "
            f"shape {shape_text(weight.shape)} takes {filter_channels}"
        )
    strides = per_dimension(stride, 2, function, "stride")
    dilations = per_dimension(dilation, 2, function, "dilation")
    windows = dilated(kernel, dilations)
    before, after = padding_of(padding, windows, function)
    out = [output_extent(*sizes, function) for sizes in zip(extents, windows, strides, before, after, strict=True)]
    out_channels = Analyzer().simplify(channels * multiplier)

    def placed(channel: Extent, place: list[Any]) -> list[Any]:
        return [channel, *place] if first else [*place, channel]

    padded = pad(data, [0, *placed(0, before)], [0, *placed(0, after)], name="PaddedInput")
    window = [te.reduce_axis((0, k), name=name) for name, k in zip(("di", "dj"), kernel, strict=True)]

    def element(b: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        source = [x * s + r.var * d for x, s, r, d in zip((i, j), strides, window, dilations, strict=True)]
        pair = [ops.floordiv(c, multiplier), ops.floormod(c, multiplier)]
        left = padded(b, *placed(pair[0], source))
        right = weight(*pair, *window) if first else weight(*window, *pair)
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=window)

    return te.compute(
        (batch, *placed(out_channels, out)),
        element if first else lambda b, i, j, c: element(b, c, i, j),
        name="DepthwiseConv2d",
        tag=function,
    )


def depthwise_conv2d_backward_input_nhwc(
    Filter: Tensor, Out_grad: Tensor, oshape: Shape, ishape: Shape, stride: Sizes, padding: Padding
) -> Tensor:
    """The gradient of `depthwise_conv2d_nhwc` (without dilation) over its input, from that over its output.

    `oshape` and `ishape` are the shapes of its output and its input.
    """
    function = "depthwise_conv2d_backward_input_nhwc"
    require_ndim(Filter, 4, f"nn.{function}", "Filter")
    require_ndim(Out_grad, 4, f"nn.{function}", "Out_grad")
    height, width, _, multiplier = Filter.shape
    strides = per_dimension(stride, 2, function, "stride")
    before, after = padding_of(padding, [height, width], function)
    spread = dilate(Out_grad, [1, *strides, 1], name="dilated_out_grad")
    head = [k - 1 - p for k, p in zip((height, width), before, strict=True)]
    tail = [k - 1 - p + s - 1 for k, p, s in zip((height, width), after, strides, strict=True)]
    padded = pad(spread, [0, *head, 0], [0, *tail, 0], name="padded_out_grad")
    dh, dw, dc = (te.reduce_axis((0, k), name=n) for n, k in (("dh", height), ("dw", width), ("dc", multiplier)))
    return te.compute(
        ishape,
        lambda b, h, w, c: te.sum(
            padded(b, h + dh.var, w + dw.var, c * multiplier + dc.var)
            * Filter(height - 1 - dh.var, width - 1 - dw.var, c, dc),
            axis=[dh, dw, dc],
        ),
        tag=function,
    )


def depthwise_conv2d_backward_weight_nhwc(
    Input: Tensor, Out_grad: Tensor, oshape: Shape, fshape: Shape, stride: Sizes, padding: Padding
) -> Tensor:
    """The gradient of `depthwise_conv2d_nhwc` (without dilation) over its filter, from that over its output.

    `oshape` and `fshape` are the shapes of its output and its filter.
    """
    function = "depthwise_conv2d_backward_weight_nhwc"
    require_ndim(Input, 4, f"nn.{function}", "Input")
    require_ndim(Out_grad, 4, f"nn.{function}", "Out_grad")
    height, width, _, multiplier = fshape
    stride_h, stride_w = per_dimension(stride, 2, function, "stride")
    before, after = padding_of(padding, [height, width], function)
    padded = pad(Input, [0, *before, 0], [0, *after, 0], name="padded_in")
    batch, out_h, out_w, _ = Out_grad.shape
    dh, dw, db = (te.reduce_axis((0, k), name=n) for n, k in (("dh", out_h), ("dw", out_w), ("db", batch)))
    return te.compute(
        fshape,
        lambda fh, fw, c, m: te.sum(
            Out_grad(db, dh, dw, c * multiplier + ops.floormod(m, multiplier))
            * padded(db, fh + dh.var * stride_h, fw + dw.var * stride_w, c),
            axis=[db, dh, dw],
        ),
        tag=function,
    )
