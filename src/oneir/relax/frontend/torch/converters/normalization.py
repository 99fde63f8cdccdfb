"""Normalizations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..importer import Importer
from ..registry import converter


def _filled(g: Importer, given: Expr | None, extents: Sequence[Any], value: int, dtype: str) -> Expr:
    """A weight or bias, or if it is None the constant that changes nothing."""
    if given is not None:
        return given
    shape = [g.static(e, "an extent of what is normalized") for e in extents]
    return const(np.full(shape, value), dtype)


@converter("batch_norm.default")
def batch_norm(
    g: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    training: bool,
    momentum: float | None,
    eps: float,
    cudnn_enabled: bool = False,
) -> Expr:
    """Normalization by the mean and variance of each channel: those of the batch in training, else the running ones."""
    return _batch_norm(g, x, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def _batch_norm(
    g: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    training: bool,
    momentum: float | None,
    eps: float,
) -> tuple[Expr, Expr, Expr]:
    """The result, and the running mean and variance after it."""
    channels, dtype = g.shape(x)[1:2], g.dtype(x)
    of_batch = training or running_mean is None
    old_mean = _filled(g, running_mean, channels, 0, dtype)
    old_var = _filled(g, running_var, channels, 1, dtype)
    mean, var, updated = old_mean, old_var, (old_mean, old_var)
    if of_batch:
        axes = [0, *range(2, g.ndim(x))]
        mean, var = g.emit(op.mean(x, axes)), g.emit(op.variance(x, axes))
        if running_mean is not None:
            if momentum is None:
                raise UnsupportedError("running statistics over all batches (momentum=None) are for training")
            updated = _updated(g, x, axes, (old_mean, old_var), (mean, var), momentum)
    made = g.emit(
        op.nn.batch_norm(
            x,
            _filled(g, weight, channels, 1, dtype),
            _filled(g, bias, channels, 0, dtype),
            mean,
            var,
            axis=1,
            epsilon=eps,
            momentum=0.1 if momentum is None else momentum,
            training=False,
        )
    )
    return g.emit(made[0]), *updated


def _updated(
    g: Importer, x: Expr, axes: list[int], old: tuple[Expr, Expr], new: tuple[Expr, Expr], momentum: float
) -> tuple[Expr, Expr]:
    """The running mean and variance after a batch; the variance is the unbiased one."""
    shape = g.shape(x)
    count = math.prod(g.static(shape[a], "the number of elements of a channel in training") for a in axes)
    factors = momentum, momentum * count / max(count - 1, 1)

    def mixed(before: Expr, of_batch: Expr, factor: float) -> Expr:
        dtype = g.dtype(before)
        kept = op.multiply(before, const(1 - momentum, dtype))
        return g.emit(op.add(kept, op.multiply(of_batch, const(factor, dtype))))

    first, second = (mixed(a, b, f) for a, b, f in zip(old, new, factors, strict=True))
    return first, second


@converter("batch_norm")
def functional_batch_norm(
    g: Importer,
    x: Expr,
    running_mean: Expr | None,
    running_var: Expr | None,
    weight: Expr | None = None,
    bias: Expr | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Expr:
    """The same, with the arguments of `torch.nn.functional.batch_norm`."""
    return batch_norm(g, x, weight, bias, running_mean, running_var, training, momentum, eps)


@converter("_native_batch_norm_legit_no_training")
def batch_norm_for_inference(
    g: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    momentum: float | None,
    eps: float,
) -> Any:
    """Batch normalization by running statistics; its second and third results, those of the batch, are empty."""
    nothing = const(np.zeros([0]), g.dtype(running_mean))
    return batch_norm(g, x, weight, bias, running_mean, running_var, False, momentum, eps), nothing, nothing


@converter("_native_batch_norm_legit_functional")
def batch_norm_in_training(
    g: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    training: bool,
    momentum: float | None,
    eps: float,
) -> Any:
    """Batch normalization, with the new running statistics as fourth and fifth result."""
    out, mean, var = _batch_norm(g, x, weight, bias, running_mean, running_var, training, momentum, eps)
    return out, None, None, mean, var


@converter("_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    g: Importer, x: Expr, weight: Expr | None, bias: Expr | None, training: bool, momentum: float | None, eps: float
) -> Any:
    """Batch normalization by the statistics of the batch; its second and third results are for training."""
    return batch_norm(g, x, weight, bias, None, None, training, momentum, eps), None, None


@converter("layer_norm")
def layer_norm(
    g: Importer,
    x: Expr,
    normalized_shape: Any,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> Expr:
    """Normalization over the last dimensions."""
    shape = list(normalized_shape) if isinstance(normalized_shape, (list, tuple)) else [normalized_shape]
    dtype = g.dtype(x)
    gamma, beta = _filled(g, weight, shape, 1, dtype), _filled(g, bias, shape, 0, dtype)
    return g.emit(op.nn.layer_norm(x, gamma, beta, axes=list(range(-len(shape), 0)), epsilon=eps))


@converter("native_layer_norm")
def native_layer_norm(
    g: Importer, x: Expr, normalized_shape: Any, weight: Expr | None, bias: Expr | None, eps: float
) -> Any:
    """Layer normalization; its second and third results are for training."""
    return (layer_norm(g, x, normalized_shape, weight, bias, eps), None, None)


@converter("rms_norm")
def rms_norm(g: Importer, x: Expr, normalized_shape: Any, weight: Expr | None = None, eps: float | None = None) -> Expr:
    """x divided by the root of its mean square over the last dimensions, times the weight."""
    shape = list(normalized_shape) if isinstance(normalized_shape, (list, tuple)) else [normalized_shape]
    if eps is None:
        import torch

        eps = float(torch.finfo(getattr(torch, g.dtype(x))).eps)
    gamma = _filled(g, weight, shape, 1, g.dtype(x))
    return g.emit(op.nn.rms_norm(x, gamma, axes=list(range(-len(shape), 0)), epsilon=eps))


@converter("group_norm")
def group_norm(
    g: Importer,
    x: Expr,
    num_groups: int,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Expr:
    """Normalization over groups of channels and the dimensions after them."""
    channels, dtype = g.shape(x)[1:2], g.dtype(x)
    return g.emit(
        op.nn.group_norm(
            x,
            _filled(g, weight, channels, 1, dtype),
            _filled(g, bias, channels, 0, dtype),
            num_groups=num_groups,
            channel_axis=1,
            axes=list(range(2, g.ndim(x))),
            epsilon=eps,
        )
    )


@converter("native_group_norm")
def native_group_norm(
    g: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    batch: Any,
    channels: Any,
    spatial: Any,
    num_groups: int,
    eps: float,
) -> Any:
    """Group normalization; its second and third results are for training."""
    return (group_norm(g, x, num_groups, weight, bias, eps), None, None)


@converter("instance_norm.default")
def instance_norm(
    g: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    use_input_stats: bool,
    momentum: float | None,
    eps: float,
    cudnn_enabled: bool = False,
) -> Expr:
    """Normalization over the spatial dimensions of each channel of each image."""
    if not use_input_stats:
        return batch_norm(g, x, weight, bias, running_mean, running_var, False, momentum, eps)
    channels, dtype = g.shape(x)[1:2], g.dtype(x)
    return g.emit(
        op.nn.instance_norm(
            x,
            _filled(g, weight, channels, 1, dtype),
            _filled(g, bias, channels, 0, dtype),
            channel_axis=1,
            axes=list(range(2, g.ndim(x))),
            epsilon=eps,
        )
    )


@converter("instance_norm")
def functional_instance_norm(
    g: Importer,
    x: Expr,
    running_mean: Expr | None = None,
    running_var: Expr | None = None,
    weight: Expr | None = None,
    bias: Expr | None = None,
    use_input_stats: bool = True,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Expr:
    """The same, with the arguments of `torch.nn.functional.instance_norm`."""
    return instance_norm(g, x, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


@converter("normalize")
def normalize(g: Importer, x: Expr, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Expr:
    """x divided by its norm over a dimension."""
    if p != 2.0:
        raise UnsupportedError(f"normalize with p={p}; write it as x / torch.linalg.vector_norm(x, p, ...)")
    length = op.sqrt(op.sum(op.multiply(x, x), dim, keepdims=True))
    return g.emit(op.divide(x, op.maximum(length, const(eps, g.dtype(x)))))


@converter("_weight_norm")
def weight_norm(g: Importer, v: Expr, lengths: Expr, dim: int = 0) -> Expr:
    """Directions times lengths: v over its norm along all dimensions but one, times the lengths."""
    axes = [axis for axis in range(g.ndim(v)) if axis != g.axis(v, dim)] if dim != -1 else None
    norm = op.sqrt(op.sum(op.multiply(v, v), axes, keepdims=True))
    return g.emit(op.multiply(v, op.divide(lengths, norm)))


@converter("local_response_norm")
def local_response_norm(
    g: Importer, x: Expr, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Expr:
    """x divided by a power of the mean square of neighbouring channels."""
    dtype = g.dtype(x)
    shape, rest = g.shape(x), g.ndim(x) - 2
    if rest < 1:
        raise UnsupportedError("local_response_norm needs at least three dimensions")
    squares = op.expand_dims(op.reshape(g.emit(op.square(x)), [shape[0], shape[1], -1]), 1)
    padded = op.nn.pad(squares, [0, 0, 0, 0, size // 2, (size - 1) // 2, 0, 0])
    mean = op.nn.avg_pool2d(padded, pool_size=[size, 1], strides=[1, 1])
    mean = op.reshape(mean, shape)
    scale = op.power(op.add(op.multiply(mean, const(alpha, dtype)), const(k, dtype)), const(beta, dtype))
    return g.emit(op.divide(x, scale))
