"""Convolutions, of any number of dimensions and in any layout; and those of two dimensions by name."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ..index import Padding, Sizes, require_ndim, shape_text
from .pad import pad
from .window import dilated, output_extent, padding_of, per_dimension


def conv(
    inp: Tensor,
    filt: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of any number of spatial dimensions.

    `data_layout` says where the batch N, the channels C and the spatial dimensions (all others) stand;
    `kernel_layout` likewise for the channels in (I, of one group) and out (O), by default as the data's: OIHW for NCHW,
    HWIO for NHWC. `stride` and `dilation` are one number or one for each spatial dimension, `padding` as well, or
    those before and then those after. Products are computed in `out_dtype`, by default that of `inp`.
    """
    return convolve(inp, filt, stride, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


def convolve(
    inp: Tensor,
    filt: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: Any,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str | None,
    attrs: dict[str, Any] | None = None,
) -> Tensor:
    """As `conv`, with attributes for the stage."""
    dim = len(data_layout) - 2
    data_at = _places(data_layout, "NC", "data_layout")
    if not kernel_layout:
        spatial = "".join(c for c in data_layout if c not in "NC")
        kernel_layout = f"OI{spatial}" if data_layout.index("C") < data_layout.index(spatial[0]) else f"{spatial}IO"
    kernel_at = _places(kernel_layout, "OI", "kernel_layout")
    for tensor, what, layout in ((inp, "inp", data_layout), (filt, "filt", kernel_layout)):
        require_ndim(tensor, dim + 2, "nn.conv", f"{what} in the layout {layout}")
    dtype = out_dtype or inp.dtype
    strides = per_dimension(stride, dim, "conv", "stride")
    dilations = per_dimension(dilation, dim, "conv", "dilation")
    batch, in_channel, *extents = (inp.shape[p] for p in data_at)
    num_filter, group_channel, *kernel = (filt.shape[p] for p in kernel_at)
    _check_groups(inp, filt, in_channel, group_channel, num_filter, groups)
    windows = dilated(kernel, dilations)
    before, after = padding_of(padding, windows, "conv")
    out_extents = [
        output_extent(*sizes, "conv") for sizes in zip(extents, windows, strides, before, after, strict=True)
    ]
    padded = pad(inp, _arranged([0, 0, *before], data_at), _arranged([0, 0, *after], data_at), name="pad_temp")
    rc = te.reduce_axis((0, ops.floordiv(in_channel, groups)), name="rc")
    window = [te.reduce_axis((0, k), name=f"r{axis}") for axis, k in zip("yxz", kernel, strict=False)]
    # The reduction axes stand as the dimensions do in the data.
    reduction = [axis for axis in _arranged([None, rc, *window], data_at) if axis is not None]

    def element(*args: PrimExpr) -> Any:
        nn, ff, *place = (args[p] for p in data_at)
        channel: Any = rc.var
        if as_int(groups) != 1:
            group = ops.floordiv(ff, ops.floordiv(num_filter, groups))
            channel = group * ops.floordiv(in_channel, groups) + rc.var
        source = [i * s + r.var * d for i, s, r, d in zip(place, strides, window, dilations, strict=True)]
        left = padded(*_arranged([nn, channel, *source], data_at))
        right = filt(*_arranged([ff, rc, *window], kernel_at))
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=reduction)

    name = f"{'' if as_int(groups) == 1 else 'group_'}conv{dim}d_{data_layout.lower()}"
    return te.compute(
        _arranged([batch, num_filter, *out_extents], data_at),
        element,
        name=name,
        tag=name,
        attrs=attrs,
        varargs_names=_arranged(["nn", "ff", "yy", "xx", "zz"][: dim + 2], data_at),
    )


def _places(layout: str, channels: str, what: str) -> list[int]:
    """Where in a layout the two kinds of channels stand, and then the spatial dimensions in their order."""
    rest = [c for c in layout if c not in channels]
    if (
        sorted(channels) != sorted(set(layout) - set(rest))
        or len(set(layout)) != len(layout)
        or not 1 <= len(rest) <= 3
    ):
        raise InvalidValue(
            f"topi.nn.conv: expected a {what} of {channels[0]}, {channels[1]} and one to three spatial dimensions, "
            f"found {layout!r}"
        )
    return [layout.index(c) for c in (*channels, *rest)]


def _arranged(values: list[Any], places: list[int]) -> list[Any]:
    """Values given in the order of `places`, in the order of the layout."""
    result: list[Any] = [None] * len(places)
    for value, place in zip(values, places, strict=True):
        result[place] = value
    return result


def _check_groups(inp: Tensor, filt: Tensor, in_channel: Any, group_channel: Any, num_filter: Any, groups: Any) -> None:
    channels, of_group, filters, count = (as_int(v) for v in (in_channel, group_channel, num_filter, groups))
    if count is not None and count < 1:
        raise InvalidValue(f"topi.nn.conv: expected at least 1 group, found {count}")
    if count is not None and filters is not None and filters % count:
        raise ShapeMismatch(f"topi.nn.conv: {filters} output channels do not divide into {count} groups")
    if channels is not None and of_group is not None and count is not None and channels != of_group * count:
        raise ShapeMismatch(
            f"topi.nn.conv: data of shape {shape_text(inp.shape)} has {channels} channels, the filter of shape "
            f"{shape_text(filt.shape)} in {count} groups takes {of_group * count}"
        )


def conv2d(
    input: Tensor,
    filter: Tensor,
    strides: Sizes,
    padding: Padding,
    dilation: Sizes,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of two spatial dimensions in a layout; see `conv`."""
    return conv(input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None = None
) -> Tensor:
    """The convolution of data NCHW with a filter OIHW."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NCHW", "OIHW", out_dtype)


def conv2d_hwcn(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None = None
) -> Tensor:
    """The convolution of data HWCN with a filter HWIO."""
    return conv(Input, Filter, stride, padding, dilation, 1, "HWCN", "HWIO", out_dtype)


def conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Padding, dilation: Sizes, out_dtype: str | None = "float32"
) -> Tensor:
    """The convolution of data NHWC with a filter HWIO, whose layout it leaves open."""
    attrs = {"layout_free_placeholders": [Filter]}
    return convolve(Input, Filter, stride, padding, dilation, 1, "NHWC", "HWIO", out_dtype, attrs)


def group_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution in groups of data NCHW with a filter (out, in // groups, height, width)."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCHW", "OIHW", out_dtype)


def group_conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution in groups of data NHWC with a filter (height, width, in // groups, out)."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NHWC", "HWIO", out_dtype)
