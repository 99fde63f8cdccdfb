"""Fourier transforms, by their definition."""

from __future__ import annotations

import math
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Select, as_int, const
from ..runtime.error import ShapeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from .index import Shape, is_equal, require_ndim, shape_text


def _angle(product: PrimExpr, period: Any, dtype: str) -> PrimExpr:
    """2 pi product / period, reduced to one turn before it is rounded."""
    part = ops.divide(ops.cast(dtype, ops.floormod(product, period)), ops.cast(dtype, period))
    return ops.multiply(part, const(2 * math.pi, dtype))


def stft(
    data: Tensor,
    n_fft: Any,
    hop_length: Any,
    win_length: Any,
    window: Tensor,
    normalized: Any,
    onesided: Any,
    output_shape: Shape,
) -> Tensor:
    """The Fourier transforms of windows of a signal, `hop_length` apart; `data` is a vector, or a batch of them.

    The result has `output_shape`: batch, frequencies (n_fft // 2 + 1 of them if `onesided`), windows, and the real and
    imaginary part. With `normalized`, it is divided by sqrt(n_fft).
    """
    require_ndim(window, 1, "stft", "window")
    if data.ndim not in (1, 2):
        raise ShapeMismatch(f"topi.stft: expected a signal or a batch of them, found {shape_text(data.shape)}")
    w = te.reduce_axis((0, win_length), "wlen")
    scale = tir_op.rsqrt(ops.cast(data.dtype, n_fft))

    def element(batch: PrimExpr, row: PrimExpr, column: PrimExpr, part: PrimExpr) -> PrimExpr:
        at = ops.add(ops.multiply(column, hop_length), w.var)
        value = ops.multiply(window(w.var), data(batch, at) if data.ndim == 2 else data(at))
        angle = _angle(ops.multiply(row, w.var), win_length, data.dtype)
        value = ops.multiply(value, Select(ops.equal(part, 0), tir_op.cos(angle), ops.negative(tir_op.sin(angle))))
        return te.sum(ops.multiply(value, scale) if as_int(normalized) else value, axis=w)

    return te.compute(output_shape, element, name="stft_cpu", tag="stft_cpu")


def dft(re_data: Tensor, im_data: Tensor, inverse: Any) -> list[Tensor]:
    """The real and imaginary parts of the discrete Fourier transform along the last axis, or of its inverse."""
    if not re_data.ndim or re_data.ndim != im_data.ndim or not all(map(is_equal, re_data.shape, im_data.shape)):
        raise ShapeMismatch(
            f"topi.dft: expected real and imaginary parts of one shape, found {shape_text(re_data.shape)} and "
            f"{shape_text(im_data.shape)}"
        )
    size, dtype = re_data.shape[-1], re_data.dtype
    scale = ops.divide(const(1, dtype), ops.cast(dtype, size))

    def part(imaginary: bool) -> Tensor:
        k = te.reduce_axis((0, size), "k")

        def element(*ax: PrimExpr) -> PrimExpr:
            x, y = (t(*ax[:-1], k.var) for t in (re_data, im_data))
            angle = _angle(ops.multiply(ax[-1], k.var), size, dtype)
            cos, sin = tir_op.cos(angle), tir_op.sin(angle)
            sin = sin if as_int(inverse) else ops.negative(sin)
            # (x + iy) * (cos + i sin)
            a, b = (ops.multiply(x, sin), ops.multiply(y, cos)) if imaginary else (x * cos, ops.negative(y * sin))
            value = ops.add(a, b)
            return te.sum(ops.multiply(value, scale) if as_int(inverse) else value, axis=k)

        return te.compute(re_data.shape, element, name=f"dft_{'im' if imaginary else 're'}", tag="dft_cpu")

    return [part(False), part(True)]
