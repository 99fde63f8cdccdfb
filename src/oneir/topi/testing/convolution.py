"""Convolutions in NumPy, of any number of dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.error import InvalidValue


def _each(value: Any, dims: int) -> list[int]:
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)] * dims


def pads(padding: Any, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """The padding before and after each dimension: a number, one a dimension, both sides, "SAME" or "VALID"."""
    dims = len(kernel)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise InvalidValue(f'expected padding to be "SAME", "VALID" or numbers, found {padding!r}')
        total = [k - 1 if padding == "SAME" else 0 for k in kernel]
        return [t // 2 for t in total], [t - t // 2 for t in total]
    values = _each(padding, dims)
    if len(values) == 2 * dims:
        return values[:dims], values[dims:]
    return values, list(values)


def _padded(data: np.ndarray, before: Sequence[int], after: Sequence[int]) -> np.ndarray:
    return np.pad(data, [(0, 0), (0, 0), *zip(before, after, strict=True)])


def _conv(data: np.ndarray, weight: np.ndarray, stride: Any, padding: Any, dilation: Any, groups: int) -> np.ndarray:
    """NC... with OI..., as a sum over the kernel's positions."""
    dims = data.ndim - 2
    strides, dilations = _each(stride, dims), _each(dilation, dims)
    kernel = weight.shape[2:]
    x = _padded(data, *pads(padding, [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]))
    out = [(x.shape[2 + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(dims)]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    w = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    result = np.zeros((data.shape[0], groups, w.shape[1], *out), np.result_type(data, weight))
    for place in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(place, dilations, out, strides, strict=True)
        )
        result += np.einsum("ngi...,goi->ngo...", x[(..., *window)], w[(..., *place)])
    return result.reshape(data.shape[0], weight.shape[0], *out)


def _transposed(
    data: np.ndarray, weight: np.ndarray, stride: Any, padding: Any, output_padding: Any, groups: int
) -> np.ndarray:
    """NC... with IO...: every element adds its multiple of the kernel."""
    dims = data.ndim - 2
    strides, extra = _each(stride, dims), _each(output_padding, dims)
    kernel = weight.shape[2:]
    before, after = pads(padding, kernel)
    full = [(n - 1) * s + k + e for n, s, k, e in zip(data.shape[2:], strides, kernel, extra, strict=True)]
    x = data.reshape(data.shape[0], groups, data.shape[1] // groups, *data.shape[2:])
    w = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    result = np.zeros((data.shape[0], groups, w.shape[2], *full), np.result_type(data, weight))
    for place in itertools.product(*map(range, kernel)):
        window = tuple(slice(p, p + (n - 1) * s + 1, s) for p, n, s in zip(place, data.shape[2:], strides, strict=True))
        result[(..., *window)] += np.einsum("ngi...,gio->ngo...", x, w[(..., *place)])
    inner = tuple(slice(b, n - a) for b, a, n in zip(before, after, full, strict=True))
    return result.reshape(data.shape[0], -1, *full)[(..., *inner)]


def conv1d_ncw_python(a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, dilation: Any) -> np.ndarray:
    """NCW with OIW."""
    return _conv(a_np, w_np, stride, padding, dilation, 1)


def group_conv1d_ncw_python(
    a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, dilation: Any, groups: int
) -> np.ndarray:
    """NCW with OIW, in groups of channels."""
    return _conv(a_np, w_np, stride, padding, dilation, groups)


def conv2d_nchw_python(a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, groups: int = 1) -> np.ndarray:
    """NCHW with OIHW."""
    return _conv(a_np, w_np, stride, padding, 1, groups)


def conv2d_nhwc_python(a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, groups: int = 1) -> np.ndarray:
    """NHWC with HWIO."""
    out = _conv(a_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1), stride, padding, 1, groups)
    return out.transpose(0, 2, 3, 1)


def conv2d_hwcn_python(a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any) -> np.ndarray:
    """HWCN with HWIO."""
    out = _conv(a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1), stride, padding, 1, 1)
    return out.transpose(2, 3, 1, 0)


def conv3d_ncdhw_python(a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, groups: int = 1) -> np.ndarray:
    """NCDHW with OIDHW."""
    return _conv(a_np, w_np, stride, padding, 1, groups)


def conv3d_ndhwc_python(a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, groups: int = 1) -> np.ndarray:
    """NDHWC with DHWIO."""
    out = _conv(a_np.transpose(0, 4, 1, 2, 3), w_np.transpose(4, 3, 0, 1, 2), stride, padding, 1, groups)
    return out.transpose(0, 2, 3, 4, 1)


