"""Convolutions of one dimension."""

from __future__ import annotations

from ...te.tensor import Tensor
from ..index import Padding, Sizes
from .conv2d import conv


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    dilation: Sizes = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of one spatial dimension in a layout; see `conv`."""
    return conv(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


def conv1d_nwc(
    data: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    dilation: Sizes = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of data NWC with a kernel WIO."""
    return conv(data, kernel, strides, padding, dilation, 1, "NWC", "WIO", out_dtype)


def conv1d_ncw(
    data: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    dilation: Sizes = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution of data NCW with a kernel OIW."""
    return conv(data, kernel, strides, padding, dilation, 1, "NCW", "OIW", out_dtype)


def group_conv1d_nwc(
    data: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    dilation: Sizes = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution in groups of data NWC with a kernel (width, in // groups, out)."""
    return conv(data, kernel, strides, padding, dilation, groups, "NWC", "WIO", out_dtype)


def group_conv1d_ncw(
    data: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: Padding = "VALID",
    dilation: Sizes = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """The convolution in groups of data NCW with a kernel (out, in // groups, width)."""
    return conv(data, kernel, strides, padding, dilation, groups, "NCW", "OIW", out_dtype)
