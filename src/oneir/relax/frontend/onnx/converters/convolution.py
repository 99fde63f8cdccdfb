"""Convolutions: plain, transposed, deformable, and of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr
from .....runtime.error import UnsupportedError
from .....tir import op as tir_op
from .... import op
from ....expr import Expr, const
from ...convolution import convolve, convolve_transposed, with_bias
from ...window import Window
from ..context import Context
from ..registry import converter
from .window import share_padding, window_of


@converter("Conv")
def conv(
    g: Context,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    """A convolution over one to three dimensions."""
    window = window_of(g, g.shape(x)[2:], g.shape(weight)[2:], strides, dilations, pads, auto_pad)
    return convolve(g, x, weight, bias, window, group)


@converter("ConvInteger")
def conv_integer(
    g: Context, x: Expr, weight: Expr, x_zero: Expr | None = None, w_zero: Expr | None = None, **attributes: Any
) -> Expr:
    """A convolution of integers, from which their zero points are taken before."""
    return conv(g, shifted(g, x, x_zero, None), shifted(g, weight, w_zero, 0), **attributes)


def shifted(g: Context, x: Expr, zero: Expr | None, axis: int | None) -> Expr:
    """Short integers minus their zero point, one or one for each element along an axis, as int32."""
    wide = g.cast(x, "int32")
    if zero is None:
        return wide
    point = g.cast(zero, "int32")
    single = math.prod(g.static_shape(zero, "the shape of a zero point")) == 1
    if single:
        point = g.reshaped(point, [])
    elif axis is not None and g.ndim(zero) == 1:
        point = g.along(point, axis, g.ndim(x))
    return g.emit(op.subtract(wide, point))


@converter("ConvTranspose")
def conv_transpose(
    g: Context,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    """The transpose of a convolution."""
    kernel = g.static_shape(weight, "the shape of a kernel")[2:]
    extents = g.shape(x)[2:]
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    window = window_of(g, extents, kernel, strides, dilations, pads, "NOTSET" if same else auto_pad)
    rank = len(kernel)
    spare = list(output_padding or [0] * rank)
    if output_shape is not None or same:
        totals = []
        for i, extent in enumerate(extents):
            size = g.static(extent, "the extent of an image whose transposed convolution has a given shape")
            wanted = size * window.strides[i] if output_shape is None else output_shape[-rank:][i]
            totals.append(window.strides[i] * (size - 1) + spare[i] + window.extent(i) - wanted)
        share_padding(window, totals, auto_pad)
    odd = any(p < 0 or p >= window.extent(i % rank) for i, p in enumerate(window.padding))
    by_operator = not odd and max(window.dilations) == 1
    return convolve_transposed(g, x, weight, bias, window, spare, group, by_operator=by_operator)


@converter("DeformConv", since=19)
def deform_conv(
    g: Context,
    x: Expr,
    weight: Expr,
    offset: Expr,
    bias: Expr | None = None,
    mask: Expr | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    """A deformable convolution: elements are sampled at offsets by linear interpolation, and may be weighted."""
    kernel = g.static_shape(weight, "the shape of a kernel")[2:]
    if len(kernel) != 2:
        raise UnsupportedError(f"displaced convolutions over {len(kernel)} dimensions; those over two are computed")
    window = window_of(g, g.shape(x)[2:], kernel, strides, dilations, pads, "NOTSET")
    n, channels = g.shape(x)[:2]
    height, width = g.shape(offset)[2:]
    each = channels // offset_group

    def sampled(data: te.Tensor, offsets: te.Tensor, *weights: te.Tensor) -> te.Tensor:
        def pixel(b: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
            inside = ops.logical_and(
                ops.logical_and(y >= 0, y < data.shape[2]), ops.logical_and(x >= 0, x < data.shape[3])
            )
            return tir_op.if_then_else(inside, data(b, c, y, x), ops.cast(data.dtype, 0))

        def element(b: PrimExpr, c: PrimExpr, k: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            part = ops.floordiv(c, each) * (kernel[0] * kernel[1]) + k
            row = i * window.strides[0] - window.before[0] + ops.floordiv(k, kernel[1]) * window.dilations[0]
            column = j * window.strides[1] - window.before[1] + ops.floormod(k, kernel[1]) * window.dilations[1]
            y = ops.cast(data.dtype, row) + offsets(b, part * 2, i, j)
            x = ops.cast(data.dtype, column) + offsets(b, part * 2 + 1, i, j)
            low, left = tir_op.floor(y), tir_op.floor(x)
            dy, dx = y - low, x - left
            y0, x0 = ops.cast("int64", low), ops.cast("int64", left)
            upper = pixel(b, c, y0, x0) * (1 - dx) + pixel(b, c, y0, x0 + 1) * dx
            lower = pixel(b, c, y0 + 1, x0) * (1 - dx) + pixel(b, c, y0 + 1, x0 + 1) * dx
            value = upper * (1 - dy) + lower * dy
            return value * weights[0](b, part, i, j) if weights else value

        return te.compute((n, channels, kernel[0] * kernel[1], height, width), element, name="deformed")

    columns = g.te(sampled, x, offset, *([] if mask is None else [mask]), name="deformed")
    outputs, inner = g.static_shape(weight, "the shape of a kernel")[:2]
    rows = g.reshaped(columns, [n, group, inner * math.prod(kernel), height * width])
    matrix = g.reshaped(weight, [1, group, outputs // group, inner * math.prod(kernel)])
    out = g.reshaped(g.emit(op.matmul(matrix, rows)), [n, outputs, height, width])
    return with_bias(g, out, bias)


@converter("Col2Im", since=18)
def col2im(
    g: Context,
    x: Expr,
    image_shape: Expr,
    block_shape: Expr,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    """Images whose pixels are the sums of what blocks, laid over each other, have there."""
    image = g.constant_ints(image_shape, "the shape of the image of Col2Im")
    block = g.constant_ints(block_shape, "the shape of blocks of Col2Im")
    rank = len(image)
    window = Window(block, list(strides or [1] * rank), list(dilations or [1] * rank), [0] * rank, [0] * rank)
    if pads is not None:
        window.before, window.after = list(pads[:rank]), list(pads[rank:])
    counts = [window.positions(i, e) for i, e in enumerate(image)]
    n, rows, _ = g.shape(x)
    channels = rows // math.prod(block)
    # The pixel of the padded image that each element of a block belongs to.
    whole_shape = [e + b + a for e, b, a in zip(image, window.before, window.after, strict=True)]
    lines = [
        np.arange(k)[:, None] * d + np.arange(c) * s
        for k, d, c, s in zip(block, window.dilations, counts, window.strides, strict=True)
    ]
    places = np.zeros([1] * (2 * rank), dtype=np.int64)
    for i, line in enumerate(lines):
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = line.shape
        places = places * whole_shape[i] + line.reshape(shape)
    count = math.prod(block) * math.prod(counts)
    index = g.broadcast(g.constant(places.reshape(1, 1, count)), [n, channels, count])
    zeros = g.broadcast(const(0, g.dtype(x)), [n, channels, math.prod(whole_shape)])
    summed = g.emit(op.scatter_elements(zeros, index, g.reshaped(x, [n, channels, count]), 2, "add"))
    whole = g.reshaped(summed, [n, channels, *whole_shape])
    ends = [b + e for b, e in zip(window.before, image, strict=True)]
    return g.emit(op.strided_slice(whole, list(range(2, 2 + rank)), window.before, ends))
