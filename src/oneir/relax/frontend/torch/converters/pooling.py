"""Pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import op
from ....expr import Expr, const
from ..importer import Importer
from ..registry import Refused, converter
from .convolution import batched, per_axis

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool(
    g: Importer, rank: int, x: Expr, function: Callable[..., Expr], kernel: Any, stride: Any, **options: Any
) -> Expr:
    """A pooling over `rank` dimensions, of a batch or a single image."""
    x, single = batched(g, x, rank)
    size = per_axis(kernel, rank)
    strides = size if stride is None or stride in ([], ()) else per_axis(stride, rank)
    out = g.emit(function(x, pool_size=size, strides=strides, layout=_LAYOUT[rank], **options))
    return g.emit(op.squeeze(out, [0])) if single else out


def _register(rank: int) -> None:
    max_pool = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}[rank]
    avg_pool = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}[rank]
    adaptive = {1: op.nn.adaptive_avg_pool1d, 2: op.nn.adaptive_avg_pool2d, 3: op.nn.adaptive_avg_pool3d}[rank]

    def largest(
        g: Importer,
        x: Expr,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Expr:
        if return_indices:
            raise Refused("the indices of max_pool are not computed; leave out return_indices")
        return _pool(
            g,
            rank,
            x,
            max_pool,
            kernel_size,
            stride,
            padding=per_axis(padding, rank),
            dilation=per_axis(dilation, rank),
            ceil_mode=ceil_mode,
        )

    def average(
        g: Importer,
        x: Expr,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Expr:
        around = per_axis(padding, rank)
        if divisor_override is not None and ceil_mode:
            raise Refused("divisor_override together with ceil_mode")
        counted = divisor_override is not None or (count_include_pad and any(around))
        size = per_axis(kernel_size, rank)
        if ceil_mode:
            # Of a window that is larger than the padded image, nothing outside of that counts.
            stride = stride or size
            extents = zip(size, g.shape(x)[-rank:], around, strict=True)
            size = [min(s, e + 2 * p) if isinstance(e, int) else s for s, e, p in extents]
        out = _pool(g, rank, x, avg_pool, size, stride, padding=around, ceil_mode=ceil_mode, count_include_pad=counted)
        if divisor_override is None:
            return out
        elements = 1
        for extent in per_axis(kernel_size, rank):
            elements *= extent
        return g.emit(op.multiply(out, const(elements / divisor_override, g.dtype(out))))

    def adaptive_average(g: Importer, x: Expr, output_size: Any) -> Expr:
        x, single = batched(g, x, rank)
        given = per_axis(output_size, rank)
        size = [extent if s is None else s for s, extent in zip(given, g.shape(x)[2:], strict=True)]
        out = g.emit(adaptive(x, size, layout=_LAYOUT[rank]))
        return g.emit(op.squeeze(out, [0])) if single else out

    def adaptive_largest(g: Importer, x: Expr, output_size: Any, return_indices: bool = False) -> Expr:
        if return_indices:
            raise Refused("the indices of max_pool are not computed; leave out return_indices")
        extents = [g.static(e, "the extent of an image") for e in g.shape(x)[-rank:]]
        sizes = [e if s is None else s for s, e in zip(per_axis(output_size, rank), extents, strict=True)]
        if any(e % s for e, s in zip(extents, sizes, strict=True)):
            raise Refused(f"adaptive_max_pool from {extents} to {sizes}: the windows differ in size")
        kernel = [e // s for e, s in zip(extents, sizes, strict=True)]
        return largest(g, x, kernel)

    converter(f"max_pool{rank}d", f"_max_pool{rank}d")(largest)
    converter(f"max_pool{rank}d_with_indices")(lambda g, *args, **kwargs: (largest(g, *args, **kwargs), None))
    converter(f"avg_pool{rank}d")(average)
    converter(f"adaptive_avg_pool{rank}d", f"_adaptive_avg_pool{rank}d")(adaptive_average)
    # ATen's operator always gives the indices as well.
    converter(f"adaptive_max_pool{rank}d.default")(lambda g, x, size: (adaptive_largest(g, x, size), None))
    converter(f"adaptive_max_pool{rank}d")(adaptive_largest)


for _rank in (1, 2, 3):
    _register(_rank)


def _scaled(g: Importer, extent: Any, factor: float) -> Any:
    """An extent times a factor, rounded down."""
    if float(factor).is_integer():
        return extent * int(factor)
    return int(g.static(extent, "the extent of an image that is resized by a fraction") * factor)


def _resize(g: Importer, x: Expr, size: Any, factors: Any, method: str, align_corners: bool) -> Expr:
    """Images resized to `size`, or by `factors`; PyTorch may give both."""
    if g.ndim(x) != 4:
        raise Refused(f"resizing a tensor of {g.ndim(x)} dimensions; expected (batch, channels, height, width)")
    factors = None if factors is None else per_axis(factors, 2)
    if size is None:
        size = [_scaled(g, e, f) for e, f in zip(g.shape(x)[2:], factors, strict=True)]
    if factors is not None and not align_corners:
        # Coordinates are then divided by the factor, also where the result's extent was rounded.
        for extent, factor, new in zip(g.shape(x)[2:], factors, per_axis(size, 2), strict=True):
            if factor is not None and isinstance(extent, int) and extent * factor != new:
                raise Refused(
                    f"an image of {extent} elements cannot be resized to {new} by a factor of {factor}; give the size "
                    "instead, or recompute_scale_factor=True"
                )
    if method == "nearest_neighbor":
        coordinates = "asymmetric"
    else:
        coordinates = "align_corners" if align_corners else "half_pixel"
    options: dict[str, Any] = {"rounding_method": "floor"} if method == "nearest_neighbor" else {}
    return g.emit(
        op.image.resize2d(
            x,
            tuple(per_axis(size, 2)),
            layout="NCHW",
            method=method,
            coordinate_transformation_mode=coordinates,
            **options,
        )
    )


@converter("upsample_nearest2d.vec")
def upsample_nearest(g: Importer, x: Expr, output_size: Any, scale_factors: Any = None) -> Expr:
    """Images resized, each pixel the nearest one."""
    return _resize(g, x, output_size, scale_factors, "nearest_neighbor", False)


@converter("upsample_nearest2d")
def upsample_nearest_to(g: Importer, x: Expr, output_size: Any, scales_h: Any = None, scales_w: Any = None) -> Expr:
    """The same, to a size."""
    return _resize(g, x, output_size, (scales_h, scales_w), "nearest_neighbor", False)


@converter("upsample_bilinear2d.vec")
def upsample_bilinear(g: Importer, x: Expr, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Expr:
    """Images resized, pixels interpolated linearly."""
    return _resize(g, x, output_size, scale_factors, "linear", align_corners)


@converter("upsample_bilinear2d")
def upsample_bilinear_to(
    g: Importer, x: Expr, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None
) -> Expr:
    """The same, to a size."""
    return _resize(g, x, output_size, (scales_h, scales_w), "linear", align_corners)


@converter("upsample_bicubic2d.vec")
def upsample_bicubic(g: Importer, x: Expr, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Expr:
    """Images resized, pixels interpolated by cubic polynomials."""
    return _resize(g, x, output_size, scale_factors, "cubic", align_corners)


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
    methods = {"nearest": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
    if mode not in methods or antialias:
        raise Refused(f"interpolate with mode={mode!r}, antialias={antialias}; modes are {', '.join(methods)}")
    if recompute_scale_factor:
        size = [_scaled(g, e, f) for e, f in zip(g.shape(x)[2:], per_axis(scale_factor, 2), strict=True)]
        scale_factor = None
    return _resize(g, x, size, scale_factor, methods[mode], bool(align_corners))
