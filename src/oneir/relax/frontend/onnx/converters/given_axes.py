"""Axes that are known only when the model runs: tensors brought to forms whose axes are known, of symbolic extents."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr, Select, as_int, const
from .....topi import tag
from ....expr import Expr, ShapeExpr
from ..context import Context


def given_axes(g: Context, axes: Expr, what: str) -> list[int] | None:
    """The axes that a tensor has; None if they are known only when the model runs."""
    if g.elements(axes) is not None:
        return g.constant_ints(axes, what)
    return [] if math.prod(g.static_shape(axes, f"how many elements {what} have")) == 0 else None


def spread_along(g: Context, x: Expr, axes: Expr, what: str) -> tuple[Expr, list[Any], list[Any]]:
    """A tensor with each dimension as two: of those on the axes the first has extent 1, of the others the second.

    All first ones come before all second ones, so that what is along the axes are the last dimensions. Also gives the
    extents of all first ones, and those of the dimensions that are not on the axes.
    """
    ndim = g.ndim(x)
    count = math.prod(g.static_shape(axes, f"how many elements {what} have"))
    numbers = g.te(_split_extents, g.reshaped(axes, [count]), ShapeExpr(g.shape(x)), name="split_extents")
    extents = g.extents(numbers, what)
    whole, parts = extents[:ndim], extents[ndim : 2 * ndim]
    return g.te(_spread, x, ShapeExpr(whole), ShapeExpr(parts)), whole, extents[2 * ndim :]


def around(g: Context, x: Expr, axis: Expr, what: str) -> Expr:
    """A tensor with three dimensions: all before an axis, the axis, and all after it."""
    numbers = g.te(_around_extents, g.reshaped(axis, [1]), ShapeExpr(g.shape(x)), name="around_extents")
    return g.reshaped(x, g.extents(numbers, what))


def _around_extents(axis: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    one = const(1, "int64")

    def extent(at: PrimExpr) -> PrimExpr:
        place = ops.floormod(axis(0).astype("int64"), len(shape))
        total: PrimExpr = one
        for i, size in enumerate(shape):
            # Of the three extents, the one to which this dimension belongs.
            part = Select(place > i, one - 1, Select(place < i, one + 1, one))
            total = total * Select(at.equal(part), size, one)
        return total

    return te.compute((3,), extent, name="around_extents")


def _split_extents(axes: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """The extents of a result with all dimensions, the extents that are reduced, and those of a result without them."""
    ndim, count = len(shape), as_int(axes.shape[0]) or 0
    one = const(1, "int64")

    def extent(at: PrimExpr) -> PrimExpr:
        given = [ops.floormod(axes(i).astype("int64"), ndim) for i in range(count)]
        reduced = [functools.reduce(ops.logical_or, (a.equal(i) for a in given)) for i in range(ndim)]
        chosen: PrimExpr = one
        before: PrimExpr = const(2 * ndim, "int64")
        for i, size in enumerate(shape):
            chosen = Select(ops.logical_and(at.equal(i), ops.logical_not(reduced[i])), size, chosen)
            chosen = Select(ops.logical_and(at.equal(ndim + i), reduced[i]), size, chosen)
            chosen = Select(ops.logical_and(before.equal(at), ops.logical_not(reduced[i])), size, chosen)
            before = before + Select(reduced[i], one - 1, one)
        return chosen

    return te.compute((3 * ndim - count,), extent, name="split_extents")


def _spread(x: te.Tensor, whole: Sequence[Any], parts: Sequence[Any]) -> te.Tensor:
    """A tensor with each dimension as two, of which one has extent 1."""
    ndim = x.ndim
    return te.compute(
        [*whole, *parts], lambda *ax: x(*(ax[i] + ax[ndim + i] for i in range(ndim))), name="spread", tag=tag.INJECTIVE
    )
