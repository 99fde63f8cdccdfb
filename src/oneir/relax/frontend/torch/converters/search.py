"""Operators that look for elements, or put them in order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ....struct_info import ShapeStructInfo
from ..dtypes import is_float, unified
from ..importer import Importer, as_shape, fields_of, is_tensor
from ..registry import NotDecomposable, converter, scalars_as_vectors
from .indexing import places_of
from .shape import broadcast_shape


@converter("argmax")
@scalars_as_vectors
def argmax(g: Importer, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    """The index of the largest element."""
    return g.emit(op.argmax(x, dim, keepdim))


@converter("argmin")
@scalars_as_vectors
def argmin(g: Importer, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    """The index of the smallest element."""
    return g.emit(op.argmin(x, dim, keepdim))


@converter("argsort")
@scalars_as_vectors
def argsort(g: Importer, x: Expr, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Expr:
    """The indices that put the elements in order."""
    return g.emit(op.argsort(x, dim, descending, "int64"))


@converter("argsort.stable")
@scalars_as_vectors
def stable_argsort(g: Importer, x: Expr, *, stable: bool = True, dim: int = -1, descending: bool = False) -> Expr:
    """The same; equal elements keep their order anyway."""
    return argsort(g, x, dim, descending)


@converter("sort")
@scalars_as_vectors
def sort(g: Importer, x: Expr, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """The elements in order, and their indices."""
    places = g.emit(op.argsort(x, dim, descending, "int64"))
    return g.emit(op.gather_elements(x, places, axis=g.axis(x, dim))), places


@converter("sort.stable")
@scalars_as_vectors
def stable_sort(g: Importer, x: Expr, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """The same; equal elements keep their order anyway."""
    return sort(g, x, dim, descending)


@converter("topk")
def topk(g: Importer, x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest or smallest elements and their indices, in order."""
    k = g.static(k, "k")
    if g.is_scalar(x):
        return g.emit(op.take(g.reshaped(x, [1]), const(0, "int64"), 0)), const(0, "int64")
    return g.emit(op.topk(x, k=k, axis=dim, largest=largest, ret_type="both", dtype="int64"))


@converter("bucketize")
def bucketize(g: Importer, x: Expr, boundaries: Expr, *, out_int32: bool = False, right: bool = False) -> Expr:
    """The bucket that each element is in."""
    return g.emit(op.bucketize(x, boundaries, out_int32, right))


@converter("isin")
def isin(g: Importer, elements: Any, test_elements: Expr, *, assume_unique: bool = False, invert: bool = False) -> Expr:
    """Whether each element is one of others."""
    if not is_tensor(elements) or not is_tensor(test_elements):
        raise UnsupportedError("isin with a number; make it a tensor")
    others = op.reshape(test_elements, [1, -1])
    equal = op.equal(op.reshape(elements, [-1, 1]), others)
    found = op.astype(op.max(op.astype(equal, "int32"), 1), "bool")
    found = op.reshape(found, g.shape(elements))
    return g.emit(op.logical_not(found) if invert else found)


