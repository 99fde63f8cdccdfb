"""Morphological dilation: the largest sum of an element of a window and of the filter."""

from __future__ import annotations

from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ..index import Padding, Sizes, is_equal, require_ndim, shape_text
from ..nn.pad import pad


def _pair(value: Any, function: str, what: str) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value, value]
    if len(values) != 2:
        raise InvalidValue(f"topi.image.{function}: expected one {what} or two, found {len(values)}")
    return values


def _padding(padding: Padding, window: list[Any], function: str) -> tuple[list[Any], list[Any]]:
    """What is added before and after: one number, two (height, width), four (top, left, bottom, right) or by name."""
    if padding == "VALID":
        return [0, 0], [0, 0]
    if padding == "SAME":
        return [ops.floordiv(w, 2) for w in window], [ops.floordiv(w - 1, 2) for w in window]
    if isinstance(padding, (list, tuple)) and len(padding) == 4:
        return list(padding[:2]), list(padding[2:])
    if isinstance(padding, str):
        raise InvalidValue(f'topi.image.{function}: expected the padding "VALID" or "SAME", found {padding!r}')
    both = _pair(padding, function, "padding")
    return both, both


def _dilation(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    dilations: Sizes,
    out_dtype: str | None,
    channels_last: bool,
) -> Tensor:
    function = "dilation2d_nhwc" if channels_last else "dilation2d_nchw"
    require_ndim(data, 4, f"image.{function}", "images")
    require_ndim(kernel, 3, f"image.{function}", "a filter")
    first = 1 if channels_last else 2
    channels, filters = (data.shape[3], kernel.shape[2]) if channels_last else (data.shape[1], kernel.shape[0])
    if None not in (as_int(channels), as_int(filters)) and not is_equal(channels, filters):
        raise ShapeMismatch(
            f"topi.image.{function}: the images {shape_text(data.shape)} and the filter {shape_text(kernel.shape)} "
            f"have {channels} and {filters} channels"
        )
    strides, steps = _pair(stride, function, "stride"), _pair(dilations, function, "dilation")
    extents, sizes = data.shape[first : first + 2], kernel.shape[first - 1 : first + 1]
    window = [(k - 1) * d + 1 for k, d in zip(sizes, steps, strict=True)]
    before, after = _padding(padding, window, function)
    analyzer = Analyzer()
    target = [
        analyzer.simplify(ops.floordiv(e - w + b + a, s) + 1)
        for e, w, b, a, s in zip(extents, window, before, after, strides, strict=True)
    ]
    if any(known is not None and known < 1 for known in map(as_int, target)):
        raise ShapeMismatch(
            f"topi.image.{function}: the filter {shape_text(kernel.shape)} does not fit into {shape_text(data.shape)}"
        )
    front, back = ([0], [0]) if channels_last else ([0, 0], [])
    name = "padded_input" if channels_last else "pad_temp"
    padded = pad(data, [*front, *before, *back], [*front, *after, *back], name=name)
    dtype = out_dtype or data.dtype
    ry, rx = te.reduce_axis((0, sizes[0]), "ry"), te.reduce_axis((0, sizes[1]), "rx")

    def largest(n: PrimExpr, f: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        row, column = y * strides[0] + ry.var * steps[0], x * strides[1] + rx.var * steps[1]
        if channels_last:
            value, weight = padded(n, row, column, f), kernel(ry.var, rx.var, f)
        else:
            value, weight = padded(n, f, row, column), kernel(f, ry.var, rx.var)
        return te.max(ops.cast(dtype, value) + ops.cast(dtype, weight), axis=[ry, rx])

    if channels_last:
        shape = (data.shape[0], *target, channels)
        return te.compute(shape, lambda nn, yy, xx, ff: largest(nn, ff, yy, xx), tag=function)
    shape = (*data.shape[:2], *target)
    return te.compute(shape, lambda nn, ff, yy, xx: largest(nn, ff, yy, xx), tag=function)


def dilation2d_nchw(
    input: Tensor, filter: Tensor, stride: Sizes, padding: Padding, dilations: Sizes, out_dtype: str | None = None
) -> Tensor:
    """The dilation of images (batch, channel, height, width) by a filter (channel, height, width), padded with zeros.

    `padding` is one number, two (height, width), four (top, left, bottom, right), "VALID" or "SAME".
    """
    return _dilation(input, filter, stride, padding, dilations, out_dtype, channels_last=False)


def dilation2d_nhwc(
    input: Tensor, filter: Tensor, stride: Sizes, padding: Padding, dilations: Sizes, out_dtype: str | None = None
) -> Tensor:
    """The dilation of images (batch, height, width, channel) by a filter (height, width, channel), padded with zeros.

    `padding` is one number, two (height, width), four (top, left, bottom, right), "VALID" or "SAME".
    """
    return _dilation(input, filter, stride, padding, dilations, out_dtype, channels_last=True)
