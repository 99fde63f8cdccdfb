"""Poolings of importers: windows of images of known extents, given by the indices of their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select
from ...ir.expr import const as number
from ...runtime.error import UnsupportedError
from ...tir.expr import IterVar
from ...topi.index import ravel, unravel
from .. import op
from ..expr import Expr, TupleGetItem, const
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

    Padding never is the largest element: in its place stands the nearest element of the window that is inside.
    """
    count = window.positions(dim, size, ceil_mode)
    first = np.arange(count) * window.strides[dim] - window.before[dim]
    indices = first[:, None] + np.arange(window.kernel[dim]) * window.dilations[dim]
    inside = (indices >= 0) & (indices < size)
    if not inside.any(1).all():
        raise UnsupportedError("the index of the largest element of a window that has padding alone; pad less")
    rows, last = np.arange(count), window.kernel[dim] - 1
    lowest, highest = indices[rows, inside.argmax(1)], indices[rows, last - inside[:, ::-1].argmax(1)]
    return np.clip(indices, lowest[:, None], highest[:, None])


def max_with_indices(
    g: ModelImporter, x: Expr, windows: Sequence[np.ndarray], column_major: bool = False
) -> tuple[Expr, Expr]:
    """The largest elements of windows, and their indices in the flat image, in row-major order unless said otherwise.

    Of equal elements the first is taken, of NaNs the last.

    `windows` has, for each spatial dimension, a row for each window with the indices of its elements.
    """
    rank = len(windows)
    lead, extents = g.ndim(x) - rank, [g.static(e, "the extent of an image") for e in g.shape(x)[-rank:]]
    sizes = [w.shape[1] for w in windows]
    tables = [const(w, "int32") for w in windows if _steps(w) is None]
    order = range(rank - 1, -1, -1) if column_major else range(rank)

    def element(i: int, window: Any, place: Any, known: Sequence[te.Tensor]) -> Any:
        """The index along a dimension of an element of a window."""
        steps = _steps(windows[i])
        if steps is None:
            return known[sum(_steps(w) is None for w in windows[:i])](window, place)
        return window * steps[0] + place * steps[1]

    def largest(data: te.Tensor, *known: te.Tensor) -> list[te.Tensor]:
        shape = [*data.shape[:lead], *(len(w) for w in windows)]

        def read(ax: Sequence[PrimExpr], places: Sequence[IterVar]) -> PrimExpr:
            return data(*ax[:lead], *[element(i, ax[lead + i], places[i].var, known) for i in range(rank)])

        def window() -> list[IterVar]:
            return [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(sizes)]

        places = window()
        values = te.compute(shape, lambda *ax: te.max(read(ax, places), axis=places), name="largest")
        others = window()

        # A NaN is the largest element, and equals nothing: in a window that has one, only NaNs have a place. Theirs are
        # counted from the end, since PyTorch takes the last.
        count = number(math.prod(sizes), "uint32")

        def from_end(place: PrimExpr) -> PrimExpr:
            return count - number(1, "uint32") - place

        def first(*ax: PrimExpr) -> PrimExpr:
            value = read(ax, others)
            place = ops.cast("uint32", ravel([p.var for p in others], sizes))
            equal = Select(ops.equal(value, values(*ax)), place, count)
            return te.min(Select(ops.not_equal(value, value), from_end(place), equal), axis=others)

        counted = te.compute(shape, first, name="place")

        def flat(*ax: PrimExpr) -> Any:
            total: Any = 0
            place, value = counted(*ax), values(*ax)
            place = Select(ops.not_equal(value, value), from_end(place), place)
            inside = [ops.cast("int32", i) for i in unravel(place, sizes)]
            for i in order:
                total = total * extents[i] + element(i, ax[lead + i], inside[i], known)
            return ops.cast("int64", total)

        return [values, te.compute(shape, flat, name="places")]

    both = g.te(largest, x, *tables, name="max_with_indices")
    return g.emit(TupleGetItem(both, 0)), g.emit(TupleGetItem(both, 1))


def _steps(indices: np.ndarray) -> tuple[int, int] | None:
    """The steps from window to window, and from element to element, if all indices follow from two; else None."""
    rows, columns = (np.arange(n) for n in indices.shape)
    steps = (int(indices[1, 0]) if len(indices) > 1 else 0, int(indices[0, 1]) if indices.shape[1] > 1 else 0)
    return steps if (indices == rows[:, None] * steps[0] + columns * steps[1]).all() else None