def conv1d_transpose_ncw_python(
    a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, output_padding: Any
) -> np.ndarray:
    """NCW with IOW."""
    return _transposed(a_np, w_np, stride, padding, output_padding, 1)


def group_conv1d_transpose_ncw_python(
    a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> np.ndarray:
    """NCW with IOW, in groups of channels."""
    return _transposed(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nchw_python(
    a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> np.ndarray:
    """NCHW with IOHW."""
    return _transposed(a_np, w_np, stride, padding, output_padding, groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: np.ndarray, weight: np.ndarray, weight_format: str, stride: Any, padding: Any, output_padding: Any = (0, 0)
) -> np.ndarray:
    """NHWC with a weight whose dimensions are a permutation of HWIO."""
    if sorted(weight_format) != sorted("HWIO"):
        raise InvalidValue(f"expected a permutation of HWIO as weight_format, found {weight_format!r}")
    w = weight.transpose([weight_format.index(letter) for letter in "IOHW"])
    return _transposed(a_nhwc.transpose(0, 3, 1, 2), w, stride, padding, output_padding, 1).transpose(0, 2, 3, 1)


def conv3d_transpose_ncdhw_python(
    a_np: np.ndarray, w_np: np.ndarray, stride: Any, padding: Any, output_padding: Any
) -> np.ndarray:
    """NCDHW with IODHW."""
    return _transposed(a_np, w_np, stride, padding, output_padding, 1)


def conv2d_backward_weight_python(
    dy_np: np.ndarray,
    x_np: np.ndarray,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    groups: int = 1,
    channels: int | None = None,
) -> np.ndarray:
    """The gradient of an NCHW convolution's OIHW weight, from that of its result. `channels` is not needed."""
    kernel, strides = _each(kernel_size, 2), _each(stride, 2)
    x = _padded(x_np, *pads(padding, kernel))
    n, out = dy_np.shape[:2]
    x = x.reshape(n, groups, x.shape[1] // groups, *x.shape[2:])
    dy = dy_np.reshape(n, groups, out // groups, *dy_np.shape[2:])
    result = np.zeros((groups, out // groups, x.shape[2], *kernel), np.result_type(dy_np, x_np))
    for place in itertools.product(*map(range, kernel)):
        window = tuple(slice(p, p + (m - 1) * s + 1, s) for p, m, s in zip(place, dy.shape[3:], strides, strict=True))
        result[(..., *place)] = np.einsum("ngohw,ngihw->goi", dy, x[(..., *window)])
    return result.reshape(out, -1, *kernel)


def depthwise_conv2d_python_nchw(input_np: np.ndarray, filter_np: np.ndarray, stride: Any, padding: Any) -> np.ndarray:
    """NCHW with (channels, multiplier, height, width)."""
    channels, multiplier, *kernel = filter_np.shape
    return _conv(input_np, filter_np.reshape(channels * multiplier, 1, *kernel), stride, padding, 1, channels)


def depthwise_conv2d_python_nchwc(input_np: np.ndarray, filter_np: np.ndarray, stride: Any, padding: Any) -> np.ndarray:
    """NCHWc with (outer channels, multiplier, height, width, 1, inner channels)."""
    n, outer, height, width, inner = input_np.shape
    x = input_np.transpose(0, 1, 4, 2, 3).reshape(n, outer * inner, height, width)
    out_outer, _, kh, kw, _, out_inner = filter_np.shape
    w = filter_np.transpose(0, 5, 1, 4, 2, 3).reshape(out_outer * out_inner, 1, kh, kw)
    out = _conv(x, w, stride, padding, 1, outer * inner)
    return out.reshape(n, out_outer, out_inner, *out.shape[2:]).transpose(0, 1, 3, 4, 2)


def depthwise_conv2d_python_nhwc(input_np: np.ndarray, filter_np: np.ndarray, stride: Any, padding: Any) -> np.ndarray:
    """NHWC with (height, width, channels, multiplier)."""
    x, w = input_np.transpose(0, 3, 1, 2), filter_np.transpose(2, 3, 0, 1)
    return depthwise_conv2d_python_nchw(x, w, stride, padding).transpose(0, 2, 3, 1)


def dilate_python(
    input_np: np.ndarray, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: str | None = None
) -> np.ndarray:
    """The elements `strides` apart, with a value between them."""
    shape = [(n - 1) * s + 1 for n, s in zip(input_np.shape, strides, strict=True)]
    result = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    result[tuple(slice(None, None, s) for s in strides)] = input_np
    return result
