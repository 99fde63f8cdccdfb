"""Products, convolutions, normalizations, attention, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.error import InvalidValue, UnsupportedError
from .... import op as graph_op
from ....expr import Expr, const
from ..tensor import Tensor, get_default_dtype, wrap_nested


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """The product of matrices, or of batches of them."""
    return wrap_nested(graph_op.matmul(a._expr, b._expr, out_dtype=out_dtype), name)


def _with_bias(product: Expr, bias: Tensor | None, layout: str) -> Expr:
    """A bias for each channel, added where the layout has the channels."""
    if bias is None:
        return product
    shape = [-1 if axis == "C" else 1 for axis in layout]
    return graph_op.add(product, graph_op.reshape(bias._expr, shape))


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    name: str = "conv1d",
) -> Tensor:
    """A convolution over (batch, channels, width); the weight is (out, in // groups, width)."""
    out = graph_op.nn.conv1d(x._expr, weight._expr, strides=stride, padding=padding, dilation=dilation, groups=groups)
    return wrap_nested(_with_bias(out, bias, "NCW"), name)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    name: str = "conv2d",
) -> Tensor:
    """A convolution over images; the weight is (out, in // groups, height, width)."""
    out = graph_op.nn.conv2d(
        x._expr,
        weight._expr,
        strides=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        data_layout=data_layout,
    )
    return wrap_nested(_with_bias(out, bias, data_layout), name)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCDHW",
    name: str = "conv3d",
) -> Tensor:
    """A convolution over volumes; the weight is (out, in // groups, depth, height, width)."""
    out = graph_op.nn.conv3d(
        x._expr,
        weight._expr,
        strides=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        data_layout=data_layout,
    )
    return wrap_nested(_with_bias(out, bias, data_layout), name)


def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """The transpose of a convolution over (batch, channels, width); the weight is (in, out // groups, width)."""
    out = graph_op.nn.conv1d_transpose(
        x._expr,
        weight._expr,
        strides=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
    )
    return wrap_nested(_with_bias(out, bias, "NCW"), name)


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x) divided by its sum over an axis."""
    return wrap_nested(graph_op.nn.softmax(x._expr, axis), name)


def layer_norm(
    x: Tensor,
    normalized_shape: int | list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Normalization over the last dimensions, whose extents are given; then weight and bias, if there are any."""
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    gamma = const(np.ones(shape), x.dtype) if weight is None else weight._expr
    beta = const(np.zeros(shape), x.dtype) if bias is None else bias._expr
    axes = list(range(-len(shape), 0))
    return wrap_nested(graph_op.nn.layer_norm(x._expr, gamma, beta, axes=axes, epsilon=eps), name)


def rms_norm(x: Tensor, weight: Tensor, axes: int | list[int], epsilon: float = 1e-5, name: str = "rms_norm") -> Tensor:
    """x divided by the root of its mean square over `axes`, times the weight."""
    return wrap_nested(graph_op.nn.rms_norm(x._expr, weight._expr, axes, epsilon), name)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: list[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """Normalization over groups of channels and `axes`, all but the first two dimensions unless given."""
    channels = [x.shape[channel_axis]]
    gamma = const(np.ones(channels), x.dtype) if weight is None else weight._expr
    beta = const(np.zeros(channels), x.dtype) if bias is None else bias._expr
    over = list(range(2, x.ndim)) if axes is None else axes
    out = graph_op.nn.group_norm(x._expr, gamma, beta, num_groups, channel_axis=channel_axis, axes=over, epsilon=eps)
    return wrap_nested(out, name)


def pad(x: Tensor, pad: list[int], mode: str = "constant", value: float = 0.0, name: str = "pad") -> Tensor:
    """Elements before and after each dimension: [before_0, after_0, before_1, ...]."""
    return wrap_nested(graph_op.nn.pad(x._expr, pad_width=pad, pad_mode=mode, pad_value=value), name)


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Sines and cosines of the times `x`, of shape (n,), at `embedding_dim` // 2 frequencies; shape (n, dim)."""
    half = embedding_dim // 2
    times = graph_op.astype(x._expr, "float32")
    steps = graph_op.arange(0, half, dtype="float32")
    exponent = graph_op.multiply(const(-math.log(max_period), "float32"), steps)
    frequencies = graph_op.exp(graph_op.divide(exponent, const(half - downscale_freq_shift, "float32")))
    angles: Expr = graph_op.multiply(graph_op.expand_dims(times, 1), graph_op.expand_dims(frequencies, 0))
    if scale != 1:
        angles = graph_op.multiply(const(scale, "float32"), angles)
    sine, cosine = graph_op.sin(angles), graph_op.cos(angles)
    embedding = graph_op.concat([cosine, sine] if flip_sin_to_cos else [sine, cosine], axis=-1)
    if embedding_dim % 2 == 1:
        embedding = graph_op.nn.pad(embedding, (0, 0, 0, 1))
    return wrap_nested(graph_op.astype(embedding, get_default_dtype()), name)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """Attention; each tensor is (batch, length, heads, head size). Without a scale, 1 / sqrt(head size)."""
    if attn_mask is not None:
        raise UnsupportedError(
            "nn.op.scaled_dot_product_attention takes no attn_mask; use relax.op.nn.attention with a bias"
        )
    causal_mask = "TopLeft" if is_causal else None
    out = graph_op.nn.attention(query._expr, key._expr, value._expr, causal_mask=causal_mask, scale=scale)
    return wrap_nested(out, name)


def interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Images resized to `size`, or by `scale_factor`; `mode` is "nearest", "bilinear" or "bicubic"."""
    for what, given in (("recompute_scale_factor", recompute_scale_factor), ("antialias", antialias)):
        if given is not None:
            raise UnsupportedError(f"nn.op.interpolate has no {what}; leave it out")
    if size is None:
        if scale_factor is None:
            raise InvalidValue("nn.op.interpolate expects a size or a scale_factor, found neither")
        spatial = [int(x.shape[i]) for i, axis in enumerate(data_layout) if axis not in "NC"]
        factors = [scale_factor] * len(spatial) if isinstance(scale_factor, (int, float)) else list(scale_factor)
        size = [int(extent * factor) for extent, factor in zip(spatial, factors, strict=True)]
    method = "nearest_neighbor" if mode.startswith("nearest") else mode.removeprefix("bi")
    if method == "nearest_neighbor":
        coordinates = "asymmetric"
    else:
        coordinates = "align_corners" if align_corners else "half_pixel"
    out = graph_op.image.resize2d(
        x._expr, size, layout=data_layout, method=method, coordinate_transformation_mode=coordinates
    )
    return wrap_nested(out, name)
