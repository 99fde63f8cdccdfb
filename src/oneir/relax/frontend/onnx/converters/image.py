"""Images resized and sampled."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr, Select
from .....runtime.error import UnsupportedError
from .....tir import op as tir_op
from .....topi.image.resize_table import RESIZE_TABLE, Resizing, coordinates, fitting_factor, rounded_size, sources
from .... import op
from ....expr import Expr, ExternFunc, ShapeExpr, StringImm, const
from ....op import call_pure_packed
from ....struct_info import TensorStructInfo, TupleStructInfo
from ...resize import RESIZE2D_METHODS, resize_axis, scaled_extent
from ..context import Context
from ..dtypes import is_float
from ..registry import converter


@converter("Upsample")
def upsample_attribute(g: Context, x: Expr, *, scales: Sequence[float], mode: str = "nearest") -> Expr:
    """An image larger by factors."""
    return _resized(g, x, Resizing(mode=mode, transformation="asymmetric", rounding="floor"), list(scales), None)


@converter("Upsample", since=9)
def upsample(g: Context, x: Expr, scales: Expr, *, mode: str = "nearest") -> Expr:
    """An image larger by factors."""
    return resize_by_factors(g, x, scales, mode=mode)


@converter("Resize", since=10)
def resize_by_factors(g: Context, x: Expr, scales: Expr, *, mode: str = "nearest") -> Expr:
    """An image larger or smaller by factors."""
    options, factors = Resizing(mode=mode, transformation="asymmetric", rounding="floor"), g.array(scales)
    if factors is None:
        return _resized_by_tables(g, x, options, list(range(g.ndim(x))), scales, None)
    return _resized(g, x, options, factors.tolist(), None)


@converter("Resize", since=11)
def resize(
    g: Context,
    x: Expr,
    roi: Expr | None = None,
    scales: Expr | None = None,
    sizes: Expr | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Expr:
    """An image in another size."""
    ndim = g.ndim(x)
    dims = list(range(ndim)) if axes is None else [g.axis(a, ndim) for a in axes]
    options = Resizing(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
        antialias,
    )
    by_factors = scales is not None and g.shape(scales) != [0]
    numbers = scales if by_factors else sizes
    if numbers is None:
        raise UnsupportedError("Resize needs scales or sizes")
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if crops and (roi is None or g.shape(roi) != [2 * len(dims)]):
        raise UnsupportedError("tf_crop_and_resize needs a start and an end for each dimension in roi")
    parts = None if roi is None or not crops else g.array(roi)
    later = (by_factors and g.array(numbers) is None) or (crops and parts is None)
    whole: list[Any] = g.shape(x)
    if not later and not by_factors:
        wanted = g.elements(numbers)
        symbolic = wanted is None or not all(isinstance(e, int) for e in wanted.tolist())
        later = symbolic and (keep_aspect_ratio_policy != "stretch" or not _is_simple(options, dims, ndim))
    if later:
        policy = None if by_factors else keep_aspect_ratio_policy
        return _resized_by_tables(g, x, options, dims, numbers, policy, roi if crops else None)
    if parts is not None:
        starts, ends = parts.tolist()[: len(dims)], parts.tolist()[len(dims) :]
        options.crop = dict(zip(dims, zip(starts, ends, strict=True), strict=True))
    if by_factors:
        factors = [1.0] * ndim
        for dim, factor in zip(dims, g.constant_array(numbers, "the scales of Resize").tolist(), strict=True):
            factors[dim] = factor
        return _resized(g, x, options, factors, None)
    wanted = g.extents(numbers, "the sizes of Resize")
    factors = None
    if keep_aspect_ratio_policy != "stretch":
        old = [g.static(whole[d], "the extent of an image") for d in dims]
        factor = fitting_factor(old, wanted, keep_aspect_ratio_policy)
        assert factor is not None
        factors = [factor if d in dims else 1.0 for d in range(ndim)]
        wanted = [rounded_size(e, factor) for e in old]
    for dim, size in zip(dims, wanted, strict=True):
        whole[dim] = size
    return _resized(g, x, options, factors, whole)


def _is_simple(options: Resizing, dims: Sequence[int], ndim: int) -> bool:
    """Whether loops resize to symbolic extents without tables."""
    if options.mode == "nearest" and options.transformation in _FRACTIONS:
        return True
    return ndim == 4 and set(dims) <= {2, 3} and not options.antialias


def _resized_by_tables(
    g: Context,
    x: Expr,
    options: Resizing,
    dims: Sequence[int],
    numbers: Expr,
    policy: str | None,
    roi: Expr | None = None,
) -> Expr:
    """An image in a size that is known only when the model runs, dimension by dimension, by tables that are made then.

    `numbers` are sizes, of a policy of proportions, or with the policy None factors.
    """
    dtype, ndim = g.dtype(x), g.ndim(x)
    words = [policy is not None, policy, options.mode, options.transformation, options.rounding, options.alpha]
    words += [options.exclude, options.outside, options.antialias]
    part = const(np.zeros(0), "float32") if roi is None else roi
    old = ShapeExpr([g.shape(x)[d] for d in dims])
    infos = [TensorStructInfo(dtype=t, ndim=n) for t, n in (("int64", 2), ("float32", 2), ("bool", 1))]
    x = x if is_float(dtype) or options.mode == "nearest" else g.cast(x, "float32")
    for i, dim in enumerate(dims):
        made = call_pure_packed(
            ExternFunc(RESIZE_TABLE),
            StringImm(json.dumps([i, *words])),
            old,
            numbers,
            part,
            sinfo_args=TupleStructInfo(infos),
        )
        new, count = g.symbols.fresh_extent(), g.symbols.fresh_extent()
        shapes = [[new, count], [new, count], [new]]
        indices, weights, inside = (
            g.block_builder.match_cast(table, TensorStructInfo(shape, info.dtype))
            for table, shape, info in zip(g.fields(made), shapes, infos, strict=True)
        )
        if options.mode == "nearest":
            x = g.emit(op.take(x, g.reshaped(g.emit(op.strided_slice(indices, [1], [0], [1])), [new]), dim))
        else:
            x = g.te(_te_weighted, x, indices, g.cast(weights, g.dtype(x)), dim, name="resize")
        if roi is not None:
            x = g.emit(op.where(g.along(inside, dim, ndim), x, g.like(options.outside, x)))
    return g.cast(x, dtype)


def _te_weighted(data: te.Tensor, indices: te.Tensor, weights: te.Tensor, dim: int) -> te.Tensor:
    """Sums of elements along a dimension, times their weights."""
    each = te.reduce_axis((0, indices.shape[1]), "each")

    def element(*at: PrimExpr) -> PrimExpr:
        place = [*at[:dim], indices(at[dim], each.var), *at[dim + 1 :]]
        return te.sum(data(*place) * weights(at[dim], each.var), axis=each)

    return te.compute([*data.shape[:dim], indices.shape[0], *data.shape[dim + 1 :]], element, name="resize")


def _resized(g: Context, x: Expr, options: Resizing, factors: list[float] | None, sizes: list[Any] | None) -> Expr:
    old = g.shape(x)
    if sizes is None:
        assert factors is not None
        sizes = [scaled_extent(g, e, f) for e, f in zip(old, factors, strict=True)]
    changed = [d for d, (a, b) in enumerate(zip(old, sizes, strict=True)) if not g.same(a, b) or d in options.crop]
    changed = [d for d in changed if not (g.same(old[d], sizes[d]) and options.crop.get(d) == (0.0, 1.0))]
    if not changed:
        return x
    numbers = all(isinstance(e, int) for d in changed for e in (old[d], sizes[d]))
    if not numbers and options.mode == "nearest" and options.transformation in _FRACTIONS and not options.crop:
        return g.te(_te_nearest, x, sizes, options.transformation, options.rounding, name="resize")
    if not numbers or _is_plain(old, sizes, factors, options, changed):
        return _by_operator(g, x, options, sizes, changed)
    for dim in changed:
        factor = sizes[dim] / old[dim] if factors is None else factors[dim]
        places = coordinates(old[dim], sizes[dim], factor, options, options.crop.get(dim, (0.0, 1.0)))
        x = resize_axis(g, x, dim, *sources(places, old[dim], factor, options))
        if options.transformation == "tf_crop_and_resize":
            inside = (places >= 0) & (places <= old[dim] - 1)
            if not inside.all():
                x = g.emit(op.where(g.along(g.constant(inside), dim, g.ndim(x)), x, g.like(options.outside, x)))
    return x


_FRACTIONS: dict[str, Callable[[Any, Any, Any], tuple[Any, Any]]] = {
    "half_pixel": lambda i, old, new: ((2 * i + 1) * old - new, 2 * new),
    "asymmetric": lambda i, old, new: (i * old, new),
    "align_corners": lambda i, old, new: (i * (old - 1), ops.maximum(new - 1, 1)),
}
"""The source coordinate of element `i`, for extents `old` and `new`, as an exact fraction."""


def _te_nearest(data: te.Tensor, sizes: Sequence[Any], transformation: str, rounding: str) -> te.Tensor:
    """The nearest elements, extents symbolic."""

    def place(i: PrimExpr, old: PrimExpr, new: Any) -> PrimExpr:
        above, below = _FRACTIONS[transformation](i, old, new)
        nearest = {
            "floor": lambda: ops.floordiv(above, below),
            "ceil": lambda: -ops.floordiv(-above, below),
            "round_prefer_floor": lambda: -ops.floordiv(below - 2 * above, 2 * below),
            "round_prefer_ceil": lambda: ops.floordiv(2 * above + below, 2 * below),
        }[rounding]()
        return ops.maximum(ops.minimum(nearest, old - 1), 0)

    def element(*index: PrimExpr) -> PrimExpr:
        return data(*[place(i, old, new) for i, old, new in zip(index, data.shape, sizes, strict=True)])

    return te.compute([*sizes], element, name="resize")


def _is_plain(
    old: list[Any], sizes: list[Any], factors: list[float] | None, options: Resizing, changed: list[int]
) -> bool:
    """Whether the operator for images of four dimensions does the same."""
    if len(old) != 4 or not set(changed) <= {2, 3} or options.antialias or options.crop or options.exclude:
        return False
    if options.mode == "cubic" or options.transformation not in ("half_pixel", "align_corners", "asymmetric"):
        return False
    exact = factors is None or all(old[d] * factors[d] == sizes[d] for d in changed)
    return exact and (options.mode == "linear" or all(sizes[d] % old[d] == 0 for d in changed))


def _by_operator(g: Context, x: Expr, options: Resizing, sizes: list[Any], changed: list[int]) -> Expr:
    if len(sizes) != 4 or not set(changed) <= {2, 3} or options.antialias or options.crop:
        raise UnsupportedError(
            "the sizes of Resize must be known while compiling, but for height and width of plain images"
        )
    return g.emit(
        op.image.resize2d(
            x,
            tuple(sizes[2:]),
            layout="NCHW",
            method=RESIZE2D_METHODS[options.mode],
            coordinate_transformation_mode=options.transformation,
            rounding_method=options.rounding,
            cubic_alpha=options.alpha,
            cubic_exclude=options.exclude,
            extrapolation_value=options.outside,
        )
    )


@converter("AffineGrid", since=20)
def affine_grid(g: Context, theta: Expr, size: Expr, *, align_corners: int = 0) -> Expr:
    """The places, from -1 to 1, at which images of a size are sampled: an affine map of those of their pixels."""
    extents = g.extents(size, "the size of AffineGrid")[2:]
    rank, dtype = len(extents), g.dtype(theta)

    def place(index: PrimExpr, extent: Any) -> PrimExpr:
        """Where a pixel lies along a dimension: -1 and 1 are the first and last pixel, or the borders of the image."""
        at, count = ops.cast(dtype, index), ops.cast(dtype, extent)
        if align_corners:
            return Select(ops.equal(extent, 1), ops.cast(dtype, 0), 2 * at / ops.maximum(count - 1, 1) - 1)
        return (2 * at + 1) / count - 1

    def grid(matrix: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        def element(n: PrimExpr, *index: PrimExpr) -> PrimExpr:
            *pixel, i = index
            total = matrix(n, i, rank)
            for j in range(rank):
                # Coordinates come in the order of columns, rows, planes.
                total = total + matrix(n, i, j) * place(pixel[rank - 1 - j], sizes[rank - 1 - j])
            return total

        return te.compute([matrix.shape[0], *sizes, rank], element, name="affine_grid")

    return g.te(grid, theta, extents, name="affine_grid")


@converter("GridSample", since=16)
def grid_sample(
    g: Context, x: Expr, grid: Expr, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Expr:
    """Images sampled at the coordinates of a grid, from -1 to 1."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    rank = g.ndim(x) - 2
    if mode not in ("linear", "nearest", "cubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise UnsupportedError(f"sampling with mode={mode!r}, padding_mode={padding_mode!r}")

    def sampled(data: te.Tensor, points: te.Tensor) -> te.Tensor:
        dtype = data.dtype

        def number(value: float) -> PrimExpr:
            return ops.cast(dtype, value)

        def place(value: PrimExpr, extent: PrimExpr) -> PrimExpr:
            size = ops.cast(dtype, extent)
            if align_corners:
                return (value + 1) * number(0.5) * (size - 1)
            return ((value + 1) * size - 1) * number(0.5)

        def reflected(value: PrimExpr, extent: PrimExpr) -> PrimExpr:
            low = number(0.0) if align_corners else number(-0.5)
            length = ops.cast(dtype, extent) - 1 if align_corners else ops.cast(dtype, extent)
            length = ops.maximum(length, number(1e-6))
            away = tir_op.abs(value - low)
            turns = tir_op.floor(away / length)
            rest = away - turns * length
            odd = ops.equal(ops.floormod(ops.cast("int64", turns), 2), 1)
            return Select(odd, length - rest, rest) + low

        def outer(value: PrimExpr, extent: PrimExpr) -> PrimExpr:
            top = ops.cast(dtype, extent - 1)
            if padding_mode == "reflection":
                value = reflected(value, extent)
            return value if padding_mode == "zeros" else ops.maximum(ops.minimum(value, top), number(0.0))

        def pixel(n: PrimExpr, c: PrimExpr, where: list[PrimExpr]) -> PrimExpr:
            index, inside = [], None
            for at, extent in zip(where, data.shape[2:], strict=True):
                here = outer(at, extent) if mode == "cubic" else at
                i = ops.cast("int64", here)
                if padding_mode == "zeros":
                    fits = ops.logical_and(at >= 0, at <= ops.cast(dtype, extent - 1))
                    inside = fits if inside is None else ops.logical_and(inside, fits)
                index.append(ops.maximum(ops.minimum(i, extent - 1), 0))
            value = data(n, c, *index)
            return value if inside is None else tir_op.if_then_else(inside, value, number(0.0))

        def line(value: PrimExpr) -> list[tuple[PrimExpr, PrimExpr]]:
            """Neighbours along one dimension, and their weights."""
            if mode == "nearest":
                return [(tir_op.nearbyint(value), number(1.0))]
            low = tir_op.floor(value)
            t = value - low
            if mode == "linear":
                return [(low, 1 - t), (low + 1, t)]
            a = number(-0.75)

            def near(d: PrimExpr) -> PrimExpr:
                return ((a + 2) * d - (a + 3)) * d * d + 1

            def far(d: PrimExpr) -> PrimExpr:
                return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

            return [(low - 1, far(t + 1)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]

        def element(n: PrimExpr, c: PrimExpr, *out: PrimExpr) -> PrimExpr:
            lines = []
            for i, extent in enumerate(data.shape[2:]):
                value = place(points(n, *out, rank - 1 - i), extent)
                lines.append(line(value if mode == "cubic" else outer(value, extent)))
            total = number(0.0)
            for choice in np.ndindex(*[len(entries) for entries in lines]):
                chosen = [entries[k] for entries, k in zip(lines, choice, strict=True)]
                term = pixel(n, c, [p for p, _ in chosen])
                for _, weight in chosen:
                    term = term * weight
                total = total + term
            return total

        return te.compute((*data.shape[:2], *points.shape[1:-1]), element, name="grid_sample")

    return g.te(sampled, x, g.cast(grid, g.dtype(x)), name="grid_sample")
