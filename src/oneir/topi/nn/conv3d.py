"""Convolutions of three dimensions."""

from __future__ import annotations

from ... import te
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from ..index import Padding, Sizes, require_int, require_ndim, shape_text
from .conv2d import conv
from .winograd_util import winograd_transform_matrices


def conv3d_ncdhw(
    Input: Tensor,
    Filter: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of data NCDHW with a filter OIDHW."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def conv3d_ndhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    out_dtype: str | None = "float32",
) -> Tensor:
    """The convolution of data NDHWC with a filter DHWIO."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)


def conv3d_winograd_weight_transform(kernel: Tensor, tile_size: int) -> Tensor:
    """A kernel OIDHW transformed for Winograd's algorithm.

    The transformed depth, height and width come first, then the channels; a depth that is not transformed stands
    behind height and width.
    """
    function = "nn.conv3d_winograd_weight_transform"
    require_ndim(kernel, 5, function, "kernel")
    co, ci, *extents = kernel.shape
    depth, height, width = (require_int(e, function, "the extents of the kernel") for e in extents)
    if height != width:
        raise ShapeMismatch(f"topi.{function}: expected a square kernel, found the shape {shape_text(kernel.shape)}")
    alpha = tile_size + height - 1
    _, _, g = winograd_transform_matrices(tile_size, height, kernel.dtype)
    r_kh = te.reduce_axis((0, height), name="r_kh")
    r_kw = te.reduce_axis((0, width), name="r_kw")
    if 2 < depth < 8 and depth == height:
        r_kd = te.reduce_axis((0, depth), name="r_kd")
        return te.compute(
            (alpha, alpha, alpha, co, ci),
            lambda omg, eps, nu, co, ci: te.sum(
                kernel(co, ci, r_kd, r_kh, r_kw) * g(omg, r_kd) * g(eps, r_kh) * g(nu, r_kw), axis=[r_kd, r_kh, r_kw]
            ),
            name="transform_weight",
        )
    return te.compute(
        (alpha, alpha, depth, co, ci),
        lambda eps, nu, d, co, ci: te.sum(
            kernel(co, ci, d, r_kh, r_kw) * g(eps, r_kh) * g(nu, r_kw), axis=[r_kh, r_kw]
        ),
        name="transform_weight",
    )
