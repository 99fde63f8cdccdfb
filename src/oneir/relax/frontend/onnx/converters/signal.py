"""Fourier transforms, and weights for the mel scale."""

from __future__ import annotations

import numpy as np

from .....runtime.error import UnsupportedError
from .....runtime.vm.signal import mel_weights
from .... import op
from ....expr import Expr, const
from ....struct_info import TensorStructInfo
from ...fourier import matmul_along, real_from_half, waves
from ..context import Context
from ..dtypes import dtype_name
from ..objects import runtime_value
from ..registry import converter


def _transformed(
    g: Context, real: Expr, imaginary: Expr | None, axis: int, inverse: bool, onesided: bool
) -> tuple[Expr, Expr]:
    """The real and imaginary parts of the Fourier transform along an axis."""
    count = g.static(g.shape(real)[axis], "the number of samples of a Fourier transform")
    frequencies, period = count // 2 + 1 if onesided else count, max(count, 1)
    made = waves(count, frequencies, period, 1.0 if inverse else -1.0)
    cosine, sine = (wave / period for wave in made) if inverse else made
    re, im = matmul_along(g, real, cosine, axis), matmul_along(g, real, sine, axis)
    if imaginary is not None:
        re = op.subtract(re, matmul_along(g, imaginary, sine, axis))
        im = op.add(im, matmul_along(g, imaginary, cosine, axis))
    return g.emit(re), g.emit(im)


def _dft(g: Context, x: Expr, length: Expr | None, axis: int, inverse: int, onesided: int) -> Expr:
    ndim = g.ndim(x)
    place = g.axis(axis, ndim)
    if length is not None and _integer(g, length) is None:
        return _dft_at_run_time(g, x, length, const(place, "int64"), inverse, onesided)
    if place == ndim - 1:
        raise UnsupportedError("a Fourier transform along the dimension of real and imaginary parts")
    parts = g.static(g.shape(x)[-1], "the last dimension, of real and imaginary parts,")
    if length is not None:
        wanted = g.constant_ints(length, "dft_length")[0]
        extent = g.static(g.shape(x)[place], "the number of samples of a Fourier transform")
        if wanted < extent:
            x = g.emit(op.strided_slice(x, [place], [0], [wanted]))
        elif wanted > extent:
            x = g.emit(op.nn.pad(x, [0, 0] * place + [0, wanted - extent] + [0, 0] * (ndim - 1 - place)))
    lines = g.shape(x)[:-1]
    pieces = [g.reshaped(g.emit(op.strided_slice(x, [ndim - 1], [k], [k + 1])), lines) for k in range(parts)]
    if inverse and onesided:
        half = g.static(lines[place], "the number of frequencies")
        count = 2 * (half - 1) if length is None else g.constant_ints(length, "dft_length")[0]
        kept = [g.emit(op.strided_slice(p, [place], [0], [min(half, count // 2 + 1)])) for p in pieces]
        return g.emit(op.expand_dims(real_from_half(g, kept[0], kept[1], place, count, 1 / count), -1))
    re, im = _transformed(g, pieces[0], pieces[1] if parts == 2 else None, place, bool(inverse), bool(onesided))
    return g.emit(op.stack([re, im], -1))


@converter("DFT", since=17)
def dft_attribute(
    g: Context, x: Expr, length: Expr | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Expr:
    """The discrete Fourier transform along an axis."""
    return _dft(g, x, length, axis, inverse, onesided)


@converter("DFT", since=20)
def dft(
    g: Context, x: Expr, length: Expr | None = None, axis: Expr | None = None, *, inverse: int = 0, onesided: int = 0
) -> Expr:
    """The discrete Fourier transform along an axis."""
    place = const(-2, "int64") if axis is None else axis
    known = _integer(g, place)
    if known is not None:
        return _dft(g, x, length, known, inverse, onesided)
    return _dft_at_run_time(g, x, length, place, inverse, onesided)


def _integer(g: Context, x: Expr) -> int | None:
    """The value of a tensor of one element; None if only the running program knows it."""
    found = g.elements(x)
    value = None if found is None else found.reshape(-1)[0]
    return value if isinstance(value, int) else None


def _dft_at_run_time(g: Context, x: Expr, length: Expr | None, axis: Expr, inverse: int, onesided: int) -> Expr:
    kind = TensorStructInfo(dtype=g.dtype(x), ndim=g.ndim(x))
    return runtime_value(g, "vm.builtin.dft", [x, length, axis, int(inverse), int(onesided)], kind)


@converter("STFT", since=17)
def stft(
    g: Context, signal: Expr, step: Expr, window: Expr | None = None, length: Expr | None = None, *, onesided: int = 1
) -> Expr:
    """The Fourier transforms of windows of a signal, one every `step` samples."""
    hop = _integer(g, step)
    if hop is None or (length is not None and _integer(g, length) is None):
        kind = TensorStructInfo(dtype=g.dtype(signal), ndim=4)
        return runtime_value(g, "vm.builtin.stft", [signal, step, window, length, int(onesided)], kind)
    if length is not None:
        size = g.constant_ints(length, "frame_length of STFT")[0]
    elif window is not None:
        size = g.static(g.shape(window)[0], "the length of the window of STFT")
    else:
        raise UnsupportedError("STFT needs a window or frame_length")
    shape = g.shape(signal)
    samples = g.static(shape[1], "the length of a signal")
    parts = shape[2] if len(shape) == 3 else 1
    frames = (samples - size) // hop + 1
    index = np.arange(frames)[:, None] * hop + np.arange(size)
    flat = g.constant(index.reshape(-1).astype(np.int64))
    pieces = []
    for k in range(g.static(parts, "the last dimension, of real and imaginary parts,")):
        line = g.emit(op.strided_slice(signal, [2], [k], [k + 1])) if len(shape) == 3 else signal
        framed = g.reshaped(g.emit(op.take(g.reshaped(line, [shape[0], samples]), flat, 1)), [shape[0], frames, size])
        if window is not None:
            framed = g.emit(op.multiply(framed, g.cast(window, g.dtype(signal))))
        pieces.append(framed)
    re, im = _transformed(g, pieces[0], pieces[1] if len(pieces) > 1 else None, 2, False, bool(onesided))
    return g.emit(op.stack([re, im], -1))


@converter("MelWeightMatrix", since=17)
def mel_weight_matrix(
    g: Context, bins: Expr, length: Expr, rate: Expr, low: Expr, high: Expr, *, output_datatype: int = 1
) -> Expr:
    """The weights that turn a spectrum into bins of the mel scale."""
    dtype, given = dtype_name(output_datatype), (bins, length, rate, low, high)
    values = [array.item() for x in given if (array := g.array(x)) is not None]
    if len(values) < len(given):
        return runtime_value(g, "vm.builtin.mel_weights", [*given, dtype], TensorStructInfo(dtype=dtype, ndim=2))
    return g.constant(mel_weights(*values), dtype)
