"""Operators that move elements and change none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import op as graph_op
from ....expr import Var
from ..tensor import Tensor, wrap_nested


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """A new dimension of extent 1."""
    return wrap_nested(graph_op.expand_dims(x._expr, dim), name)


def concat(x: list[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Tensors one after the other along a dimension."""
    return wrap_nested(graph_op.concat([t._expr for t in x], dim), name)


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """A dimension cut into a number of pieces."""
    return wrap_nested(graph_op.split(x._expr, chunks, dim), name)


def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """A dimension cut into a number of pieces, or at the given positions."""
    cuts = indices_or_sections if isinstance(indices_or_sections, int) else list(indices_or_sections)
    return wrap_nested(graph_op.split(ary._expr, cuts, axis), name)


def broadcast_to(x: Tensor, shape: Sequence[Any], name: str = "broadcast_to") -> Tensor:
    """The tensor repeated along dimensions of extent 1 and new ones in front."""
    return wrap_nested(graph_op.broadcast_to(x._expr, shape), name)


def permute_dims(x: Tensor, axes: list[int] | None = None, name: str | None = None) -> Tensor:
    """The dimensions in another order; in reverse if none is given."""
    if name is None:
        own = x._expr.name if isinstance(x._expr, Var) else ""
        name = own.replace("linear", "matmul") if "linear" in own else "permute_dims"
    return wrap_nested(graph_op.permute_dims(x._expr, axes=axes), name)


def permute(x: Tensor, axes: list[int] | None, name: str = "permute") -> Tensor:
    """The dimensions in another order."""
    return wrap_nested(graph_op.permute_dims(x._expr, axes=axes), name)


def reshape(x: Tensor, shape: Sequence[Any], name: str = "reshape") -> Tensor:
    """The elements in another shape; one extent may be -1, which is then what remains."""
    return wrap_nested(graph_op.reshape(x._expr, shape), name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element several times, along an axis or of the flat tensor."""
    return wrap_nested(graph_op.repeat(x._expr, repeats, axis), name)


def squeeze(x: Tensor, axis: int | list[int] | None = -1, name: str = "squeeze") -> Tensor:
    """The tensor without dimensions of extent 1; None means all of them."""
    return wrap_nested(graph_op.squeeze(x._expr, axis), name)


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """The elements at indices along an axis, which a vector need not have said."""
    return wrap_nested(graph_op.take(x._expr, indices._expr, axis), name)
