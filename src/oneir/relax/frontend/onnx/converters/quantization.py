"""Floats as short integers: quantized, computed with, and turned back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import op
from ....expr import Expr, const
from ..context import Context
from ..dtypes import dtype_name, is_float
from ..registry import converter
from .convolution import conv, shifted
from .elementwise import converted

_LIMITS = {"int2": (-2, 1), "uint2": (0, 3), "int4": (-8, 7), "uint4": (0, 15)}


def _limits(dtype: str) -> tuple[int, int]:
    if dtype in _LIMITS:
        return _LIMITS[dtype]
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _spread(g: Context, parameter: Expr, x: Expr, axis: int, block_size: int) -> Expr:
    """A scale or zero point in a shape that broadcasts to x: one, one for each element of an axis, or for blocks."""
    extents = g.shape(x)
    if block_size:
        place = g.axis(axis, len(extents))
        whole = g.emit(op.repeat(parameter, block_size, place))
        return g.emit(op.strided_slice(whole, [place], [0], [extents[place]]))
    shape = g.shape(parameter)
    if len(shape) == 1 and g.is_one(shape[0]):
        return g.reshaped(parameter, [])
    return g.along(parameter, g.axis(axis, len(extents)), len(extents)) if len(shape) == 1 else parameter


def quantized(g: Context, x: Expr, scale: Expr, zero: Expr | None, dtype: str) -> Expr:
    """round(x / scale) + zero in a short dtype, saturated; scale and zero broadcast."""
    ratio = op.divide(x, g.cast(scale, g.dtype(x)))
    if is_float(dtype):
        wide = g.emit(op.astype(ratio, "float32"))
        if zero is not None:
            wide = g.emit(op.add(wide, g.cast(zero, "float32")))
        return converted(g, wide, dtype, 1)
    low, high = _limits(dtype)
    whole = op.round(ratio)
    if zero is not None:
        whole = op.add(op.astype(whole, "float32"), g.cast(zero, "float32"))
    return converted(g, g.emit(op.clip(op.astype(whole, "float32"), low, high)), dtype, 1)


def _one_axis(g: Context, x: Expr, scale: Expr, zero: Expr | None, axis: int, block_size: int) -> int | None:
    """The axis that a scale and zero point are for, any where they are single; None where they are for blocks."""
    ndim, parameters = g.ndim(x), [p for p in (scale, zero) if p is not None]
    if block_size or any(g.ndim(p) > 1 for p in parameters):
        return None
    single = all(g.ndim(p) == 0 or g.is_one(g.shape(p)[0]) for p in parameters)
    return 0 if single else g.axis(axis, ndim)


@converter("QuantizeLinear", since=10)
def quantize_linear(
    g: Context,
    x: Expr,
    scale: Expr,
    zero: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Expr:
    """Floats as integers: round(x / scale) + zero."""
    dtype = g.dtype(zero) if zero is not None else dtype_name(output_dtype) if output_dtype else "uint8"
    place = _one_axis(g, x, scale, zero, axis, block_size)
    if place is not None and dtype in ("int8", "uint8") and g.dtype(x) == g.dtype(scale) == "float32":
        point = g.constant(np.zeros((), dtype)) if zero is None else _single(g, zero)
        return g.emit(op.quantize(x, _single(g, scale), point, place, dtype))
    if zero is not None and is_float(dtype):
        zero = g.cast(zero, "float32")
    point = None if zero is None else _spread(g, zero, x, axis, block_size)
    wide = x if is_float(g.dtype(x)) else g.cast(x, "float32")
    return quantized(g, wide, _spread(g, scale, x, axis, block_size), point, dtype)


@converter("DequantizeLinear", since=10)
def dequantize_linear(
    g: Context,
    x: Expr,
    scale: Expr,
    zero: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Expr:
    """Integers as floats: (x - zero) * scale."""
    dtype = g.dtype(scale)
    place = _one_axis(g, x, scale, zero, axis, block_size)
    if place is not None and g.dtype(x) in ("int8", "uint8") and dtype == "float32" and not output_dtype:
        point = g.constant(np.zeros((), g.dtype(x))) if zero is None else _single(g, zero)
        # Constants stay short integers here, since what uses them may compute with these.
        return g.block_builder.emit(op.dequantize(x, _single(g, scale), point, place, dtype))
    factor = _spread(g, scale, x, axis, block_size)
    if is_float(g.dtype(x)):
        value = g.cast(x, dtype)
    else:
        value = g.cast(x, "int32")
        if zero is not None:
            value = op.subtract(value, g.cast(_spread(g, zero, x, axis, block_size), "int32"))
        value = g.emit(op.astype(value, dtype))
    out = g.emit(op.multiply(value, factor))
    return g.cast(out, dtype_name(output_dtype)) if output_dtype else out


@converter("QLinearMatMul")
def qlinear_matmul(
    g: Context,
    a: Expr,
    a_scale: Expr,
    a_zero: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero: Expr,
    y_scale: Expr,
    y_zero: Expr,
) -> Expr:
    """A product of quantized matrices, quantized."""
    product = g.emit(op.matmul(shifted(g, a, a_zero, max(g.ndim(a) - 2, 0)), shifted(g, b, b_zero, g.ndim(b) - 1)))
    left = a_scale if g.ndim(a_scale) == 0 else _spread(g, a_scale, a, g.ndim(a) - 2, 0)
    right = b_scale if g.ndim(b_scale) == 0 else _spread(g, b_scale, b, g.ndim(b) - 1, 0)
    scales = op.multiply(g.cast(left, "float32"), g.cast(right, "float32"))
    real = g.emit(op.multiply(op.astype(product, "float32"), scales))
    return quantized(g, real, _single(g, y_scale), _single(g, y_zero), g.dtype(y_zero))


def _single(g: Context, x: Expr) -> Expr:
    """A scale or zero point without dimensions if it is one number."""
    alone = all(map(g.is_one, g.shape(x)))
    return g.reshaped(x, []) if alone and g.ndim(x) else x


@converter("QLinearConv")
def qlinear_conv(
    g: Context,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr,
    weight: Expr,
    w_scale: Expr,
    w_zero: Expr,
    y_scale: Expr,
    y_zero: Expr,
    bias: Expr | None = None,
    **attributes: Any,
) -> Expr:
    """A convolution of quantized images, quantized."""
    sums = conv(g, shifted(g, x, x_zero, None), shifted(g, weight, w_zero, 0), bias, **attributes)
    factor = g.emit(op.multiply(_single(g, x_scale), _single(g, w_scale)))
    if g.ndim(factor) == 1:
        factor = g.along(factor, 1, g.ndim(x))
    real = g.emit(op.multiply(op.astype(sums, "float32"), factor))
    return quantized(g, real, _single(g, y_scale), _single(g, y_zero), g.dtype(y_zero))


@converter("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(g: Context, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Floats as uint8, with a scale and zero point for their range."""
    zero = g.like(0, x)
    axes = list(range(g.ndim(x)))
    low, high = op.minimum(op.min(x, axes), zero), op.maximum(op.max(x, axes), zero)
    low, high = g.emit(low), g.emit(high)
    scale = g.emit(op.divide(op.subtract(high, low), const(255.0, "float32")))
    # A tensor of zeros has no range.
    safe = g.emit(op.where(op.equal(scale, zero), g.like(1, x), scale))
    point = op.clip(op.round(op.divide(op.negative(low), safe)), 0, 255)
    point = g.emit(op.astype(point, "uint8"))
    return quantized(g, x, safe, point, "uint8"), scale, point
