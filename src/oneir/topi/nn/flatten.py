"""Flattening all dimensions but the first."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..index import unravel
from .window import same_dtype


@te.tag_scope(tag=tag.INJECTIVE)
def flatten(data: Tensor) -> Tensor:
    """(batch, ...) as (batch, product of the others)."""
    if not data.shape:
        raise ShapeMismatch("topi.nn.flatten: expected data of at least one dimension, found a scalar")
    inner = data.shape[1:]
    size: Any = same_dtype(1, data.shape[0])
    for extent in inner:
        size = ops.multiply(size, extent)
    return te.compute((data.shape[0], size), lambda i, j: data(i, *unravel(j, inner)))