@converter("searchsorted")
def searchsorted(
    g: Importer,
    sorted_sequence: Expr,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:
    """The index at which each value would be inserted into a sorted sequence."""
    if sorter is not None:
        sorted_sequence = g.emit(op.gather_elements(sorted_sequence, sorter, axis=-1))
    is_number = not is_tensor(values)
    values, sequence = unified(values, sorted_sequence)
    values, sequence = g.emit(values), g.emit(sequence)
    compare = op.less_equal if right or side == "right" else op.less
    before = compare(op.expand_dims(sequence, -2), op.expand_dims(values, -1))
    count = op.sum(op.astype(before, "int32"), -1)
    count = g.emit(count if out_int32 else op.astype(count, "int64"))
    return g.reshaped(count, []) if is_number else count


@converter("histc")
def histc(g: Importer, x: Expr, bins: int = 100, min: Any = 0, max: Any = 0) -> Expr:
    """How many elements are in each of as many equal parts of [min, max], or of the range of the elements."""
    dtype = g.dtype(x)
    low, high = const(min, dtype), const(max, dtype)
    if min == max:
        low, high = g.emit(op.min(x)), g.emit(op.max(x))
        equal, one = op.equal(low, high), const(1, dtype)
        low, high = g.emit(op.where(equal, low - one, low)), g.emit(op.where(equal, high + one, high))
    place = op.floor(op.divide(op.multiply(x - low, const(bins, dtype)), high - low))
    place = op.where(op.equal(x, high), const(bins - 1, dtype), place)
    counted = op.logical_and(op.greater_equal(x, low), op.less_equal(x, high))
    place = op.where(counted, place, const(-1, dtype))
    hits = op.equal(op.reshape(g.emit(place), [-1, 1]), const(np.arange(bins), dtype))
    return g.emit(op.sum(op.astype(hits, dtype), 0))


def _is_last(count: Any) -> Expr:
    """Which of several places is the last one."""
    return op.equal(op.arange(1, count + 1, 1, "int64"), op.shape_to_tensor(as_shape([count])))


@converter("histogram")
def histogram(
    g: Importer, x: Expr, bins: Any = 100, *, range: Any = None, weight: Expr | None = None, density: bool = False
) -> Any:
    """How many elements, or how much weight, is in each of several bins, the last of which has its end; and the ends
    of bins, which are given or divide a range equally. With `density`, the sum over bins times widths is 1.
    """
    dtype = g.dtype(x)
    if is_tensor(bins):
        edges = bins
    else:
        low, high = (const(v, dtype) for v in range) if range else (g.emit(op.min(x)), g.emit(op.max(x)))
        equal, half = g.emit(op.equal(low, high)), const(0.5, dtype)
        low, high = op.where(equal, low - half, low), op.where(equal, high + half, high)
        share = const(np.linspace(0, 1, bins + 1), dtype)
        edges = g.emit(op.add(op.multiply(low, const(1, dtype) - share), op.multiply(high, share)))
    count = g.shape(edges)[0] - 1
    begins = g.emit(op.strided_slice(edges, [0], [0], [count]))
    ends = g.emit(op.strided_slice(edges, [0], [1], [count + 1]))
    each = op.reshape(x, [-1, 1])
    last = op.logical_and(_is_last(count), op.equal(each, ends))
    inside = op.logical_and(op.greater_equal(each, begins), op.logical_or(op.less(each, ends), last))
    parts = op.astype(inside, dtype)
    if weight is not None:
        parts = op.multiply(parts, op.reshape(weight, [-1, 1]))
    found = g.emit(op.sum(parts, 0))
    if density:
        found = g.emit(op.divide(op.divide(found, op.sum(found)), op.subtract(ends, begins)))
    return found, edges


def _kth(g: Importer, x: Expr, k: int, dim: int, keepdim: bool) -> Any:
    """The k-th smallest elements, counted from 1, and their indices."""
    place = g.axis(x, dim)
    extent = g.static(g.shape(x)[place], "the extent of a dimension that is ordered")
    if not 1 <= k <= extent:
        raise UnsupportedError(f"there is no element {k} of {extent}")
    values, places = sort(g, x, place)
    found = [g.emit(op.strided_slice(part, [place], [k - 1], [k])) for part in (values, places)]
    return tuple(found if keepdim else [g.emit(op.squeeze(part, [place])) for part in found])


@converter("kthvalue")
@scalars_as_vectors
def kthvalue(g: Importer, x: Expr, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest elements and their indices."""
    return _kth(g, x, k, dim, keepdim)


@converter("median")
@scalars_as_vectors
def median(g: Importer, x: Expr, dim: int | None = None, keepdim: bool = False) -> Any:
    """The element in the middle, the smaller one of two, and with a dimension its index; NaN if there is one."""
    whole = dim is None
    if whole:
        x, dim = g.emit(op.reshape(x, [-1])), 0
    count = g.static(g.shape(x)[g.axis(x, dim)], "the extent of a dimension that is ordered")
    values, places = _kth(g, x, (count + 1) // 2, dim, keepdim)
    if is_float(g.dtype(x)):
        unknown = op.astype(op.isnan(x), "int32")
        any_unknown = op.astype(op.max(unknown, dim, keepdims=keepdim), "bool")
        values = g.emit(op.where(any_unknown, const(math.nan, g.dtype(x)), values))
        places = g.emit(op.where(any_unknown, op.argmax(unknown, dim, keepdim), places))
    return values if whole else (values, places)


@converter("nonzero")
def nonzero(g: Importer, x: Expr) -> Expr:
    """The indices of the elements that are not zero, a row each; that of a tensor without dimensions has no index."""
    if not g.is_scalar(x):
        return g.emit(op.stack(nonzero_numpy(g, x), 1))
    rows = op.stack(nonzero_numpy(g, g.reshaped(x, [1])), 1)
    return g.emit(op.strided_slice(g.emit(rows), [1], [0], [0]))


@converter("nonzero_static")
def nonzero_static(g: Importer, x: Expr, *, size: int, fill_value: int = -1) -> Expr:
    """The first indices of elements that are not zero, and a filling in the rows that are left."""
    rank = g.ndim(x)
    if not rank or not size:
        return g.emit(op.full(as_shape([size, rank]), const(fill_value, "int64"), "int64"))
    found = g.emit(op.astype(op.not_equal(x, op.zeros_like(x)), "int64"))
    rank_of = g.emit(op.cumsum(g.reshaped(found, [-1]), 0))
    if g.shape(rank_of) == [0]:
        return g.emit(op.full(as_shape([size, rank]), const(fill_value, "int64"), "int64"))
    # Row i is the first place up to which there are i + 1 such elements.
    wanted = op.arange(1, size + 1, 1, "int64")
    flat = searchsorted(g, rank_of, g.emit(wanted))
    columns = []
    for extent in reversed(g.shape(x)):
        size_of = g.emit(op.shape_to_tensor(as_shape([extent])))
        columns.insert(0, g.emit(op.floor_mod(flat, size_of)))
        flat = g.emit(op.floor_divide(flat, size_of))
    rows = op.stack(columns, 1)
    missing = op.greater(wanted, op.sum(found))
    return g.emit(op.where(op.expand_dims(missing, 1), const(fill_value, "int64"), rows))


@converter("nonzero_numpy")
def nonzero_numpy(g: Importer, x: Expr) -> Any:
    """The same, a tensor for each dimension."""
    return tuple(places_of(g, x))


@converter("masked_select")
def masked_select(g: Importer, x: Expr, mask: Expr) -> Expr:
    """The elements where a mask holds, in one dimension."""
    shape = as_shape(broadcast_shape([g.shape(x), g.shape(mask)]))
    x, mask = (g.emit(op.flatten(g.emit(op.broadcast_to(v, shape)))) for v in (x, mask))
    return g.emit(op.take(x, places_of(g, mask)[0], 0))


@converter("unique_dim")
def unique_dim(
    g: Importer,
    x: Expr,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    """The unique slices along a dimension, the index of each slice among them, and their counts."""
    made = fields_of(g.emit(op.unique(x, True, False, True, True, dim)))
    return made[0], made[1], made[2]


@converter("_unique2")
def unique(g: Importer, x: Expr, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The unique elements, the index of each element among them, and their counts, empty unless asked for."""
    values, which, counts = fields_of(g.emit(op.unique(x, True, False, True, True)))
    which = g.emit(op.reshape(which, as_shape(g.shape(x))))
    nothing = const(np.zeros([0], "int64"), "int64")
    return values, which if return_inverse else nothing, counts if return_counts else nothing


@converter("unique_consecutive")
def unique_consecutive(
    g: Importer, x: Expr, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of all runs of equal slices, the index of each slice's run, and the lengths of runs.

    Without a dimension slices are elements, and what is not asked for is empty.
    """
    shape, place = g.shape(x), 0 if dim is None else g.axis(x, dim)
    if dim is None:
        x = g.emit(op.flatten(x)) if shape else g.reshaped(x, [1])
    count = g.shape(x)[place]
    before = op.take(x, op.maximum(op.arange(-1, count - 1, 1, "int64"), const(0, "int64")), place)
    others = [axis for axis in range(g.ndim(x)) if axis != place]
    differs = g.emit(op.astype(op.not_equal(x, g.emit(before)), "int32"))
    begins = g.emit(op.max(differs, others)) if others else differs
    first = op.equal(op.arange(0, count, 1, "int64"), const(0, "int64"))
    begins = g.emit(op.logical_or(op.astype(begins, "bool"), first))
    (places,) = places_of(g, begins)
    nothing = const(np.zeros([0], "int64"), "int64")
    which, lengths = nothing, nothing
    if return_inverse or dim is not None:
        which = g.emit(op.subtract(op.cumsum(op.astype(begins, "int64"), 0), const(1, "int64")))
        which = g.reshaped(which, shape) if dim is None else which
    if return_counts or dim is not None:
        ends = g.emit(op.concat([places, op.shape_to_tensor(as_shape([count]))], 0))
        ends = op.strided_slice(ends, [0], [1], [g.shape(places)[0] + 1])
        lengths = g.emit(op.subtract(ends, places))
    return g.emit(op.take(x, places, place)), which, lengths


@converter("nanmedian")
@scalars_as_vectors
def nanmedian(g: Importer, x: Expr, dim: int | None = None, keepdim: bool = False) -> Any:
    """The element in the middle of those that are not NaN, and with a dimension its index."""
    if not is_float(g.dtype(x)):
        return median(g, x, dim, keepdim)
    whole = dim is None
    if whole:
        x, dim = g.emit(op.flatten(x)), 0
    place, dtype = g.axis(x, dim), g.dtype(x)
    known = g.emit(op.astype(op.logical_not(op.isnan(x)), "int64"))
    last = op.subtract(op.sum(known, [place], True), const(1, "int64"))
    middle = op.maximum(op.floor_divide(last, const(2, "int64")), const(0, "int64"))
    order = g.emit(op.argsort(op.where(op.astype(known, "bool"), x, const(math.inf, dtype)), place, False, "int64"))
    places = g.emit(op.gather_elements(order, g.emit(middle), axis=place))
    values = g.emit(op.gather_elements(x, places, axis=place))
    if not keepdim:
        values, places = (g.emit(op.squeeze(part, [place])) for part in (values, places))
    return values if whole else (values, places)


@converter("mode")
@scalars_as_vectors
def mode(g: Importer, x: Expr, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element, of several the smallest, and its last index."""
    place = g.axis(x, dim)
    count = g.static(g.shape(x)[place], "the extent of a dimension whose elements are counted")
    same = op.equal(op.expand_dims(x, place), op.expand_dims(x, place + 1))
    times = g.emit(op.sum(op.astype(same, "int64"), [place]))
    most = op.equal(times, op.max(times, [place], True))
    dtype = "int32" if g.dtype(x) == "bool" else g.dtype(x)
    highest = const(math.inf if is_float(dtype) else np.iinfo(dtype).max, dtype)
    values = g.emit(op.astype(op.min(op.where(most, op.astype(x, dtype), highest), [place], True), g.dtype(x)))
    numbers = const(np.arange(count).reshape([-1, *[1] * (g.ndim(x) - place - 1)]), "int64")
    places = g.emit(op.max(op.where(op.equal(x, values), numbers, const(-1, "int64")), [place], True))
    return tuple(part if keepdim else g.emit(op.squeeze(part, [place])) for part in (values, places))


def _running(name: str, extreme: Callable[..., Expr], worst: Callable[[str], Any]) -> None:
    """The cumulative extreme along a dimension, and its last index."""

    @scalars_as_vectors
    def convert(g: Importer, x: Expr, dim: int) -> Any:
        place = g.axis(x, dim)
        count = g.static(g.shape(x)[place], "the extent of a dimension with running extremes")
        dtype = "int32" if g.dtype(x) == "bool" else g.dtype(x)
        rest = [1] * (g.ndim(x) - place - 1)
        so_far = const(np.tri(count, dtype=bool).reshape(count, count, *rest), "bool")
        each = op.expand_dims(op.astype(x, dtype), place)
        values = g.emit(extreme(op.where(so_far, each, const(worst(dtype), dtype)), [place + 1]))
        here = op.logical_and(so_far, op.equal(each, op.expand_dims(values, place + 1)))
        numbers = const(np.arange(count).reshape(1, count, *rest), "int64")
        places = g.emit(op.max(op.where(here, numbers, const(-1, "int64")), [place + 1]))
        return g.emit(op.astype(values, g.dtype(x))), places

    converter(name)(convert)


_running("cummax", op.max, lambda dtype: -math.inf if is_float(dtype) else np.iinfo(dtype).min)
_running("cummin", op.min, lambda dtype: math.inf if is_float(dtype) else np.iinfo(dtype).max)


@converter("bincount")
def bincount(g: Importer, x: Expr, weights: Expr | None = None, minlength: int = 0) -> Expr:
    """How often each integer from 0 on is there, or the sum of the weights where it is."""
    largest = op.max(g.emit(op.concat([op.astype(x, "int64"), const([-1], "int64")], 0)))
    count = op.maximum(op.add(largest, const(1, "int64")), const(minlength, "int64"))
    length = g.symbols.fresh("count")
    shape = g.emit(op.tensor_to_shape(op.reshape(count, [1])))
    g.block_builder.match_cast(shape, ShapeStructInfo([length]))
    dtype = "int64" if weights is None else "float32" if g.dtype(weights) == "float32" else "float64"
    added = op.ones_like(x, "int64") if weights is None else op.astype(weights, dtype)
    zeros = op.zeros(as_shape([length]), dtype)
    return g.emit(op.scatter_elements(zeros, op.astype(x, "int64"), added, axis=0, reduction="add"))


@converter("unique")
def of_data_dependent_shape(g: Importer, *args: Any, **kwargs: Any) -> Expr:
    """`torch.unique` of a traced module: which results it has depends on its arguments."""
    raise NotDecomposable(
        "the shape of the result depends on data; use torch.where or torch.topk, or compute it outside"
    )
