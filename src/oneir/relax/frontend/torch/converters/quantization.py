"""Quantized numbers, as PyTorch's export quantization writes them down: integers with a scale and a zero point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import op
from ....expr import Expr, const
from ..dtypes import as_operand, dtype_name
from ..importer import Importer, as_shape, is_tensor
from ..registry import converter

if TYPE_CHECKING:
    import torch

_LIBRARY = "quantized_decomposed::"


def _quantized(g: Importer, x: Expr, scale: Any, zero_point: Any, low: Any, high: Any, dtype: torch.dtype) -> Expr:
    """round(x / scale) + zero_point, within bounds."""
    inverse = op.divide(const(1.0, g.dtype(scale)), scale) if is_tensor(scale) else 1.0 / scale
    steps = op.round(op.multiply(op.astype(x, "float32"), as_operand(_plain(g, inverse), "float32")))
    places = op.add(steps, as_operand(zero_point, "float32"))
    lowest, highest = (as_operand(bound, "float32") for bound in (low, high))
    return g.emit(op.astype(op.minimum(op.maximum(places, lowest), highest), dtype_name(dtype)))


def _dequantized(g: Importer, x: Expr, scale: Any, zero_point: Any, dtype: torch.dtype | None) -> Expr:
    """(x - zero_point) * scale"""
    made = op.astype(x, "float32")
    if zero_point is not None:
        made = op.subtract(made, as_operand(zero_point, "float32"))
    made = g.emit(op.multiply(made, as_operand(scale, "float32")))
    return made if dtype is None else g.emit(op.astype(made, dtype_name(dtype)))


def _plain(g: Importer, value: Any) -> Any:
    return g.emit(value) if isinstance(value, Expr) else value


def _along(g: Importer, x: Expr, values: Any, axis: int) -> Any:
    """A vector along an axis, in a shape that broadcasts."""
    if values is None:
        return None
    shape = [1] * g.ndim(x)
    shape[g.axis(x, axis)] = g.shape(x)[g.axis(x, axis)]
    return g.emit(op.reshape(values, as_shape(shape)))


@converter(f"{_LIBRARY}quantize_per_tensor", f"{_LIBRARY}quantize_per_token")
def quantize(g: Importer, x: Expr, scale: Any, zero_point: Any, low: Any, high: Any, dtype: torch.dtype) -> Expr:
    """Integers with one scale, or with one for each row, which then is a tensor of one column."""
    return _quantized(g, x, scale, zero_point, low, high, dtype)


@converter(f"{_LIBRARY}dequantize_per_tensor", f"{_LIBRARY}dequantize_per_token")
def dequantize(
    g: Importer,
    x: Expr,
    scale: Any,
    zero_point: Any,
    low: Any,
    high: Any,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None = None,
) -> Expr:
    """Floats from integers with one scale, or with one for each row."""
    return _dequantized(g, x, scale, zero_point, out_dtype)


@converter(f"{_LIBRARY}quantize_per_channel")
def quantize_per_channel(
    g: Importer, x: Expr, scales: Expr, zero_points: Expr, axis: int, low: int, high: int, dtype: Any
) -> Expr:
    """Integers with a scale for each index along an axis."""
    return _quantized(g, x, _along(g, x, scales, axis), _along(g, x, zero_points, axis), low, high, dtype)


@converter(f"{_LIBRARY}dequantize_per_channel")
def dequantize_per_channel(
    g: Importer,
    x: Expr,
    scales: Expr,
    zero_points: Expr | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Expr:
    """Floats from integers with a scale for each index along an axis."""
    return _dequantized(g, x, _along(g, x, scales, axis), _along(g, x, zero_points, axis), out_dtype)


@converter(f"{_LIBRARY}choose_qparams")
def choose_qparams(g: Importer, x: Expr, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Expr, Expr]:
    """A scale and a zero point with which the numbers from the smallest to the largest, and 0, have integers."""
    smallest, largest = _range(g, x)
    scale = g.emit(op.divide(op.subtract(largest, smallest), const(float(high - low), "float32")))
    scale = g.emit(op.maximum(scale, const(eps, "float32")))
    zero_point = op.subtract(const(low, "int32"), op.astype(op.round(op.divide(smallest, scale)), "int32"))
    zero_point = op.minimum(op.maximum(zero_point, const(low, "int32")), const(high, "int32"))
    return g.emit(op.astype(scale, "float64")), g.emit(op.astype(zero_point, "int64"))


@converter(f"{_LIBRARY}choose_qparams_symmetric")
def choose_qparams_symmetric(
    g: Importer, x: Expr, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[Expr, Expr]:
    """The same, with integers as far below 0 as above."""
    smallest, largest = _range(g, x)
    size = op.maximum(op.negative(smallest), largest)
    scale = g.emit(op.maximum(op.divide(size, const(float(high - low) / 2, "float32")), const(eps, "float32")))
    middle = 128 if dtype_name(dtype) == "uint8" else 0
    return g.emit(op.astype(scale, "float64")), const([middle], "int64")


def _range(g: Importer, x: Expr) -> tuple[Expr, Expr]:
    """The smallest number and the largest, with 0 among them, each as a vector of one."""
    zero = const(0.0, "float32")
    x = g.emit(op.astype(x, "float32"))
    return (
        g.emit(op.reshape(op.minimum(op.min(x), zero), [1])),
        g.emit(op.reshape(op.maximum(op.max(x), zero), [1])),
    )
