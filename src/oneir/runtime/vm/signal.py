"""Fourier transforms of lengths that only the running program knows, and weights for the mel scale."""

from __future__ import annotations

import math

import numpy as np

from ..error import InvalidValue
from ..registry import register_func
from ..tensor import Tensor, tensor


def _number(x: Tensor) -> int:
    return int(x.numpy().reshape(()))


def _complex(x: np.ndarray) -> np.ndarray:
    """Numbers whose last dimension has a real part, or a real and an imaginary one."""
    if x.shape[-1] not in (1, 2):
        raise InvalidValue(f"expected 1 or 2 in the last dimension, of real and imaginary parts, found {x.shape[-1]}")
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def _parts(x: np.ndarray, dtype: str) -> Tensor:
    return tensor(np.stack([np.real(x), np.imag(x)], -1).astype(dtype))


@register_func("vm.builtin.dft")
def dft(x: Tensor, length: Tensor | None, axis: Tensor, inverse: int, onesided: int) -> Tensor:
    """The Fourier transform along an axis, of `length` samples: fewer than there are, or zeros behind them."""
    array, place = x.numpy(), _number(axis)
    if not -array.ndim <= place < array.ndim or place % array.ndim == array.ndim - 1:
        raise InvalidValue(f"a Fourier transform along axis {place} of a tensor of shape {tuple(array.shape)}")
    place %= array.ndim
    count = None if length is None else _number(length)
    if count is not None and count <= 0:
        raise InvalidValue(f"the length of a Fourier transform must be positive, found {count}")
    samples = _complex(array)
    if inverse and onesided:
        return tensor(np.fft.irfft(samples, count, place)[..., None].astype(x.dtype))
    if inverse:
        return _parts(np.fft.ifft(samples, count, place), x.dtype)
    made = np.fft.fft(samples, count, place)
    return _parts(np.take(made, range(made.shape[place] // 2 + 1), place) if onesided else made, x.dtype)


@register_func("vm.builtin.stft")
def stft(signal: Tensor, step: Tensor, window: Tensor | None, length: Tensor | None, onesided: int) -> Tensor:
    """The Fourier transforms of windows of a signal, one every `step` samples."""
    array, hop = signal.numpy(), _number(step)
    samples = _complex(array) if array.ndim == 3 else array
    weights = None if window is None else window.numpy()
    size = _number(length) if length is not None else 0 if weights is None else weights.shape[0]
    if not 0 < size <= samples.shape[1] or hop <= 0:
        raise InvalidValue(f"windows of {size} samples, one every {hop}, of a signal of {samples.shape[1]}")
    framed = np.lib.stride_tricks.sliding_window_view(samples, size, 1)[:, ::hop]
    made = np.fft.fft(framed if weights is None else framed * weights, axis=-1)
    return _parts(made[..., : size // 2 + 1] if onesided else made, signal.dtype)


def mel_weights(count: int, size: int, rate: int, low: float, high: float) -> np.ndarray:
    """The weights (size // 2 + 1, count) that turn the spectrum of `size` samples into `count` bins of the mel scale.

    `rate` is the number of samples a second; `low` and `high`, in hertz, are the borders of the bins.
    """

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    step = (mel(high) - mel(low)) / (count + 2)
    edges = mel(low) + np.arange(count + 2) * step
    places = ((size + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(int)
    weights = np.zeros((size // 2 + 1, count))
    for i in range(count):
        lower, center, upper = places[i : i + 3]
        if lower == center:
            weights[center, i] = 1
        else:
            for j in range(lower, center + 1):
                weights[j, i] = (j - lower) / (center - lower)
        for j in range(center, upper):
            weights[j, i] = (upper - j) / (upper - center)
    return weights


@register_func("vm.builtin.mel_weights")
def mel_weights_tensor(count: Tensor, size: Tensor, rate: Tensor, low: Tensor, high: Tensor, dtype: str) -> Tensor:
    """`mel_weights` of numbers in tensors."""
    limits = (float(x.numpy().reshape(())) for x in (low, high))
    return tensor(mel_weights(_number(count), _number(size), _number(rate), *limits).astype(dtype))
