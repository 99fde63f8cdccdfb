"""Images sampled where a grid says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from ..index import is_equal, require_int, require_ndim, shape_text
from .cubic import cubic_weights


def affine_grid(data: Tensor, target_shape: Sequence[int], align_corners: bool = True) -> Tensor:
    """The points to sample for affine maps of images, two coordinates from -1 to 1 for each element of the result.

    `data` has a matrix of 2×3 for each image, and the result the shape (batch, 2, height, width). -1 and 1 are the
    centers of the outermost elements, or without `align_corners` the borders of the image.
    """
    require_ndim(data, 3, "image.affine_grid", "matrices")
    sizes = [require_int(s, "image.affine_grid", "target_shape") for s in target_shape]
    if len(sizes) != 2 or min(sizes) < 2:
        raise InvalidValue(f"topi.image.affine_grid: expected a height and a width of at least 2, found {sizes}")
    if align_corners:
        # A little less than the whole way, so that rounding does not lead out of the image.
        steps, starts = [(2.0 - 1e-7) / (s - 1) for s in sizes], [-1.0, -1.0]
    else:
        steps, starts = [2.0 / s for s in sizes], [1.0 / s - 1.0 for s in sizes]

    def coordinate(index: PrimExpr, d: int) -> PrimExpr:
        return ops.add(const(starts[d], data.dtype), ops.multiply(index, const(steps[d], data.dtype)))

    def element(n: PrimExpr, dim: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        y, x = coordinate(i, 0), coordinate(j, 1)
        return data(n, dim, 0) * x + data(n, dim, 1) * y + data(n, dim, 2)

    return te.compute((data.shape[0], 2, *sizes), element, tag="affine_grid")


class _Sampler:
    """One axis of the image: from the coordinates of a grid to indices."""

    def __init__(self, extent: Any, padding_mode: str, align_corners: bool):
        self.extent, self.padding_mode, self.align_corners = extent, padding_mode, align_corners

    def position(self, coordinate: PrimExpr) -> PrimExpr:
        """The place in the image of a coordinate from -1 to 1."""
        shifted = coordinate + 1.0
        if self.align_corners:
            return shifted * ops.cast(coordinate.dtype, ops.subtract(self.extent, 1)) / 2.0
        return shifted * ops.cast(coordinate.dtype, self.extent) / 2.0 - 0.5

    def inside(self, position: PrimExpr) -> PrimExpr:
        """A place or an index moved into the image, as the padding mode says."""
        if self.padding_mode == "zeros":
            return position
        moved = self.reflected(position) if self.padding_mode == "reflection" else position
        return ops.minimum(ops.maximum(moved, 0), ops.subtract(self.extent, 1))

    def reflected(self, position: PrimExpr) -> PrimExpr:
        """A place mirrored at the borders as often as it takes."""
        span = ops.subtract(self.extent, 1) if self.align_corners else self.extent
        begin = 0.0 if self.align_corners else -0.5
        if as_int(span) == 0:
            return ops.multiply(position, 0)
        wide = position if position.dtype.is_float else ops.cast("float32", position)
        size = ops.cast(wide.dtype, span)
        distance = tir_op.abs(ops.subtract(begin, wide))
        turns = tir_op.floor(ops.divide(distance, size))
        extra = distance - turns * size
        even = ops.equal(turns - tir_op.floor(turns / 2.0) * 2.0, 0.0)
        mirrored = tir_op.if_then_else(even, extra + begin, size - extra + begin)
        return ops.cast(position.dtype, mirrored)


def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Tensor:
    """`data` at the places that `grid` gives: grid[n, :, y, x] are x and y, from -1 to 1, for the result's y and x.

    -1 and 1 are the centers of the outermost elements, or without `align_corners` the borders of the image. Outside of
    it are "zeros", the "border", or its mirror image ("reflection"). `method` is "nearest", "bilinear" or, of layout
    NCHW, "bicubic"; the layout NCDHW is that of volumes, whose grid gives x, y and z.
    """
    count = {"NCHW": 2, "NCDHW": 3}.get(layout)
    if count is None:
        raise InvalidValue(f"topi.image.grid_sample: expected the layout NCHW or NCDHW, found {layout!r}")
    methods = ("nearest", "bilinear", "bicubic") if count == 2 else ("nearest", "bilinear")
    if method not in methods or padding_mode not in ("zeros", "border", "reflection"):
        raise InvalidValue(
            f"topi.image.grid_sample: expected a method of {methods} and a padding_mode of "
            f"('zeros', 'border', 'reflection'), found {method!r} and {padding_mode!r}"
        )
    if data.ndim != count + 2 or grid.ndim != count + 2 or not is_equal(grid.shape[1], count):
        raise ShapeMismatch(
            f"topi.image.grid_sample: expected data of {count + 2} dimensions and a grid of shape (n, {count}, ...), "
            f"found {shape_text(data.shape)} and {shape_text(grid.shape)}"
        )
    samplers = [_Sampler(extent, padding_mode, align_corners) for extent in data.shape[2:]]

    def element(*i: PrimExpr) -> PrimExpr:
        n, c, *rest = i
        # The grid's coordinates begin with the innermost axis.
        places = [s.position(grid(n, count - 1 - d, *rest)) for d, s in enumerate(samplers)]
        if method != "bicubic":
            places = [s.inside(p) for s, p in zip(samplers, places, strict=True)]

        def pixel(indices: list[PrimExpr]) -> PrimExpr:
            inside = const(True)
            for index, extent in zip(indices, data.shape[2:], strict=True):
                inside = ops.logical_and(inside, tir_op.all(ops.greater_equal(index, 0), ops.less(index, extent)))
            return tir_op.if_then_else(inside, data(n, c, *indices), const(0, data.dtype))

        if method == "nearest":
            return pixel([ops.cast("int32", tir_op.nearbyint(p)) for p in places])
        lines = [_line(s, p, method) for s, p in zip(samplers, places, strict=True)]
        return ops.cast(data.dtype, _weighted(lines, [], pixel))

    return te.compute((*data.shape[:2], *grid.shape[2:]), element, tag="grid_sample")


def _line(sampler: _Sampler, place: PrimExpr, method: str) -> tuple[list[PrimExpr], list[PrimExpr]]:
    """The indices around a place, and their weights."""
    first = ops.cast("int32", tir_op.floor(place))
    behind = ops.subtract(place, first)
    if method == "bilinear":
        return [first, first + 1], [1.0 - behind, behind]
    return [sampler.inside(first + (i - 1)) for i in range(4)], cubic_weights(behind, -0.75)


def _weighted(lines: list[tuple[list[PrimExpr], list[PrimExpr]]], chosen: list[PrimExpr], pixel: Any) -> PrimExpr:
    if not lines:
        return pixel(chosen)
    (indices, weights), *inner = lines
    total = None
    for index, weight in zip(indices, weights, strict=True):
        part = ops.multiply(_weighted(inner, [*chosen, index], pixel), weight)
        total = part if total is None else ops.add(total, part)
    assert total is not None
    return total
