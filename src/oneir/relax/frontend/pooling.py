"""Poolings of importers: windows of images of known extents, given by the indices of their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import op
from ..expr import Expr, const
from .importer import ModelImporter
from .window import DATA_LAYOUT, Window

MAX_POOL = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
AVG_POOL = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


def pool_options(window: Window) -> dict[str, Any]:
    """The arguments of an operator of `MAX_POOL` or `AVG_POOL`."""
    return {
        "pool_size": window.kernel,
        "strides": window.strides,
        "padding": window.padding,
        "dilation": window.dilations,
        "layout": DATA_LAYOUT[window.rank],
    }


def window_indices(window: Window, dim: int, size: int, ceil_mode: bool) -> np.ndarray:
    """The indices of the elements of each window along a dimension of an image, a row for each window.

    Padding never is the largest element: in its place stands the first element of the window that is inside.
    """
    count = window.positions(dim, size, ceil_mode)
    first = np.arange(count) * window.strides[dim] - window.before[dim]
    indices = first[:, None] + np.arange(window.kernel[dim]) * window.dilations[dim]
    inside = (indices >= 0) & (indices < size)
    return np.where(inside, indices, indices[np.arange(count), inside.argmax(1)][:, None])


def max_with_indices(
    g: ModelImporter, x: Expr, windows: Sequence[np.ndarray], column_major: bool = False
) -> tuple[Expr, Expr]:
    """The largest elements of windows, and their indices in the flat image, in row-major order unless said otherwise.

    `windows` has, for each spatial dimension, a row for each window with the indices of its elements.
    """
    rank = len(windows)
    leading, extents = g.shape(x)[:-rank], [g.static(e, "the extent of an image") for e in g.shape(x)[-rank:]]
    lead = len(leading)
    by_row = _flat_indices(windows, extents, range(rank))
    image = g.reshaped(x, [*leading, math.prod(extents)])
    elements = g.emit(op.take(image, const(by_row, "int64"), lead))
    values = g.emit(op.max(elements, -1))
    chosen = g.emit(op.argmax(elements, -1, True))
    numbers = _flat_indices(windows, extents, range(rank - 1, -1, -1)) if column_major else by_row
    repeated = g.broadcast(const(numbers, "int64"), g.shape(elements))
    found = op.squeeze(op.gather_elements(repeated, chosen, axis=g.ndim(elements) - 1), [-1])
    return values, g.emit(found)


def _flat_indices(windows: Sequence[np.ndarray], extents: Sequence[int], order: Sequence[int]) -> np.ndarray:
    """The index of each element of each window in the flat image, whose dimensions are counted in an order.

    The result has the dimensions of the windows, then one for the elements of a window.
    """
    rank = len(windows)
    total = np.zeros([1] * (2 * rank), "int64")
    for i in order:
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = windows[i].shape
        total = total * extents[i] + windows[i].reshape(shape)
    return total.reshape([*(len(w) for w in windows), -1])
