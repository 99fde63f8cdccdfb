"""Convolutions: plain, transposed, deformable, and of integers."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr
from .....ir.expr import const as const_number
from .....runtime.error import UnsupportedError
from .....tir import op as tir_op
from .....topi.index import ravel
from .... import op
from ....expr import Expr
from ...convolution import convolve, convolve_transposed, with_bias
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
    image = g.extents(image_shape, "the shape of the image of Col2Im")
    block = g.extents(block_shape, "the shape of blocks of Col2Im")
    rank = len(image)
    steps, apart, borders = strides or [1] * rank, dilations or [1] * rank, pads or [0] * (2 * rank)
    counts = [
        (e + borders[i] + borders[rank + i] - apart[i] * (k - 1) - 1) // steps[i] + 1
        for i, (e, k) in enumerate(zip(image, block, strict=True))
    ]

    def summed(blocks: te.Tensor, image: Sequence[Any], block: Sequence[Any], counts: Sequence[Any]) -> te.Tensor:
        axes = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(block)]
        size = math.prod(block)

        def pixel(n: PrimExpr, channel: PrimExpr, *at: PrimExpr) -> Any:
            # Where the block begins that has this pixel at the place k.
            begins = [p + borders[i] - axes[i].var * apart[i] for i, p in enumerate(at)]
            inside = [
                ops.logical_and(ops.equal(ops.floormod(b, s), 0), ops.logical_and(b >= 0, ops.floordiv(b, s) < c))
                for b, s, c in zip(begins, steps, counts, strict=True)
            ]
            row = channel * size + ravel([axis.var for axis in axes], block)
            column = ravel([ops.floordiv(b, s) for b, s in zip(begins, steps, strict=True)], counts)
            value = blocks(n, row, column)
            held = tir_op.if_then_else(functools.reduce(ops.logical_and, inside), value, const_number(0, blocks.dtype))
            return te.sum(held, axis=axes)

        channels = ops.floordiv(blocks.shape[1], size)
        return te.compute([blocks.shape[0], channels, *image], pixel, name="col2im")

    return g.te(summed, x, image, block, counts, name="col2im")
