"""Operators that look for elements, or put them in order."""

from __future__ import annotations

import math
from typing import Any

from .... import op
from ....expr import Expr, const
from ..dtypes import is_float, unified
from ..importer import Importer, is_tensor
from ..registry import Impossible, Refused, converter, scalars_as_vectors


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
        raise Refused("isin with a number; make it a tensor")
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
    """The place of each value in a sequence in order: how many elements are smaller, or not larger."""
    if sorter is not None:
        raise Refused("searchsorted with a sorter; put the sequence in order before")
    values, sequence = unified(values, sorted_sequence)
    values, sequence = g.emit(values), g.emit(sequence)
    compare = op.less_equal if right or side == "right" else op.less
    before = compare(op.expand_dims(sequence, -2), op.expand_dims(values, -1))
    count = op.sum(op.astype(before, "int32"), -1)
    return g.emit(count if out_int32 else op.astype(count, "int64"))


def _kth(g: Importer, x: Expr, k: int, dim: int, keepdim: bool) -> Any:
    """The k-th smallest elements, counted from 1, and their indices."""
    place = g.axis(x, dim)
    extent = g.static(g.shape(x)[place], "the extent of a dimension that is ordered")
    if not 1 <= k <= extent:
        raise Refused(f"there is no element {k} of {extent}")
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


_DATA_DEPENDENT = (
    "bincount histogram masked_select nonzero nonzero_static segment_reduce "
    "unique _unique2 unique_consecutive unique_dim"
)


@converter(*_DATA_DEPENDENT.split())
def of_data_dependent_shape(g: Importer, *args: Any, **kwargs: Any) -> Expr:
    """Operators whose result has a shape that depends on data."""
    raise Impossible("the shape of the result depends on data; use torch.where or torch.topk, or compute it outside")
