"""Fourier transforms of importers, as products with matrices of cosines and sines."""

from __future__ import annotations

import math

import numpy as np

from .. import op
from ..expr import Expr
from .importer import ModelImporter


def waves(rows: int, columns: int, period: int, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """The cosines and sines of sign * 2 pi * row * column / period."""
    # The remainder is exact, so angles of large products are too.
    angles = sign * 2 * math.pi * (np.outer(np.arange(rows), np.arange(columns)) % period) / period
    return np.cos(angles), np.sin(angles)


def real_from_half(g: ModelImporter, real: Expr, imag: Expr, axis: int, count: int, scale: float) -> Expr:
    """The inverse transform of `count` real numbers along an axis, from the first half of their spectrum."""
    kept = g.static(g.shape(real)[axis], "the number of frequencies")
    cosine, sine = waves(kept, count, count, 1.0)
    # Frequencies but the first, and the last of an even count, stand for their conjugates as well.
    twice = np.where((np.arange(kept) == 0) | (2 * np.arange(kept) == count), 1, 2)[:, None]
    parts = (matmul_along(g, x, m * twice * scale, axis) for x, m in ((real, cosine), (imag, sine)))
    return g.emit(op.subtract(*parts))


def matmul_along(g: ModelImporter, x: Expr, matrix: np.ndarray, axis: int) -> Expr:
    """The product of the vectors along an axis with a matrix."""
    order = [*(i for i in range(g.ndim(x)) if i != axis), axis]
    constant = g.like(matrix, x)
    if axis == g.ndim(x) - 1:
        return g.emit(op.matmul(x, constant))
    return g.emit(op.permute_dims(op.matmul(op.permute_dims(x, order), constant), np.argsort(order).tolist()))
