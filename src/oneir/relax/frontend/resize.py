"""Images of importers in another size: which elements of a dimension each new element is the weighted sum of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import op
from ..expr import Expr, const
from .importer import ModelImporter

RESIZE2D_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
"""What `image.resize2d` calls the interpolations."""


def scaled_extent(g: ModelImporter, extent: Any, factor: float) -> Any:
    """An extent times a factor, rounded down."""
    if float(factor).is_integer():
        return extent * int(factor)
    return math.floor(g.static(extent, "the extent of an image that is resized by a fraction") * factor)


def resize_axis(g: ModelImporter, x: Expr, axis: int, indices: np.ndarray, weights: np.ndarray | None) -> Expr:
    """One dimension resized: sums of elements times their weights.

    `indices` and `weights` are (new extent, elements of a sum); without weights each new element is one of the old.
    Integers are summed as float32, and truncated.
    """
    if weights is None:
        return g.emit(op.take(x, const(indices[:, 0], "int64"), axis))
    dtype = g.dtype(x)
    real = x if "float" in dtype else g.cast(x, "float32")
    shape = [1] * g.ndim(x)
    shape[axis] = -1
    total: Expr | None = None
    for index, weight in zip(indices.T, weights.T, strict=True):
        if weight.any():
            part = op.multiply(op.take(real, const(index, "int64"), axis), g.like(weight.reshape(shape), real))
            total = part if total is None else op.add(total, part)
    assert total is not None
    return g.cast(g.emit(total), dtype)
