"""Transposed convolutions of two dimensions."""

from __future__ import annotations

from ...te.tensor import Tensor
from ..index import Padding, Sizes
from .transposed import correlate, preprocess


def conv2d_transpose_nchw(
    Input: Tensor, Filter: Tensor, strides: Sizes, padding: Padding, out_dtype: str | None, output_padding: Sizes
) -> Tensor:
    """The transposed convolution of data NCHW with a filter IOHW."""
    return declaration_conv2d_transpose_impl(Input, Filter, strides, padding, out_dtype, output_padding)


def conv2d_transpose_nchw_preprocess(
    data: Tensor, kernel: Tensor, strides: Sizes, padding: Padding, out_dtype: str | None, output_padding: Sizes
) -> tuple[Tensor, Tensor]:
    """Data and kernel such that their plain convolution is the transposed one."""
    return preprocess(data, kernel, strides, padding, output_padding, "hw", "conv2d_transpose_nchw")


def declaration_conv2d_transpose_impl(
    data: Tensor, kernel: Tensor, strides: Sizes, padding: Padding, out_dtype: str | None, output_padding: Sizes
) -> Tensor:
    """As `conv2d_transpose_nchw`."""
    padded, turned = conv2d_transpose_nchw_preprocess(data, kernel, strides, padding, out_dtype, output_padding)
    return correlate(padded, turned, 1, out_dtype or data.dtype, "hw", "conv2d_transpose_nchw")


def group_conv2d_transpose_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """The transposed convolution in groups of data NCHW with a kernel (in, out // groups, height, width)."""
    if groups == 1:
        return conv2d_transpose_nchw(data, kernel, stride, padding, out_dtype, output_padding)
    function = "group_conv2d_transpose_nchw"
    padded, turned = preprocess(data, kernel, stride, padding, output_padding, "hw", function, kernel_axes="io")
    return correlate(padded, turned, groups, out_dtype or data.dtype, "hw", function)
