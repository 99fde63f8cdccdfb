"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .... import op
from ....expr import Expr, const
from ...pooling import AVG_POOL, MAX_POOL, max_with_indices, pool_options, window_indices
from ...window import DATA_LAYOUT, Window
from ..dtypes import is_float
from ..importer import Importer
from ..registry import converter
from .convolution import batched, per_axis, window_of


def _window(rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> Window:
    """The window of a pooling, whose stride is the kernel unless it is given."""
    return window_of(rank, kernel, kernel if stride is None or stride in ([], ()) else stride, padding, dilation)


def _pool(g: Importer, x: Expr, function: Callable[..., Expr], window: Window, **options: Any) -> Expr:
    """A pooling of a batch or a single image."""
    x, single = batched(g, x, window.rank)
    out = g.emit(function(x, **pool_options(window), **options))
    return g.emit(op.squeeze(out, [0])) if single else out


def _sizes(g: Importer, x: Expr, rank: int) -> list[int]:
    """The spatial extents of an image, which must be known."""
    return [g.static(e, "the extent of an image") for e in g.shape(x)[-rank:]]


def _ends_outside(window: Window, extents: list[Any]) -> bool:
    """Whether ceil_mode would make a window that starts behind the image, which PyTorch leaves out."""
    for i, extent in enumerate(extents):
        if isinstance(extent, int):
            space = extent + window.before[i] + window.after[i] - window.extent(i)
            if window.starts_outside(i, extent, -(-space // window.strides[i])):
                return True
    return False


def _adaptive_windows(g: Importer, x: Expr, axis: int, count: int) -> np.ndarray:
    """The elements of each window of adaptive pooling; shorter windows name their last element again."""
    extent = g.static(g.shape(x)[axis], "the extent of an image")
    starts = [i * extent // count for i in range(count)]
    ends = [-(-(i + 1) * extent // count) for i in range(count)]
    longest = max(b - a for a, b in zip(starts, ends, strict=True))
    return np.array([[min(a + j, b - 1) for j in range(longest)] for a, b in zip(starts, ends, strict=True)])


def _register(rank: int) -> None:
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
        window = _window(rank, kernel_size, stride, padding, dilation)
        if return_indices:
            return _with_indices(g, x, window, ceil_mode)
        if ceil_mode and _ends_outside(window, g.shape(x)[-rank:]):
            window.after, ceil_mode = window.ceil_padding(_sizes(g, x, rank)), False
        return _pool(g, x, MAX_POOL[rank], window, ceil_mode=ceil_mode)

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
            # Sums below 2 ** 53 are exact, and so are their quotients where these are whole.
            wide = g.cast(x, "float64")
            whole = None if divisor_override is None else 1
            mean = average(g, wide, kernel_size, stride, padding, ceil_mode, count_include_pad, whole)
            if divisor_override is not None:
                mean = op.divide(op.round(mean), const(divisor_override, "float64"))
            return g.emit(op.astype(op.trunc(mean), g.dtype(x)))
        window = _window(rank, kernel_size, stride, padding)
        # Without padding both ways of counting are the same; the published importer counts it but for images.
        counted = divisor_override is not None or (count_include_pad and (rank != 2 or any(window.before)))
        extents = g.shape(x)[-rank:]
        if ceil_mode and (divisor_override is not None or _ends_outside(window, extents)):
            return _uneven_average(g, x, window, _sizes(g, x, rank), count_include_pad, divisor_override)
        if ceil_mode:
            # Of a window that is larger than the padded image, nothing outside of that counts.
            each = zip(window.kernel, extents, window.before, strict=True)
            window.kernel = [min(k, e + 2 * p) if isinstance(e, int) else k for k, e, p in each]
        out = _pool(g, x, AVG_POOL[rank], window, ceil_mode=ceil_mode, count_include_pad=counted)
        if divisor_override is None:
            return out
        return g.emit(op.multiply(out, const(window.count / divisor_override, g.dtype(out))))

    def adaptive_average(g: Importer, x: Expr, output_size: Any) -> Expr:
        x, single = batched(g, x, rank)
        given = per_axis(output_size, rank)
        size = [extent if s is None else s for s, extent in zip(given, g.shape(x)[2:], strict=True)]
        out = g.emit(adaptive(x, size, layout=DATA_LAYOUT[rank]))
        return g.emit(op.squeeze(out, [0])) if single else out

    def adaptive_largest(g: Importer, x: Expr, output_size: Any, return_indices: bool = False) -> Any:
        extents = _sizes(g, x, rank)
        sizes = [e if s is None else s for s, e in zip(per_axis(output_size, rank), extents, strict=True)]
        if return_indices:
            tables = [_adaptive_windows(g, x, g.ndim(x) - rank + i, count) for i, count in enumerate(sizes)]
            return max_with_indices(g, x, tables)
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
    g: Importer, x: Expr, window: Window, extents: list[int], count_include_pad: bool, divisor: int | None
) -> Expr:
    """Sums of the windows of ceil_mode, each divided by its own number of elements, or by the divisor."""
    factors: np.ndarray = np.ones([], "float64")
    for i, (extent, size, before) in enumerate(zip(extents, window.kernel, window.before, strict=True)):
        start = np.arange(window.positions(i, extent, True)) * window.strides[i] - before
        end = np.minimum(start + size, extent + before)
        counted = end - start if count_include_pad else np.minimum(end, extent) - np.maximum(start, 0)
        factors = np.multiply.outer(factors, size / counted if divisor is None else np.full(len(start), float(size)))
    if divisor is not None:
        factors = factors / divisor
    window.after = window.ceil_padding(extents)
    means = _pool(g, x, AVG_POOL[window.rank], window, ceil_mode=False, count_include_pad=True)
    return g.emit(op.multiply(means, const(factors, g.dtype(means))))


def _with_indices(g: Importer, x: Expr, window: Window, ceil_mode: bool) -> Any:
    """The largest elements of windows, and where they are in the flat image."""
    what = "the extent of an image, for the indices of max_pool,"
    sizes = [g.static(e, what) for e in g.shape(x)[-window.rank :]]
    return max_with_indices(g, x, [window_indices(window, i, e, ceil_mode) for i, e in enumerate(sizes)])
