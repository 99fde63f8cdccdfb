"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .... import op
from ....expr import Expr, const
from ..dtypes import is_float
from ..importer import Importer, as_shape
from ..registry import NotDecomposable, converter
from .convolution import batched, per_axis

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool(
    g: Importer, rank: int, x: Expr, function: Callable[..., Expr], kernel: Any, stride: Any, **options: Any
) -> Expr:
    """A pooling over `rank` dimensions, of a batch or a single image."""
    x, single = batched(g, x, rank)
    size = per_axis(kernel, rank)
    strides = size if stride is None or stride in ([], ()) else per_axis(stride, rank)
    out = g.emit(function(x, pool_size=size, strides=strides, layout=_LAYOUT[rank], **options))
    return g.emit(op.squeeze(out, [0])) if single else out


def _windows(extent: int, size: int, stride: int, before: int, reach: int) -> tuple[int, int]:
    """How many windows ceil_mode makes of a dimension, and what they need after it.

    A window that starts behind the dimension is left out. `reach` is the extent of a window.
    """
    count = -(-(extent + 2 * before - reach) // stride) + 1
    if (count - 1) * stride >= extent + before:
        count -= 1
    return count, max((count - 1) * stride + reach - extent - before, 0)


def _left_out(extents: list[Any], strides: list[int], around: list[int], reaches: list[int]) -> bool:
    """Whether ceil_mode would make a window that starts behind the image, which PyTorch leaves out."""
    return any(
        isinstance(e, int) and -(-(e + 2 * p - r) // s) * s >= e + p
        for e, s, p, r in zip(extents, strides, around, reaches, strict=True)
    )


def _adaptive_windows(g: Importer, x: Expr, axis: int, count: int) -> np.ndarray[Any, Any]:
    """The elements of each window of adaptive pooling; shorter windows name their last element again."""
    extent = g.static(g.shape(x)[axis], "the extent of an image")
    starts = [i * extent // count for i in range(count)]
    ends = [-(-(i + 1) * extent // count) for i in range(count)]
    longest = max(b - a for a, b in zip(starts, ends, strict=True))
    return np.array([[min(a + j, b - 1) for j in range(longest)] for a, b in zip(starts, ends, strict=True)])


def _register(rank: int) -> None:
    max_pool = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}[rank]
    avg_pool = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}[rank]
    adaptive = {1: op.nn.adaptive_avg_pool1d, 2: op.nn.adaptive_avg_pool2d, 3: op.nn.adaptive_avg_pool3d}[rank]

    def largest(
        g: Importer,
        x: Expr,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Expr:
        if return_indices:
            return _with_indices(g, rank, x, kernel_size, stride, padding, dilation, ceil_mode)
        around, dilations, size = per_axis(padding, rank), per_axis(dilation, rank), per_axis(kernel_size, rank)
        if ceil_mode:
            strides = size if stride is None or stride in ([], ()) else per_axis(stride, rank)
            reaches = [d * (k - 1) + 1 for d, k in zip(dilations, size, strict=True)]
            extents = g.shape(x)[-rank:]
            if _left_out(extents, strides, around, reaches):
                each = zip(extents, size, strides, around, reaches, strict=True)
                known = [_windows(g.static(e, "the extent of an image"), *rest) for e, *rest in each]
                around, ceil_mode = [*around, *(after for _, after in known)], False
        return _pool(g, rank, x, max_pool, kernel_size, stride, padding=around, dilation=dilations, ceil_mode=ceil_mode)

    def average(
        g: Importer,
        x: Expr,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Expr:
        if not is_float(g.dtype(x)):
            raise NotDecomposable("means of integers; convert them to floats before")
        around = per_axis(padding, rank)
        # Without padding both ways of counting are the same; the published importer counts it but for images.
        counted = divisor_override is not None or (count_include_pad and (rank != 2 or any(around)))
        size = per_axis(kernel_size, rank)
        strides = size if stride is None or stride in ([], ()) else per_axis(stride, rank)
        extents = g.shape(x)[-rank:]
        if ceil_mode and (divisor_override is not None or _left_out(extents, strides, around, size)):
            sizes = [g.static(e, "the extent of an image") for e in extents]
            return _uneven_average(
                g, rank, x, avg_pool, sizes, size, strides, around, count_include_pad, divisor_override
            )
        if ceil_mode:
            # Of a window that is larger than the padded image, nothing outside of that counts.
            stride = strides
            size = [
                min(s, e + 2 * p) if isinstance(e, int) else s for s, e, p in zip(size, extents, around, strict=True)
            ]
        out = _pool(g, rank, x, avg_pool, size, stride, padding=around, ceil_mode=ceil_mode, count_include_pad=counted)
        if divisor_override is None:
            return out
        return g.emit(op.multiply(out, const(math.prod(size) / divisor_override, g.dtype(out))))

    def adaptive_average(g: Importer, x: Expr, output_size: Any) -> Expr:
        x, single = batched(g, x, rank)
        given = per_axis(output_size, rank)
        size = [extent if s is None else s for s, extent in zip(given, g.shape(x)[2:], strict=True)]
        out = g.emit(adaptive(x, size, layout=_LAYOUT[rank]))
        return g.emit(op.squeeze(out, [0])) if single else out

    def adaptive_largest(g: Importer, x: Expr, output_size: Any, return_indices: bool = False) -> Any:
        extents = [g.static(e, "the extent of an image") for e in g.shape(x)[-rank:]]
        sizes = [e if s is None else s for s, e in zip(per_axis(output_size, rank), extents, strict=True)]
        if return_indices:
            tables = [_adaptive_windows(g, x, g.ndim(x) - rank + i, count) for i, count in enumerate(sizes)]
            return _largest_of_windows(g, rank, x, tables)
        if all(e % s == 0 for e, s in zip(extents, sizes, strict=True)):
            return largest(g, x, [e // s for e, s in zip(extents, sizes, strict=True)])
        for i, count in enumerate(sizes):
            axis = g.ndim(x) - rank + i
            table = _adaptive_windows(g, x, axis, count)
            pieces = op.take(x, const(table, "int64"), axis)
            x = g.emit(op.max(pieces, axis + 1))
        return x

    converter(f"max_pool{rank}d", f"_max_pool{rank}d")(largest)
    converter(f"max_pool{rank}d_with_indices")(partial(largest, return_indices=True))
    converter(f"avg_pool{rank}d")(average)
    converter(f"adaptive_avg_pool{rank}d", f"_adaptive_avg_pool{rank}d")(adaptive_average)
    # ATen's operator always gives the indices as well.
    converter(f"adaptive_max_pool{rank}d.default")(partial(adaptive_largest, return_indices=True))
    converter(f"adaptive_max_pool{rank}d")(adaptive_largest)
    converter(f"adaptive_max_pool{rank}d_with_indices")(partial(adaptive_largest, return_indices=True))

    def powers(
        g: Importer, x: Expr, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Expr:
        count, dtype = math.prod(per_axis(kernel_size, rank)), g.dtype(x)
        means = average(g, g.emit(op.power(x, const(norm_type, dtype))), kernel_size, stride, 0, ceil_mode)
        total = op.multiply(op.multiply(op.sign(means), op.nn.relu(op.abs(means))), const(count, dtype))
        return g.emit(op.power(total, const(1 / norm_type, dtype)))

    converter(f"lp_pool{rank}d")(powers)


for _rank in (1, 2, 3):
    _register(_rank)


def _uneven_average(
    g: Importer,
    rank: int,
    x: Expr,
    avg_pool: Callable[..., Expr],
    extents: list[int],
    size: list[int],
    strides: list[int],
    around: list[int],
    count_include_pad: bool,
    divisor: int | None,
) -> Expr:
    """Sums of the windows of ceil_mode, each divided by its own number of elements, or by the divisor."""
    each = list(zip(extents, size, strides, around, strict=True))
    known = [_windows(e, k, s, p, k) for e, k, s, p in each]
    factors: np.ndarray[Any, Any] = np.ones([], "float64")
    for (extent, reach, step, before), (count, _) in zip(each, known, strict=True):
        start = np.arange(count) * step - before
        end = np.minimum(start + reach, extent + before)
        counted = end - start if count_include_pad else np.minimum(end, extent) - np.maximum(start, 0)
        factors = np.multiply.outer(factors, reach / counted if divisor is None else np.full(count, float(reach)))
    if divisor is not None:
        factors = factors / divisor
    padding = [*around, *(after for _, after in known)]
    means = _pool(g, rank, x, avg_pool, size, strides, padding=padding, ceil_mode=False, count_include_pad=True)
    return g.emit(op.multiply(means, const(factors, g.dtype(means))))


def _with_indices(
    g: Importer, rank: int, x: Expr, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    """The largest elements of windows, and where they are in the flat image."""
    sizes = per_axis(kernel, rank)
    strides = sizes if stride is None or stride in ([], ()) else per_axis(stride, rank)
    tables: list[np.ndarray[Any, Any]] = []
    options = zip(g.shape(x)[-rank:], sizes, strides, per_axis(padding, rank), per_axis(dilation, rank), strict=True)
    for extent, size, step, before, apart in options:
        extent = g.static(extent, "the extent of an image, for the indices of max_pool,")
        reach = apart * (size - 1) + 1
        count = (extent + 2 * before - reach) // step + 1
        if ceil_mode:
            count, _ = _windows(extent, size, step, before, reach)
        places = (np.arange(count) * step - before)[:, None] + (np.arange(size) * apart)[None, :]
        # Padding never is the largest element: an element of the window stands in its place.
        inside = (places >= 0) & (places < extent)
        first = places[np.arange(count), inside.argmax(1)][:, None]
        tables.append(np.where(inside, places, first))
    return _largest_of_windows(g, rank, x, tables)


def _largest_of_windows(g: Importer, rank: int, x: Expr, tables: list[np.ndarray[Any, Any]]) -> Any:
    """The largest elements of windows, which are given for each dimension by their places, and their flat places."""
    lead, extents = g.ndim(x) - rank, [g.static(e, "the extent of an image") for e in g.shape(x)[-rank:]]
    places: np.ndarray[Any, Any] = np.zeros([], "int64")
    for table, extent in zip(tables, extents, strict=True):
        places = np.add.outer(places * extent, table)
    outer = [2 * i for i in range(rank)]
    inner = [2 * i + 1 for i in range(rank)]
    counts = [len(table) for table in tables]
    places = places.transpose([*outer, *inner]).reshape([*counts, -1])
    shape = g.shape(x)[:lead]
    image = g.emit(op.reshape(x, as_shape([*shape, math.prod(extents)])))
    windows = g.emit(op.take(image, const(places, "int64"), lead))
    values = g.emit(op.max(windows, -1))
    which = g.emit(op.argmax(windows, -1, True))
    repeated = g.emit(op.broadcast_to(const(places, "int64"), as_shape(g.shape(windows))))
    found = op.squeeze(op.gather_elements(repeated, which, axis=g.ndim(windows) - 1), [-1])
    return values, g.emit(found)
