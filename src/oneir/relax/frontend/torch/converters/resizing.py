"""Resizing of images, of one to three dimensions."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from ..... import topi
from .....runtime.error import UnsupportedError
from .....topi.image.resize_table import cubic_weights, linear_weights
from .... import op
from ....expr import Expr
from ...resize import RESIZE2D_METHODS, resize_axis, scaled_extent
from ..dtypes import is_float
from ..importer import Importer
from ..registry import NotDecomposable, converter, find_converter
from .convolution import per_axis

_RADIUS = {"nearest": 0, "nearest-exact": 0, "linear": 1, "cubic": 2}
"""The number of elements on each side that an interpolation uses."""


def _sources(
    extent: int, new: int, factor: float | None, kind: str, align_corners: bool, antialias: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """The indices of the elements that each new element is the sum of, a row for each, and their weights, if not 1.

    Places are computed in float32, as PyTorch does.
    """
    if align_corners:
        step = np.float32((extent - 1) / (new - 1) if new > 1 else 0)
    else:
        step = np.float32(1 / factor if factor else extent / new)
    place = np.arange(new, dtype="float32")
    if kind == "nearest":
        return np.minimum((place * step).astype("int64"), extent - 1)[:, None], None
    if kind == "nearest-exact":
        return np.minimum(((place + np.float32(0.5)) * step).astype("int64"), extent - 1)[:, None], None
    from_corners = align_corners and not antialias
    source = place * step if from_corners else (place + np.float32(0.5)) * step - np.float32(0.5)
    weight = partial(cubic_weights, a=-0.5 if antialias else -0.75) if kind == "cubic" else linear_weights
    radius = float(_RADIUS[kind])
    if antialias:
        scale, exact = max(float(step), 1.0), source.astype("float64")
        first = np.maximum((exact + 0.5 - radius * scale + 0.5).astype("int64"), 0)
        last = np.minimum((exact + 0.5 + radius * scale + 0.5).astype("int64"), extent)
        indices = first[:, None] + np.arange((last - first).max())
        weights = np.where(indices < last[:, None], weight((indices - exact[:, None]) / scale), 0.0)
        return np.minimum(indices, extent - 1), weights / weights.sum(1, keepdims=True)
    if kind == "linear":
        source = np.maximum(source, np.float32(0))
    indices = np.floor(source).astype("int64")[:, None] + np.arange(1 - int(radius), int(radius) + 1)
    return np.clip(indices, 0, extent - 1), weight(indices - source[:, None].astype("float64"))


def resize(
    g: Importer, x: Expr, size: Any, factors: Any, kind: str, align_corners: bool = False, antialias: bool = False
) -> Expr:
    """Images (batch, channels, ...) resized to `size`, or by `factors`; PyTorch may give both.

    Coordinates are divided by the factor, also where the extent of the result was rounded.
    """
    rank = g.ndim(x) - 2
    if not is_float(g.dtype(x)) and _RADIUS[kind]:
        raise NotDecomposable("integers are resized by their nearest neighbours only; convert them to floats")
    extents = g.shape(x)[2:]
    factors = [None] * rank if factors is None else [None if f is None else float(f) for f in per_axis(factors, rank)]
    if size is None and g.expected is not None:
        size = g.expected[2:]
    elif size is None:
        size = [scaled_extent(g, e, f) for e, f in zip(extents, factors, strict=True)]
    size = per_axis(size, rank)
    exact = align_corners or all(map(partial(_is_exact, g), extents, factors, size))
    if rank == 2 and exact and kind in RESIZE2D_METHODS and not antialias:
        return _resize2d(g, x, size, RESIZE2D_METHODS[kind], align_corners)
    for axis, (extent, new, factor) in enumerate(zip(extents, size, factors, strict=True), 2):
        known = g.static(extent, f"the extent of an image that is resized by mode={kind!r}"), g.static(new, "a size")
        if known[0] != known[1] or factor is not None:
            x = resize_axis(g, x, axis, *_sources(*known, factor, kind, align_corners, antialias))
    return x


def _is_exact(g: Importer, extent: Any, factor: float | None, new: Any) -> bool:
    """Whether a new extent is the old one times the factor, without rounding."""
    if factor is None:
        return True
    ratio = Fraction(factor)
    return g.block_builder.analyzer.can_prove_equal(extent * ratio.numerator, new * ratio.denominator)


def _resize2d(g: Importer, x: Expr, size: Any, method: str, align_corners: bool) -> Expr:
    if method == "nearest_neighbor":
        coordinates = "asymmetric"
    else:
        coordinates = "align_corners" if align_corners else "half_pixel"
    options: dict[str, Any] = {"rounding_method": "floor"} if method == "nearest_neighbor" else {}
    return g.emit(
        op.image.resize2d(
            x,
            tuple(size),
            layout="NCHW",
            method=method,
            coordinate_transformation_mode=coordinates,
            **options,
        )
    )


def _nearest(name: str, kind: str) -> None:
    """ATen's operators with factors for all dimensions ("vec"), and with one for each."""

    def given_both(g: Importer, x: Expr, output_size: Any, scale_factors: Any = None) -> Expr:
        return resize(g, x, output_size, scale_factors, kind)

    def given_size(g: Importer, x: Expr, output_size: Any, *scales: Any) -> Expr:
        return resize(g, x, output_size, list(scales) or None, kind)

    converter(f"{name}.vec")(given_both)
    converter(name)(given_size)


