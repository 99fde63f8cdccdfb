"""Transposed convolutions of three dimensions."""

from __future__ import annotations

from ...te.tensor import Tensor
from ..index import Padding, Sizes
from .transposed import correlate, preprocess


def conv3d_transpose_ncdhw(
    Input: Tensor, Filter: Tensor, strides: Sizes, padding: Padding, out_dtype: str | None, output_padding: Sizes
) -> Tensor:
    """The transposed convolution of data NCDHW with a filter IODHW."""
    return declaration_conv3d_transpose_impl(Input, Filter, strides, padding, out_dtype, output_padding)


def conv3d_transpose_ncdhw_preprocess(
    data: Tensor, kernel: Tensor, strides: Sizes, padding: Padding, out_dtype: str | None, output_padding: Sizes
) -> tuple[Tensor, Tensor]:
    """Data and kernel such that their plain convolution is the transposed one."""
    return preprocess(data, kernel, strides, padding, output_padding, "dhw", "conv3d_transpose_ncdhw")


def declaration_conv3d_transpose_impl(
    data: Tensor, kernel: Tensor, strides: Sizes, padding: Padding, out_dtype: str | None, output_padding: Sizes
) -> Tensor:
    """As `conv3d_transpose_ncdhw`."""
    padded, turned = conv3d_transpose_ncdhw_preprocess(data, kernel, strides, padding, out_dtype, output_padding)
    return correlate(padded, turned, 1, out_dtype or data.dtype, "dhw", "conv3d_transpose_ncdhw")


def group_conv3d_transpose_ncdhw(
    data: Tensor,
    kernel: Tensor,
    strides: Sizes,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """The transposed convolution in groups of data NCDHW with a kernel (in, out // groups, depth, height, width)."""
    if groups == 1:
        return conv3d_transpose_ncdhw(data, kernel, strides, padding, out_dtype, output_padding)
    padded, turned = conv3d_transpose_ncdhw_preprocess(data, kernel, strides, padding, out_dtype, output_padding)
    return correlate(padded, turned, groups, out_dtype or data.dtype, "dhw", "group_conv3d_transpose_ncdhw")
