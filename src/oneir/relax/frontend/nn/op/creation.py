"""Operators that make tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....ir.expr import FloatImm, IntImm
from .... import op as graph_op
from ....expr import ShapeExpr, const
from ..tensor import Tensor, wrap_nested


def full(shape: Sequence[Any], fill_value: Any, dtype: str = "float32", name: str = "full") -> Tensor:
    """A tensor of one value, which is a number or a tensor without dimensions."""
    if isinstance(fill_value, (FloatImm, IntImm)):
        fill_value = fill_value.value
    value = fill_value._expr if isinstance(fill_value, Tensor) else const(fill_value, dtype)
    return wrap_nested(graph_op.full(shape, value, dtype), name)


def zeros(shape: Sequence[Any], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """A tensor of zeros."""
    return wrap_nested(graph_op.zeros(shape, dtype), name)


def ones(shape: Sequence[Any], dtype: str = "float32", name: str = "ones") -> Tensor:
    """A tensor of ones."""
    return wrap_nested(graph_op.ones(shape, dtype), name)


def empty(shape: Sequence[Any], dtype: str = "float32", name: str = "empty") -> Tensor:
    """A tensor with arbitrary contents."""
    return wrap_nested(graph_op.builtin.alloc_tensor(ShapeExpr(shape), dtype, 0), name)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: str | None = "float32", name: str = "arange") -> Tensor:
    """The numbers from `start` up to, without, `end`; from 0 up to `start` if there is no `end`."""
    return wrap_nested(graph_op.arange(start, end, step, dtype), name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Matrices with zeros below a diagonal."""
    return wrap_nested(graph_op.triu(x._expr, diagonal), name)
