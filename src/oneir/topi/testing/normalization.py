"""Normalizations in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def softmax_python(a_np: np.ndarray, axis: int = 1) -> np.ndarray:
    """Exponentials along an axis, over their sum."""
    e = np.exp(a_np - a_np.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def log_softmax_python(a_np: np.ndarray, axis: int = 1) -> np.ndarray:
    """The logarithm of `softmax_python`."""
    shifted = a_np - a_np.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def _standardized(data: np.ndarray, axes: Sequence[int], epsilon: float) -> np.ndarray:
    mean = data.mean(axis=tuple(axes), keepdims=True)
    return (data - mean) / np.sqrt(data.var(axis=tuple(axes), keepdims=True) + epsilon)


def _axes(axis: Any, ndim: int) -> list[int]:
    return sorted(a % ndim for a in (axis if isinstance(axis, (list, tuple)) else [axis]))


def _along(parameter: np.ndarray, axes: Sequence[int], ndim: int, shape: Sequence[int]) -> np.ndarray:
    """A parameter with the extents of some axes, and 1 in all others."""
    return parameter.reshape([shape[i] if i in axes else 1 for i in range(ndim)])


def layer_norm_python(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, axis: Any, epsilon: float = 1e-5
) -> np.ndarray:
    """Standardized over `axis`, which gamma and beta have."""
    axes = _axes(axis, data.ndim)
    result = _standardized(data, axes, epsilon) * _along(gamma, axes, data.ndim, data.shape)
    return result if beta is None else result + _along(beta, axes, data.ndim, data.shape)


def instance_norm_python(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axis: Any, epsilon: float = 1e-5
) -> np.ndarray:
    """Standardized over `axis`; gamma and beta have the channels, the second dimension."""
    result = _standardized(data, _axes(axis, data.ndim), epsilon)
    return result * _along(gamma, [1], data.ndim, data.shape) + _along(beta, [1], data.ndim, data.shape)


def group_norm_python(
    data: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> np.ndarray:
    """Standardized over groups of channels and `axes`; gamma and beta have the channels."""
    channel, others = channel_axis % data.ndim, _axes(list(axes), data.ndim)
    shape = data.shape
    split = data.reshape(*shape[:channel], num_groups, shape[channel] // num_groups, *shape[channel + 1 :])
    reduced = [channel + 1, *(a + (a > channel) for a in others if a != channel)]
    result = _standardized(split, reduced, epsilon).reshape(shape)
    return result * _along(gamma, [channel], data.ndim, shape) + _along(beta, [channel], data.ndim, shape)


def rms_norm_python(data: np.ndarray, weight: np.ndarray, axis: Any, epsilon: float = 1e-5) -> np.ndarray:
    """Over the root of the mean of squares along `axis`, times a weight that has it."""
    axes = _axes(axis, data.ndim)
    root = np.sqrt((data**2).mean(axis=tuple(axes), keepdims=True) + epsilon)
    return data / root * _along(weight, axes, data.ndim, data.shape)


def batch_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    moving_mean: np.ndarray,
    moving_var: np.ndarray,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    training: bool = False,
    momentum: float = 0.1,
) -> list[np.ndarray]:
    """Standardized by moving means and variances, or, in training, by the batch's own; and what these become."""
    axis %= x.ndim
    mean, var = moving_mean, moving_var
    if training:
        others = tuple(i for i in range(x.ndim) if i != axis)
        mean, var = x.mean(axis=others), x.var(axis=others)

    def at(v: np.ndarray) -> np.ndarray:
        return _along(v, [axis], x.ndim, x.shape)

    out = (x - at(mean)) / np.sqrt(at(var) + epsilon)
    out = out * at(gamma) if scale else out
    out = out + at(beta) if center else out
    if training:
        moving_mean = (1 - momentum) * moving_mean + momentum * mean
        moving_var = (1 - momentum) * moving_var + momentum * var
    return [out, moving_mean, moving_var]


def l2_normalize_python(a_np: np.ndarray, eps: float, axis: Any = None) -> np.ndarray:
    """Over the root of the sum of squares along `axis`, which is at least `eps`."""
    axes = tuple(axis) if isinstance(axis, list) else axis
    return a_np / np.sqrt(np.maximum((a_np**2).sum(axis=axes, keepdims=True), eps))


def lrn_python(a_np: np.ndarray, size: int, axis: int, bias: float, alpha: float, beta: float) -> np.ndarray:
    """Over (bias + alpha * mean of the `size` squares around)^beta along an axis."""
    squares, half = np.moveaxis(a_np**2, axis, 0), size // 2
    sums = np.stack([squares[max(0, i - half) : i + half + 1].sum(0) for i in range(len(squares))])
    return a_np / np.power(bias + alpha * np.moveaxis(sums, 0, axis) / size, beta)
