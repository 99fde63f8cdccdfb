"""Reductions, running sums, sorting."""

from __future__ import annotations

from typing import Any

from .... import op as graph_op
from ..tensor import Tensor, wrap_nested


def sum(x: Tensor, axis: int | list[int] | None = None, keepdims: bool = False, name: str = "sum") -> Tensor:
    """The sum over an axis, several or all."""
    return wrap_nested(graph_op.sum(x._expr, axis, keepdims), name)


def max(x: Tensor, axis: int | list[int] | None = None, keepdims: bool = False, name: str = "max") -> Tensor:
    """The largest element over an axis, several or all."""
    return wrap_nested(graph_op.max(x._expr, axis, keepdims), name)


def min(x: Tensor, axis: int | list[int] | None = None, keepdims: bool = False, name: str = "min") -> Tensor:
    """The smallest element over an axis, several or all."""
    return wrap_nested(graph_op.min(x._expr, axis, keepdims), name)


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """The sums of the elements up to each one, or (exclusive) before it."""
    return wrap_nested(graph_op.cumsum(data._expr, axis, dtype, bool(exclusive)), name)


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """The elements in order."""
    return wrap_nested(graph_op.sort(x._expr, axis, descending), name)


def argsort(
    data: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32", name: str = "argsort"
) -> Tensor:
    """The indices that put the elements in order."""
    return wrap_nested(graph_op.argsort(data._expr, axis, descending, dtype), name)


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The k largest or smallest elements and their indices, or (`ret_type`) only "values" or "indices"."""
    return wrap_nested(graph_op.topk(data._expr, k, axis, ret_type, largest, dtype), name)