def _smooth(name: str, kind: str, antialias: bool = False) -> None:
    def given_both(g: Importer, x: Expr, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Expr:
        return resize(g, x, output_size, scale_factors, kind, align_corners, antialias)

    def given_size(g: Importer, x: Expr, output_size: Any, align_corners: bool, *scales: Any) -> Expr:
        return resize(g, x, output_size, list(scales) or None, kind, align_corners, antialias)

    converter(f"{name}.vec")(given_both)
    converter(name)(given_size)


for _rank in (1, 2, 3):
    _nearest(f"upsample_nearest{_rank}d", "nearest")
    _nearest(f"_upsample_nearest_exact{_rank}d", "nearest-exact")
for _name in ("linear1d", "bilinear2d", "trilinear3d"):
    _smooth(f"upsample_{_name}", "linear")
_smooth("upsample_bicubic2d", "cubic")
_smooth("_upsample_bilinear2d_aa", "linear", antialias=True)
_smooth("_upsample_bicubic2d_aa", "cubic", antialias=True)

_KINDS = {
    "nearest": "nearest",
    "nearest-exact": "nearest-exact",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}


@converter("interpolate", "upsample")
def interpolate(
    g: Importer,
    x: Expr,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Expr:
    """Images resized, with the arguments of `torch.nn.functional.interpolate`."""
    rank = g.ndim(x) - 2
    if size is None and (recompute_scale_factor or mode == "area"):
        size = [scaled_extent(g, e, f) for e, f in zip(g.shape(x)[2:], per_axis(scale_factor, rank), strict=True)]
    if mode == "area":
        pool = find_converter(f"adaptive_avg_pool{rank}d")
        assert pool is not None
        return pool(g, x, size)
    if mode not in _KINDS:
        raise UnsupportedError(f"interpolate with mode={mode!r}; modes are area, {', '.join(_KINDS)}")
    factor = None if size is not None else scale_factor
    return resize(g, x, size, factor, _KINDS[mode], bool(align_corners), antialias)


_METHODS = ("bilinear", "nearest", "bicubic")
_OUTSIDE = ("zeros", "border", "reflection")


@converter("grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback")
def grid_sampler(
    g: Importer, x: Expr, grid: Expr, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Expr:
    """Images or volumes sampled at the coordinates of a grid (n, ..., coordinates), from -1 to 1."""
    rank = g.ndim(x) - 2
    points = g.emit(op.permute_dims(grid, [0, rank + 1, *range(1, rank + 1)]))
    method, outside = _METHODS[interpolation_mode], _OUTSIDE[padding_mode]
    layout = "NCHW" if rank == 2 else "NCDHW"
    return g.emit(g.block_builder.call_te(topi.image.grid_sample, x, points, method, layout, outside, align_corners))


@converter("grid_sample")
def grid_sample(
    g: Importer,
    x: Expr,
    grid: Expr,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Expr:
    """The same, with the arguments of `torch.nn.functional.grid_sample`."""
    if mode not in _METHODS or padding_mode not in _OUTSIDE:
        raise UnsupportedError(f"grid_sample with mode={mode!r} and padding_mode={padding_mode!r}")
    return grid_sampler(g, x, grid, _METHODS.index(mode), _OUTSIDE.index(padding_mode), bool(align_corners))
