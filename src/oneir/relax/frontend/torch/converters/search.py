"""Operators that look for elements, or put them in order."""

from __future__ import annotations

from typing import Any

from .... import op
from ....expr import Expr
from ..importer import Importer, is_tensor
from ..registry import Refused, converter


@converter("argmax")
def argmax(g: Importer, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    """The index of the largest element."""
    return g.emit(op.argmax(x, dim, keepdim))


@converter("argmin")
def argmin(g: Importer, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    """The index of the smallest element."""
    return g.emit(op.argmin(x, dim, keepdim))


@converter("argsort")
def argsort(g: Importer, x: Expr, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Expr:
    """The indices that put the elements in order."""
    return g.emit(op.argsort(x, dim, descending, "int64"))


@converter("argsort.stable")
def stable_argsort(g: Importer, x: Expr, *, stable: bool = True, dim: int = -1, descending: bool = False) -> Expr:
    """The same; equal elements keep their order anyway."""
    return argsort(g, x, dim, descending)


@converter("sort")
def sort(g: Importer, x: Expr, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """The elements in order, and their indices."""
    places = g.emit(op.argsort(x, dim, descending, "int64"))
    return g.emit(op.gather_elements(x, places, axis=g.axis(x, dim))), places


@converter("sort.stable")
def stable_sort(g: Importer, x: Expr, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """The same; equal elements keep their order anyway."""
    return sort(g, x, dim, descending)


@converter("topk")
def topk(g: Importer, x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest or smallest elements and their indices, in order."""
    k = g.static(k, "k")
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


@converter("nonzero", "masked_select", "unique", "_unique2", "unique_consecutive", "unique_dim", "nonzero_static")
def of_data_dependent_shape(g: Importer, *args: Any, **kwargs: Any) -> Expr:
    """Operators whose result has a shape that depends on data."""
    raise Refused("the shape of the result depends on data; use torch.where or torch.topk, or compute it outside")
