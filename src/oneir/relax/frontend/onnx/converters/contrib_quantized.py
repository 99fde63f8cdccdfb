"""Operators of ONNX Runtime's own domain on quantized tensors, and convolutions and products that it fuses with
activations.

Each computes what the operator of its name does with the numbers that quantized inputs stand for, and quantizes that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr
from ..context import Context
from ..registry import converter
from .convolution import conv, shifted
from .linear import gemm
from .pooling import average_pool, global_average_pool
from .quantization import dequantize_linear, quantize_linear

_DOMAIN = "com.microsoft"


def _binary(compute: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    def converted(
        g: Context,
        a: Expr,
        a_scale: Expr,
        a_zero: Expr | None,
        b: Expr,
        b_scale: Expr,
        b_zero: Expr | None,
        y_scale: Expr,
        y_zero: Expr | None = None,
    ) -> Expr:
        left, right = dequantize_linear(g, a, a_scale, a_zero), dequantize_linear(g, b, b_scale, b_zero)
        return quantize_linear(g, g.emit(compute(left, right)), y_scale, _point(g, y_zero, a))

    return converted


def _unary(compute: Callable[..., Expr]) -> Callable[..., Expr]:
    def converted(
        g: Context,
        x: Expr,
        x_scale: Expr,
        x_zero: Expr | None,
        y_scale: Expr,
        y_zero: Expr | None = None,
        **attributes: Any,
    ) -> Expr:
        real = compute(g, dequantize_linear(g, x, x_scale, x_zero), **attributes)
        return quantize_linear(g, g.emit(real), y_scale, _point(g, y_zero, x))

    return converted


def _point(g: Context, zero: Expr | None, x: Expr) -> Expr:
    """The zero point of a result, whose dtype is that of the result; by default 0 in the dtype of an input."""
    return g.like(0, x) if zero is None else zero


def _softmax(g: Context, x: Expr, *, axis: int = -1, opset: int = 13) -> Expr:
    ndim = g.ndim(x)
    if opset < 13 and g.axis(axis, ndim) != ndim - 1:
        raise UnsupportedError("a quantized softmax over several axes, as before opset 13")
    return op.nn.softmax(x, axis)


def _average(pool: Callable[..., Expr]) -> Callable[..., Expr]:
    def compute(g: Context, x: Expr, *, channels_last: int = 0, **attributes: Any) -> Expr:
        if channels_last:
            raise UnsupportedError("quantized images with channels last")
        return pool(g, x, **attributes)

    return compute


converter("QLinearAdd", domain=_DOMAIN)(_binary(op.add))
converter("QLinearMul", domain=_DOMAIN)(_binary(op.multiply))
converter("QLinearSigmoid", domain=_DOMAIN)(_unary(lambda g, x: op.sigmoid(x)))
converter("QLinearLeakyRelu", domain=_DOMAIN)(_unary(lambda g, x, alpha=0.01: op.nn.leakyrelu(x, alpha)))
converter("QLinearSoftmax", domain=_DOMAIN)(_unary(_softmax))
converter("QLinearGlobalAveragePool", domain=_DOMAIN)(_unary(_average(global_average_pool)))
converter("QLinearAveragePool", domain=_DOMAIN)(_unary(_average(average_pool)))


@converter("QLinearConcat", domain=_DOMAIN)
def qlinear_concat(g: Context, y_scale: Expr, y_zero: Expr, *parts: Expr, axis: int) -> Expr:
    """Quantized tensors one after the other, each given with scale and zero point."""
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    whole = g.emit(op.concat([dequantize_linear(g, *triple) for triple in triples], axis))
    return quantize_linear(g, whole, y_scale, y_zero)


@converter("QGemm", domain=_DOMAIN)
def qgemm(
    g: Context,
    a: Expr,
    a_scale: Expr,
    a_zero: Expr | None,
    b: Expr,
    b_scale: Expr,
    b_zero: Expr | None,
    c: Expr | None = None,
    y_scale: Expr | None = None,
    y_zero: Expr | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """A product of quantized matrices plus integers of its own scale; quantized if there is a scale for that."""
    left, right = shifted(g, a, a_zero, None), shifted(g, b, b_zero, 0 if transB else 1)
    sums = gemm(g, left, right, c, transA=transA, transB=transB)
    scale = g.emit(op.multiply(op.multiply(a_scale, b_scale), g.like(alpha, a_scale)))
    real = g.emit(op.multiply(op.astype(sums, g.dtype(scale)), scale))
    return real if y_scale is None else quantize_linear(g, real, y_scale, _point(g, y_zero, a))


def _activated(g: Context, x: Expr, activation: str, numbers: Sequence[float]) -> Expr:
    """What ONNX Runtime computes after a product: an activation by name, with its numbers."""
    first, second = [*numbers, 0.0, 0.0][:2]
    if activation == "LeakyRelu":
        return g.emit(op.nn.leakyrelu(x, first))
    if activation == "Clip":
        return g.emit(op.clip(x, first, second))
    if activation == "HardSigmoid":
        return g.emit(op.clip(op.add(op.multiply(x, g.like(first, x)), g.like(second, x)), 0, 1))
    known = {"": lambda x: x, "Relu": op.nn.relu, "Tanh": op.tanh, "Sigmoid": op.sigmoid}
    if activation not in known:
        raise UnsupportedError(f"the activation {activation} after a product")
    return g.emit(known[activation](x))


@converter("FusedConv", domain=_DOMAIN)
def fused_conv(
    g: Context,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    more: Expr | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **attributes: Any,
) -> Expr:
    """A convolution, to which a tensor may be added, and an activation."""
    out = conv(g, x, weight, bias, **attributes)
    return _activated(g, out if more is None else g.emit(op.add(out, more)), activation, activation_params)


@converter("FusedGemm", domain=_DOMAIN)
def fused_gemm(
    g: Context,
    a: Expr,
    b: Expr,
    c: Expr | None = None,
    *,
    activation: str = "",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    **attributes: Any,
) -> Expr:
    """A product of matrices and an activation."""
    return _activated(g, gemm(g, a, b, c, **attributes), activation, [activation_alpha, activation_beta])
