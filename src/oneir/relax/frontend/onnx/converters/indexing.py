"""Elements found by indices, put at indices, sorted, counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ....struct_info import TensorStructInfo
from ..context import Context
from ..registry import converter


def _from_front(g: Context, indices: Expr, extents: Any) -> Expr:
    """Indices of which negative ones count from the end, counted from the front; `extents` is one, or one for each."""
    known = g.array(indices)
    if known is not None and known.size and known.min() >= 0:
        return indices
    dtype = g.dtype(indices)
    ends = g.of_elements(extents, dtype)
    return g.emit(op.where(op.less(indices, const(0, dtype)), op.add(indices, ends), indices))


@converter("Gather")
def gather(g: Context, x: Expr, indices: Expr, *, axis: int = 0) -> Expr:
    """The slices at indices along an axis."""
    place = g.axis(axis, g.ndim(x))
    return g.emit(op.take(x, _from_front(g, indices, g.shape(x)[place]), place))


@converter("GatherElements")
def gather_elements(g: Context, x: Expr, indices: Expr, *, axis: int = 0) -> Expr:
    """The elements at an index of one dimension, given for each element of the result."""
    place = g.axis(axis, g.ndim(x))
    return g.emit(op.gather_elements(x, _from_front(g, indices, g.shape(x)[place]), place))


@converter("GatherND")
def gather_nd(g: Context, x: Expr, indices: Expr, *, batch_dims: int = 0) -> Expr:
    """The slices at indices of several dimensions."""
    return g.emit(op.gather_nd(x, _all_from_front(g, x, indices, batch_dims), batch_dims))


def _all_from_front(g: Context, x: Expr, indices: Expr, batch_dims: int = 0) -> Expr:
    """Indices of several dimensions, each counted from the front of its own."""
    count = g.static(g.shape(indices)[-1], "how many dimensions are indexed")
    return _from_front(g, indices, g.shape(x)[batch_dims : batch_dims + count])


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(name: str) -> str:
    if name not in _REDUCTIONS:
        raise UnsupportedError(f"expected a reduction of {', '.join(_REDUCTIONS)}, found {name!r}")
    return _REDUCTIONS[name]


@converter("Scatter", "ScatterElements")
def scatter_elements(
    g: Context, x: Expr, indices: Expr, updates: Expr, *, axis: int = 0, reduction: str = "none"
) -> Expr:
    """x with elements at an index of one dimension, given for each update."""
    place = g.axis(axis, g.ndim(x))
    places = _from_front(g, indices, g.shape(x)[place])
    return g.emit(op.scatter_elements(x, places, updates, place, _reduction(reduction)))


@converter("ScatterND")
def scatter_nd(g: Context, x: Expr, indices: Expr, updates: Expr, *, reduction: str = "none") -> Expr:
    """x with slices at indices of several dimensions."""
    return g.emit(op.scatter_nd(x, _all_from_front(g, x, indices), updates, _reduction(reduction)))


@converter("TensorScatter", since=24)
def tensor_scatter(
    g: Context, cache: Expr, update: Expr, writes: Expr | None = None, *, axis: int = -2, mode: str = "linear"
) -> Expr:
    """A cache with new entries, at an index for each element of the batch."""
    place = g.axis(axis, g.ndim(cache))
    extents, size = g.shape(update), g.static(g.shape(cache)[place], "the length of a cache")
    begin = g.constant(np.zeros([1], np.int64)) if writes is None else writes
    steps = g.along(g.emit(op.arange(0, extents[place], 1, "int64")), place, len(extents))
    where = op.add(steps, g.along(begin, 0, len(extents)))
    if mode == "circular":
        where = op.floor_mod(where, const(size, "int64"))
    return g.emit(op.scatter_elements(cache, g.broadcast(g.emit(where), extents), update, place))


@converter("OneHot")
def one_hot(g: Context, indices: Expr, depth: Expr, values: Expr, *, axis: int = -1) -> Expr:
    """values[1] at an index, values[0] elsewhere; nothing at an index out of range."""
    extent = g.extents(g.reshaped(g.cast(depth, "int64"), [1]), "a depth")[0]
    count = g.ndim(indices) + 1
    place = g.axis(axis, count)
    numbers = g.along(g.emit(op.arange(0, extent, 1, "int64")), place, count)
    found = g.cast(indices, "int64")
    wrapped = _from_front(g, found, extent)
    hits = op.equal(g.emit(op.expand_dims(wrapped, place)), numbers)
    off, on = (op.reshape(op.strided_slice(values, [0], [i], [i + 1]), []) for i in (0, 1))
    return g.emit(op.where(hits, on, off))


@converter("TopK", since=1)
def top_k_attribute(g: Context, x: Expr, *, k: int, axis: int = -1) -> tuple[Expr, ...]:
    """The largest elements along an axis, and their indices."""
    return tuple(g.fields(op.topk(x, k, axis, "both", True, "int64")))


@converter("TopK", since=10)
def top_k(g: Context, x: Expr, k: Expr, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Expr, ...]:
    """The largest or smallest elements along an axis, in order, and their indices."""
    count = g.extents(k, "k")[0]
    place = g.axis(axis, g.ndim(x))
    if isinstance(count, int):
        return tuple(g.fields(op.topk(x, count, place, "both", bool(largest), "int64")))
    order = g.emit(op.argsort(x, place, bool(largest), "int64"))
    first = g.emit(op.strided_slice(order, [place], [0], [count], assume_inbound=True))
    return g.emit(op.gather_elements(x, first, place)), first


@converter("NonZero")
def non_zero(g: Context, x: Expr) -> Expr:
    """The indices of elements that are not 0: a row for each dimension."""
    return g.emit(op.nonzero(x))


@converter("Compress")
def compress(g: Context, x: Expr, condition: Expr, *, axis: int | None = None) -> Expr:
    """The slices for which a condition holds."""
    if axis is None:
        x, axis = g.reshaped(x, [math.prod(g.shape(x))]), 0
    found = g.emit(op.nonzero(condition))
    count = g.symbols.fresh_extent()
    places = g.block_builder.match_cast(found, TensorStructInfo([1, count], "int64"))
    return g.emit(op.take(x, g.reshaped(places, [count]), axis))


@converter("Unique", since=11)
def unique(g: Context, x: Expr, *, axis: int | None = None, sorted: int = 1) -> tuple[Expr, ...]:
    """The unique elements or slices, their first indices, the index of each element among them, and their counts."""
    values, first, inverse, counts = g.fields(op.unique(x, True, True, True, True, axis))
    count, flat = g.symbols.fresh_extent(), g.symbols.fresh_extent()
    first, counts = (g.block_builder.match_cast(v, TensorStructInfo([count], "int64")) for v in (first, counts))
    inverse = g.block_builder.match_cast(inverse, TensorStructInfo([flat], "int64"))
    if sorted:
        return values, first, inverse, counts
    # In the order of their first indices.
    place = 0 if axis is None else g.axis(axis, g.ndim(x))
    extents = [count] if axis is None else [*g.shape(x)[:place], count, *g.shape(x)[place + 1 :]]
    values = g.block_builder.match_cast(values, TensorStructInfo(extents, g.dtype(x)))
    order = g.emit(op.argsort(first, 0, dtype="int64"))
    rank = g.emit(op.argsort(order, 0, dtype="int64"))
    return (
        g.emit(op.take(values, order, place)),
        g.emit(op.take(first, order, 0)),
        g.emit(op.take(rank, inverse, 0)),
        g.emit(op.take(counts, order, 0)),
    )


@converter("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(g: Context, x: Expr, indices: Expr) -> Expr:
    """Columns of a matrix."""
    count = math.prod(g.shape(indices))
    found = g.emit(op.take(x, g.reshaped(indices, [count]), g.ndim(x) - 1))
    return found if g.ndim(x) > 1 else g.reshaped(found, [1, count])


@converter("Binarizer", domain="ai.onnx.ml")
def binarizer(g: Context, x: Expr, *, threshold: float = 0.0) -> Expr:
    """1 where an element is above a threshold, else 0."""
    return g.emit(op.astype(op.greater(x, g.like(threshold, x)), g.dtype(x)))


@converter("NonMaxSuppression", since=10)
def non_max_suppression(
    g: Context,
    boxes: Expr,
    scores: Expr,
    max_boxes: Expr | None = None,
    iou_threshold: Expr | None = None,
    score_threshold: Expr | None = None,
    *,
    center_point_box: int = 0,
) -> Expr:
    """The boxes that are left when those that overlap a better one are taken away: (batch, class, box)."""
    if center_point_box:
        x, y, w, h = (op.strided_slice(boxes, [2], [i], [i + 1]) for i in range(4))
        half = g.like(0.5, boxes)
        w, h = g.emit(op.multiply(w, half)), g.emit(op.multiply(h, half))
        boxes = g.emit(op.concat([op.subtract(y, h), op.subtract(x, w), op.add(y, h), op.add(x, w)], 2))
    else:
        # Corners may come in either order.
        low, high = op.strided_slice(boxes, [2], [0], [2]), op.strided_slice(boxes, [2], [2], [4])
        boxes = g.emit(op.concat([op.minimum(low, high), op.maximum(low, high)], 2))
    lowest = const([np.finfo(np.float32).min], "float32")
    limit = const([0], "int64") if max_boxes is None else g.reshaped(g.cast(max_boxes, "int64"), [1])
    iou = const([0.0], "float32") if iou_threshold is None else g.reshaped(iou_threshold, [1])
    least = lowest if score_threshold is None else g.emit(op.maximum(g.reshaped(score_threshold, [1]), lowest))
    found = g.emit(op.vision.all_class_non_max_suppression(boxes, scores, limit, iou, least))
    rows, count = g.fields(found)
    kept = g.extents(count, "how many boxes there are")[0]
    return g.emit(op.strided_slice(rows, [0], [0], [kept], assume_inbound=True))
