"""Poolings."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr, Select
from .....runtime.error import UnsupportedError
from .....tir import op as tir_op
from .... import op
from ....expr import Expr, const
from ...pooling import AVG_POOL, MAX_POOL, max_with_indices, pool_options, window_indices
from ...window import Window, zero_padded
from ..context import Context
from ..registry import converter
from .window import window_of


def _fit_ceil_mode(g: Context, x: Expr, window: Window, ceil_mode: int) -> None:
    """Adds the padding after each dimension that the windows of ceil_mode need."""
    if ceil_mode:
        what = "the extent of an image that is pooled with ceil_mode"
        window.after = window.ceil_padding([g.static(e, what) for e in g.shape(x)[2:]])


@converter("MaxPool")
def max_pool(
    g: Context,
    x: Expr,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Any:
    """The largest element of each window, and where it is."""
    window = window_of(g, g.shape(x)[2:], kernel_shape, strides, dilations, pads, auto_pad)
    if g.num_outputs > 1:
        return _max_with_indices(g, x, window, bool(ceil_mode), bool(storage_order))
    _fit_ceil_mode(g, x, window, ceil_mode)
    return g.emit(MAX_POOL[window.rank](x, **pool_options(window)))


def _max_with_indices(g: Context, x: Expr, window: Window, ceil_mode: bool, column_major: bool) -> tuple[Expr, Expr]:
    """The largest elements, and their indices in the flat tensor."""
    n, channels, *extents = g.static_shape(x, "the shape of a tensor whose largest elements are located")
    indices = [window_indices(window, i, e, ceil_mode) for i, e in enumerate(extents)]
    values, found = max_with_indices(g, x, indices, column_major)
    starts = np.arange(n * channels).reshape(n, channels, *[1] * len(extents)) * math.prod(extents)
    return values, g.emit(op.add(found, const(starts, "int64")))


@converter("AveragePool")
def average_pool(
    g: Context,
    x: Expr,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    """The mean of each window; padding counts only if it is said to, and what ceil_mode adds never."""
    window = window_of(g, g.shape(x)[2:], kernel_shape, strides, dilations, pads, auto_pad)
    included, own_after = bool(count_include_pad), window.after
    _fit_ceil_mode(g, x, window, ceil_mode)
    if included and window.after != own_after:
        # What ceil_mode adds does not count as padding, so the image is padded before.
        x = zero_padded(g, x, window.before, own_after)
        added = [a - b for a, b in zip(window.after, own_after, strict=True)]
        zeros = [0] * window.rank
        x = zero_padded(g, x, zeros, [min(a, 0) for a in added])
        window.before, window.after, included = zeros, [max(a, 0) for a in added], False
    return g.emit(AVG_POOL[window.rank](x, **pool_options(window), count_include_pad=included))


@converter("LpPool")
def lp_pool(
    g: Context,
    x: Expr,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    """The p-norm of each window."""
    window = window_of(g, g.shape(x)[2:], kernel_shape, strides, dilations, pads, auto_pad)
    powers = g.emit(op.power(op.abs(x), g.like(p, x)))
    _fit_ceil_mode(g, x, window, ceil_mode)
    means = AVG_POOL[window.rank](powers, **pool_options(window), count_include_pad=True)
    return g.emit(op.power(op.multiply(means, g.like(window.count, x)), g.like(1 / p, x)))


def _spatial(g: Context, x: Expr) -> list[int]:
    return list(range(2, g.ndim(x)))


@converter("GlobalAveragePool")
def global_average_pool(g: Context, x: Expr) -> Expr:
    """The mean of each channel."""
    return g.emit(op.mean(x, _spatial(g, x), True))


@converter("GlobalMaxPool")
def global_max_pool(g: Context, x: Expr) -> Expr:
    """The largest element of each channel."""
    return g.emit(op.max(x, _spatial(g, x), True))


@converter("GlobalLpPool")
def global_lp_pool(g: Context, x: Expr, *, p: int = 2) -> Expr:
    """The p-norm of each channel."""
    total = op.sum(op.power(op.abs(x), g.like(p, x)), _spatial(g, x), True)
    return g.emit(op.power(total, g.like(1 / p, x)))


@converter("MaxUnpool")
def max_unpool(
    g: Context,
    x: Expr,
    places: Expr,
    output_shape: Expr | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    """Elements put back to where MaxPool found them, zeros elsewhere."""
    n, channels, *extents = g.static_shape(x, "the shape of what is unpooled")
    window = window_of(g, extents, kernel_shape, strides, None, pads, "NOTSET")
    own = [
        (e - 1) * s + k - b - a
        for e, s, k, b, a in zip(extents, window.strides, window.kernel, window.before, window.after, strict=True)
    ]
    whole = [n, channels, *own]
    if output_shape is not None:
        whole = g.extents(output_shape, "the shape that MaxUnpool gives")
    count = math.prod(extents) * n * channels
    index = g.reshaped(places, [count])
    if output_shape is not None and whole[2:] != own:
        # Places are counted in the image that was pooled.
        index = _moved(g, index, [n, channels, *own], whole)
    zeros = g.broadcast(g.like(0, x), [reduce(operator.mul, whole)])
    return g.reshaped(g.emit(op.scatter_elements(zeros, index, g.reshaped(x, [count]), 0)), whole)


def _moved(g: Context, index: Expr, old: list[int], new: list[Any]) -> Expr:
    """Indices in a flat tensor as indices in a larger one that begins with it in each dimension."""
    result: Expr = const(0, "int64")
    step = math.prod(old)
    for before, after in zip(old, new, strict=True):
        step //= before
        part = op.floor_mod(op.floor_divide(index, const(step, "int64")), const(before, "int64"))
        result = op.add(op.multiply(result, g.of_elements(after, "int64")), part)
    return g.emit(result)


@converter("RoiAlign", since=10)
def roi_align(
    g: Context,
    x: Expr,
    rois: Expr,
    batch: Expr,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    """Parts of images in one size: the mean, or the largest, of samples in each cell."""
    if coordinate_transformation_mode is None:
        coordinate_transformation_mode = "half_pixel" if g.opset >= 16 else "output_half_pixel"
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    limit = max(g.static_shape(x, "the shape of images that are sampled")[2:])
    ratio = sampling_ratio or 0

    def aligned(data: te.Tensor, boxes: te.Tensor, image: te.Tensor) -> te.Tensor:
        dtype, height, width = data.dtype, data.shape[2], data.shape[3]

        def line(box: PrimExpr, first: int, cells: int) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
            begin = boxes(box, first) * spatial_scale - half
            length = boxes(box, first + 2) * spatial_scale - half - begin
            if not half:
                length = ops.maximum(length, ops.cast(dtype, 1))
            cell = length / cells
            samples = ops.cast("int64", tir_op.ceil(cell)) if not ratio else ops.cast("int64", ratio)
            return begin, cell, ops.maximum(samples, ops.cast("int64", 1))

        sy, sx = (te.reduce_axis((0, ratio or limit), name) for name in ("sy", "sx"))

        def sample(box: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
            top, cell_y, rows = line(box, 1, output_height)
            left, cell_x, columns = line(box, 0, output_width)

            def place(start: PrimExpr, cell: PrimExpr, at: PrimExpr, step: PrimExpr, count: PrimExpr) -> PrimExpr:
                part = (ops.cast(dtype, step) + 0.5) / ops.cast(dtype, count)
                return start + (ops.cast(dtype, at) + part) * cell

            y, x = place(top, cell_y, i, sy.var, rows), place(left, cell_x, j, sx.var, columns)
            inside = ops.logical_and(
                ops.logical_and(y >= -1.0, y <= ops.cast(dtype, height)),
                ops.logical_and(x >= -1.0, x <= ops.cast(dtype, width)),
            )
            y, x = ops.maximum(y, ops.cast(dtype, 0)), ops.maximum(x, ops.cast(dtype, 0))
            y0 = ops.minimum(ops.cast("int64", y), height - 1)
            x0 = ops.minimum(ops.cast("int64", x), width - 1)
            y1, x1 = ops.minimum(y0 + 1, height - 1), ops.minimum(x0 + 1, width - 1)
            dy = Select(y0 >= height - 1, ops.cast(dtype, 0), y - ops.cast(dtype, y0))
            dx = Select(x0 >= width - 1, ops.cast(dtype, 0), x - ops.cast(dtype, x0))
            n = ops.cast("int64", image(box))
            parts = [
                data(n, c, y0, x0) * (1 - dy) * (1 - dx),
                data(n, c, y0, x1) * (1 - dy) * dx,
                data(n, c, y1, x0) * dy * (1 - dx),
                data(n, c, y1, x1) * dy * dx,
            ]
            value = (
                parts[0] + parts[1] + parts[2] + parts[3]
                if mode == "avg"
                else ops.maximum(ops.maximum(parts[0], parts[1]), ops.maximum(parts[2], parts[3]))
            )
            used = ops.logical_and(ops.cast("int64", sy.var) < rows, ops.cast("int64", sx.var) < columns)
            return tir_op.if_then_else(inside, value, ops.cast(dtype, 0)), used, ops.cast(dtype, rows * columns)

        def element(box: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            value, used, count = sample(box, c, i, j)
            if mode == "avg":
                return te.sum(tir_op.if_then_else(used, value / count, ops.cast(dtype, 0)), axis=[sy, sx])
            return te.max(tir_op.if_then_else(used, value, tir_op.min_value(dtype)), axis=[sy, sx])

        shape = (boxes.shape[0], data.shape[1], output_height, output_width)
        return te.compute(shape, element, name="roi_align")

    if mode not in ("avg", "max"):
        raise UnsupportedError(f"expected the mode avg or max, found {mode!r}")
    return g.te(aligned, x, rois, batch, name="roi_align")
