"""Images resized and sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..... import te
from .....ir import operators as ops
from .....ir.expr import PrimExpr, Select
from .....runtime.error import UnsupportedError
from .....tir import op as tir_op
from .... import op
from ....expr import Expr
from ...resize import RESIZE2D_METHODS, cubic_weights, linear_weights, resize_axis, scaled_extent
from ..context import Context
from ..registry import converter


@converter("Upsample")
def upsample_attribute(g: Context, x: Expr, *, scales: Sequence[float], mode: str = "nearest") -> Expr:
    """An image larger by factors."""
    return _resized(g, x, Resizing(mode=mode, transformation="asymmetric", rounding="floor"), list(scales), None)


@converter("Upsample", since=9)
def upsample(g: Context, x: Expr, scales: Expr, *, mode: str = "nearest") -> Expr:
    """An image larger by factors."""
    factors = g.constant_array(scales, "the scales of Upsample").tolist()
    return upsample_attribute(g, x, scales=factors, mode=mode)


@converter("Resize", since=10)
def resize_by_factors(g: Context, x: Expr, scales: Expr, *, mode: str = "nearest") -> Expr:
    """An image larger or smaller by factors."""
    factors = g.constant_array(scales, "the scales of Resize").tolist()
    return _resized(g, x, Resizing(mode=mode, transformation="asymmetric", rounding="floor"), factors, None)


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
    if coordinate_transformation_mode == "tf_crop_and_resize":
        parts = g.constant_array(roi, "roi of Resize").tolist() if roi is not None else []
        if len(parts) != 2 * len(dims):
            raise UnsupportedError("tf_crop_and_resize needs a start and an end for each dimension in roi")
        options.crop = dict(zip(dims, zip(parts[: len(dims)], parts[len(dims) :], strict=True), strict=True))
    factors: list[float] | None = None
    given = None if scales is None else g.array(scales)
    if scales is not None and g.shape(scales) != [0]:
        if given is None:
            raise UnsupportedError("the scales of Resize must be known while compiling; make them an initializer")
        factors = [1.0] * ndim
        for dim, factor in zip(dims, given.tolist(), strict=True):
            factors[dim] = factor
        return _resized(g, x, options, factors, None)
    if sizes is None:
        raise UnsupportedError("Resize needs scales or sizes")
    whole: list[Any] = g.shape(x)
    wanted = g.extents(sizes, "the sizes of Resize")
    if keep_aspect_ratio_policy != "stretch":
        limits = [
            g.static(w, "a size") / g.static(whole[d], "the extent of an image")
            for d, w in zip(dims, wanted, strict=True)
        ]
        factor = min(limits) if keep_aspect_ratio_policy == "not_larger" else max(limits)
        factors = [factor if d in dims else 1.0 for d in range(ndim)]
        wanted = [math.floor(factor * g.static(whole[d], "an extent") + 0.5) for d in dims]
    for dim, size in zip(dims, wanted, strict=True):
        whole[dim] = size
    return _resized(g, x, options, factors, whole)


class Resizing:
    """How an image is resized; the words are those of ONNX."""

    def __init__(
        self,
        mode: str,
        transformation: str,
        rounding: str,
        alpha: float = -0.75,
        exclude: int = 0,
        outside: float = 0.0,
        antialias: int = 0,
    ):
        self.mode, self.transformation, self.rounding, self.alpha = mode, transformation, rounding, alpha
        self.exclude, self.outside, self.antialias = exclude, outside, antialias
        self.crop: dict[int, tuple[float, float]] = {}
        if mode not in RESIZE2D_METHODS:
            raise UnsupportedError(f"expected a mode of {', '.join(RESIZE2D_METHODS)}, found {mode!r}")


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
        places = _coordinates(old[dim], sizes[dim], factor, options, dim)
        x = resize_axis(g, x, dim, *_sources(places, old[dim], factor, options))
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


def _coordinates(old: int, new: int, factor: float, options: Resizing, dim: int) -> np.ndarray:
    """The source coordinate of each new element."""
    at = np.arange(new, dtype=np.float64)
    mode, length = options.transformation, factor * old
    if mode == "asymmetric":
        return at / factor
    if mode == "align_corners":
        return at * (old - 1) / (length - 1) if new > 1 else np.zeros(new)
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / factor - 0.5 if new > 1 else np.zeros(new)
    if mode == "half_pixel":
        return (at + 0.5) / factor - 0.5
    if mode == "half_pixel_symmetric":
        adjustment = new / length
        return (old / 2) * (1 - adjustment) + (at + 0.5) / factor - 0.5
    if mode == "tf_crop_and_resize":
        start, end = options.crop.get(dim, (0.0, 1.0))
        if new > 1:
            return start * (old - 1) + at * (end - start) * (old - 1) / (length - 1)
        return np.full(new, 0.5 * (start + end) * (old - 1))
    raise UnsupportedError(f"the coordinate_transformation_mode {mode!r}")


def _nearest(places: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "floor":
        return np.floor(places)
    if rounding == "ceil":
        return np.ceil(places)
    if rounding == "round_prefer_floor":
        return np.ceil(places - 0.5)
    if rounding == "round_prefer_ceil":
        return np.floor(places + 0.5)
    raise UnsupportedError(f"the nearest_mode {rounding!r}")


def _sources(places: np.ndarray, old: int, factor: float, options: Resizing) -> tuple[np.ndarray, np.ndarray | None]:
    """The indices of the elements that each new element is the sum of, a row for each, and their weights, if not 1."""
    if options.mode == "nearest":
        return np.clip(_nearest(places, options.rounding), 0, old - 1).astype(np.int64)[:, None], None
    narrow = min(factor, 1.0) if options.antialias else 1.0
    radius = math.ceil((2.0 if options.mode == "cubic" else 1.0) / narrow)
    count, first = 2 * radius, np.floor(places) - radius + 1
    index = first[:, None] + np.arange(count)
    distance = (index - places[:, None]) * narrow
    weights = cubic_weights(distance, options.alpha) if options.mode == "cubic" else linear_weights(distance)
    if options.exclude or options.antialias:
        if options.exclude:
            weights = np.where((index >= 0) & (index < old), weights, 0.0)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(index, 0, old - 1).astype(np.int64), weights


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
