"""What operators of one's own need of shapes: their constants, and places in memory, under their published names."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from ..arith import Analyzer
from ..ir import operators as ops
from ..ir.expr import FloatImm, PrimExpr, as_int, const
from ..runtime.error import InvalidValue, ShapeMismatch
from .index import Extent, Shape

InvalidShapeError = ShapeMismatch
"""What operators raise for shapes that do not fit, under its published name."""


def simplify(expr: Any) -> Any:
    """A simpler expression of the same value; what is no expression is returned as it is."""
    return Analyzer().simplify(expr) if isinstance(expr, PrimExpr) else expr


def _known(value: Any) -> int | None:
    """The value of an integer, or of an expression that is one for all values of its variables."""
    found = as_int(value)
    return as_int(simplify(value)) if found is None else found


def get_const_int(expr: Extent) -> int:
    """The value of a constant integer. Raises `InvalidValue` for an expression that is none."""
    found = _known(expr)
    if found is None:
        raise InvalidValue(f"expected a constant integer, found {expr}")
    return found


def get_const_float(expr: Any) -> float:
    """The value of a constant float. Raises `InvalidValue` for an expression that is none."""
    found = simplify(expr)
    if not isinstance(found, (float, FloatImm)):
        raise InvalidValue(f"expected a constant of floats, found {expr}")
    return found if isinstance(found, float) else found.value


def equal_const_int(expr: Extent, value: int) -> bool:
    """Whether an expression is a constant integer of that value."""
    return _known(expr) == value


def get_const_tuple(in_tuple: Shape) -> tuple[Extent, ...]:
    """A shape whose constant extents are integers of Python; the others stay expressions."""
    return tuple(extent if (found := _known(extent)) is None else found for extent in in_tuple)


def prod(x: Sequence[Any]) -> Any:
    """The product of extents, 1 of none."""
    return functools.reduce(operator.mul, x) if x else const(1, "int32")


def is_empty_shape(shape: Shape) -> bool:
    """Whether tensors of a shape have no elements, as far as is known: one of its extents is 0."""
    return any(_known(extent) == 0 for extent in shape)


def ceil_div(a: Extent, b: Extent) -> Extent:
    """`a / b`, rounded up, for a positive `b`."""
    return simplify(ops.floordiv(a + (b - 1), b))


def ravel_index(indices: Sequence[Extent], shape: Shape) -> Extent:
    """The place of an element in a tensor without gaps, the last dimension first.

    Raises `InvalidShapeError` unless there is an index for each dimension, and at least one.
    """
    if not indices or len(indices) != len(shape):
        raise InvalidShapeError(f"expected an index for each of {len(shape)} dimensions, found {len(indices)}")
    place = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        place = place * extent + index
    return place


def unravel_index(idx: Extent, shape: Shape) -> list[Extent]:
    """The indices of the element at a place, as `ravel_index` counts places."""
    indices: list[Extent] = []
    for extent in reversed(shape):
        indices.append(ops.floormod(idx, extent))
        idx = ops.floordiv(idx, extent)
    return indices[::-1]
