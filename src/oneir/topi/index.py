"""Shapes, axes and indices, as all operators check and compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arith import Analyzer
from ..ir import operators as ops
from ..ir.expr import PrimExpr, as_int, const
from ..runtime.error import InvalidValue, ShapeMismatch

Extent = int | PrimExpr
"""A number of elements, which may be symbolic."""

Shape = Sequence[Extent]

Axes = int | Sequence[int] | None
"""One axis, several, or (None) all; negative ones count from the end."""

Sizes = Extent | Sequence[Extent]
"""One number for all of some dimensions, or one for each."""

Padding = Sizes | str
"""Numbers of elements that are added at the ends of dimensions; "VALID" for none, "SAME" to keep extents."""


def constants(values: Any) -> list[int] | None:
    """The values of integer constants; None if one of them is no constant."""
    found = [as_int(v) for v in values]
    return None if None in found else [v for v in found if v is not None]


def require_int(value: Any, function: str, what: str) -> int:
    """The value of an argument that must be known when compiling."""
    found = as_int(value)
    if found is None:
        raise InvalidValue(f"topi.{function}: expected a constant integer for {what}, found {value}")
    return found


def require_axis(axis: Any, ndim: int, function: str, what: str = "axis") -> int:
    """An axis in [-ndim, ndim) as one in [0, ndim)."""
    found = require_int(axis, function, what)
    if not -ndim <= found < ndim:
        raise InvalidValue(f"topi.{function}: expected {what} in [{-ndim}, {ndim}), found {found}")
    return found % ndim


def require_ndim(tensor: Any, ndim: int, function: str, what: str) -> None:
    """Raises `ShapeMismatch` for a tensor of another number of dimensions."""
    if len(tensor.shape) != ndim:
        raise ShapeMismatch(
            f"topi.{function}: expected {what} of {ndim} dimensions, found the shape {shape_text(tensor.shape)}"
        )


def shape_text(shape: Shape) -> str:
    """A shape as messages show it."""
    inner = ", ".join(str(d) for d in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def is_equal(a: Any, b: Any) -> bool:
    """Whether two extents are provably the same."""
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return x == y
    return ops.same_expr(a, b) or as_int(Analyzer().simplify(ops.subtract(a, b))) == 0


def is_one(extent: Any) -> bool:
    """Whether an extent is the constant 1."""
    return as_int(extent) == 1


def is_empty(shape: Shape) -> bool:
    """Whether an extent is the constant 0."""
    return any(as_int(d) == 0 for d in shape)


def size_of(shape: Shape) -> PrimExpr:
    """The number of elements."""
    size = const(1)
    for extent in shape:
        size = ops.multiply(size, extent)
    return size


def ravel(indices: Sequence[Any], shape: Shape) -> Any:
    """The position in row-major order of the element at the indices."""
    if not indices:
        return const(0)
    position = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        position = ops.add(ops.multiply(position, extent), index)
    return position


def unravel(position: Any, shape: Shape) -> list[Any]:
    """The indices of the element at a position in row-major order; of a shape without elements, any."""
    if is_empty(shape):
        return [const(0)] * len(shape)
    indices = []
    for extent in reversed(list(shape)):
        indices.append(ops.floormod(position, extent))
        position = ops.floordiv(position, extent)
    return indices[::-1]


def broadcast_shape(a: Any, b: Any, function: str) -> list[PrimExpr]:
    """The shape that two shapes broadcast to, by NumPy's rules; an unknown extent is taken to fit a known one."""
    short, long = sorted((list(a), list(b)), key=len)
    shape = long[: len(long) - len(short)]
    for x, y in zip(a[len(a) - len(short) :], b[len(b) - len(short) :], strict=True):
        shape.append(_common_extent(x, y, a, b, function))
    return shape


def _common_extent(x: PrimExpr, y: PrimExpr, a: Any, b: Any, function: str) -> PrimExpr:
    dtype = x.dtype if x.dtype.bits >= y.dtype.bits else y.dtype
    known_x, known_y = as_int(x), as_int(y)
    if is_equal(x, y) or known_y == 1:
        common = x
    elif known_x == 1:
        common = y
    elif known_x is None and known_y is None:
        common = ops.maximum(x, y)
    elif known_x is None:
        common = y
    elif known_y is None:
        common = x
    else:
        raise ShapeMismatch(
            f"topi.{function}: the shapes {shape_text(a)} and {shape_text(b)} do not broadcast: "
            f"{known_x} meets {known_y}; make them equal, or one of them 1"
        )
    return ops.cast(dtype, common)


def broadcast_index(indices: Sequence[Any], shape: Shape, common: Any) -> list[Any]:
    """The indices of a tensor of `shape` for the element at `indices` of the shape that it is broadcast to."""
    skipped = len(common) - len(shape)
    return [
        const(0, index.dtype) if is_one(extent) and not is_one(target) else index
        for index, extent, target in zip(indices[skipped:], shape, common[skipped:], strict=True)
    ]
