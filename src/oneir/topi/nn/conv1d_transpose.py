"""Transposed convolutions of one dimension."""

from __future__ import annotations

from typing import Any

from ...te.tensor import Tensor
from ..index import Padding, Sizes
from .transposed import correlate, preprocess


def conv1d_transpose_ncw(
    data: Tensor, kernel: Tensor, stride: Sizes, padding: Padding, out_dtype: str | None, output_padding: Sizes
) -> Tensor:
    """The transposed convolution of data NCW with a kernel IOW.

    The output is (width - 1) * stride - padding + kernel width + output_padding wide.
    """
    return _transpose(data, kernel, stride, padding, out_dtype, output_padding, 1, "conv1d_transpose_ncw")


def group_conv1d_transpose_ncw(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """The transposed convolution in groups of data NCW with a kernel (in, out // groups, width)."""
    function = "conv1d_transpose_ncw" if groups == 1 else "group_conv1d_transpose_ncw"
    return _transpose(data, kernel, stride, padding, out_dtype, output_padding, groups, function)


def _transpose(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    dtype: str | None,
    extra: Any,
    groups: int,
    function: str,
) -> Tensor:
    padded, turned = preprocess(data, kernel, stride, padding, extra, "w", function, kernel_name="kernel")
    return correlate(padded, turned, groups, dtype or data.dtype, "w", function)
