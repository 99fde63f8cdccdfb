"""Floats as short integers and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te
from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, as_expr, as_int
from ...runtime.dtype import numpy_dtype
from ...runtime.error import TypeMismatch
from ...tir import op as tir_op
from ..expr import Call, Expr
from ..operator_facts import OpPattern
from ..struct_info import VOID, StructInfo, TensorStructInfo
from . import reference as numerics
from .arguments import integer
from .inference import fail, normalize_axis, tensor_argument
from .op_attrs import QuantizeAttrs
from .registry import inlined, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder

_SHORT = ("int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2")
_SCALES = ("float32", "float16")


def _check_dtype(call: Call, what: str, dtype: DataType, allowed: tuple[str, ...]) -> None:
    if dtype != VOID and dtype not in allowed:
        raise fail(call, f"{what} must be of one of the dtypes {', '.join(allowed)}, found {dtype}", TypeMismatch)


def _checked(
    call: Call, builder: BlockBuilder, data_dtypes: tuple[str, ...], out_dtypes: tuple[str, ...]
) -> StructInfo:
    """The result: like the data, in the dtype of the attribute."""
    data, scale, zero = (tensor_argument(call, i, n) for i, n in enumerate(("data", "scale", "zero_point")))
    dtype = call.attrs["out_dtype"]
    _check_dtype(call, "the result", dtype, out_dtypes)
    _check_dtype(call, "argument data", data.dtype, data_dtypes)
    _check_dtype(call, "argument scale", scale.dtype, _SCALES)
    _check_dtype(call, "argument zero_point", zero.dtype, ("int8", "uint8", "int16", "uint16", "int32", "float16"))
    axis = None if data.ndim == -1 else normalize_axis(call, call.attrs["axis"], data.ndim) if data.ndim else None
    for name, info in (("scale", scale), ("zero_point", zero)):
        if info.ndim == 0 or info.extents is None or all(as_int(e) == 1 for e in info.extents):
            continue
        if info.ndim != 1:
            raise fail(call, f"argument {name} must be a scalar or a vector, found {info.ndim} dimensions")
        if axis is None or data.extents is None:
            continue
        have, want = info.extents[0], data.extents[axis]
        if builder.analyzer.can_prove(ops.not_equal(have, want)):
            raise fail(call, f"argument {name} must have {want} elements, one for each index of the axis, found {have}")
    return TensorStructInfo(data.shape, dtype, data.vdevice, data.ndim)


def _parameter(value: Any, index: tuple[Any, ...], axis: int) -> PrimExpr:
    """The scale or zero point of an element: a number, the only element, or that of its channel."""
    if not isinstance(value, te.Tensor):
        return as_expr(value)
    if all(as_int(e) == 1 for e in value.shape):
        return value(*[0] * value.ndim)
    return value(index[axis])


def _clipped(value: PrimExpr, dtype: str) -> PrimExpr:
    """A value limited to the range of a dtype, and converted to it."""
    low, high = (ops.cast(value.dtype, limit(dtype)) for limit in (tir_op.min_value, tir_op.max_value))
    return ops.cast(dtype, ops.maximum(ops.minimum(value, high), low))


def _along(parameter: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if i == axis % ndim else 1 for i in range(ndim)])


def _limited(value: np.ndarray, dtype: str) -> np.ndarray:
    low, high = (getattr(limit(dtype), "value", 0) for limit in (tir_op.min_value, tir_op.max_value))
    return np.clip(value, low, high).astype(numpy_dtype(dtype))


@operator("relax.quantize", pattern=OpPattern.BROADCAST, attrs=QuantizeAttrs)
def quantize(data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "int8") -> Call:
    """round(data / scale) + zero_point, limited to the range of `out_dtype`.

    Scale and zero point are scalars, or vectors with an element for each index of `axis`.
    """
    return quantize.call(data, scale, zero_point, axis=integer(axis), out_dtype=DataType(out_dtype))


quantize.struct_info(lambda call, builder: _checked(call, builder, _SCALES, _SHORT))


@quantize.reference
def _quantize_reference(
    data: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, axis: int, out_dtype: str
) -> np.ndarray:
    scaled = data / _along(scale, axis, data.ndim)
    rounded = np.rint(scaled) if "int" in out_dtype else scaled
    return _limited(rounded.astype(np.float64) + _along(zero_point, axis, data.ndim).astype(np.float64), out_dtype)


def te_quantize(data: te.Tensor, scale: Any, zero_point: Any, axis: int, out_dtype: str) -> te.Tensor:
    """round(data / scale) + zero_point, limited."""

    def element(*index: Any) -> PrimExpr:
        scaled = ops.divide(*ops.match_types(data(*index), _parameter(scale, index, axis)))
        rounded = tir_op.round(scaled) if "int" in out_dtype else scaled
        zero = ops.cast(rounded.dtype, _parameter(zero_point, index, axis))
        return _clipped(ops.add(rounded, zero), out_dtype)

    return te.compute(data.shape, element, name="quantized")


@operator("relax.dequantize", pattern=OpPattern.BROADCAST, attrs=QuantizeAttrs)
def dequantize(data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "float32") -> Call:
    """scale * (data - zero_point), limited to the range of `out_dtype`; see `quantize`."""
    return dequantize.call(data, scale, zero_point, axis=integer(axis), out_dtype=DataType(out_dtype))


dequantize.struct_info(lambda call, builder: _checked(call, builder, (*_SHORT, "int32", *_SCALES), _SCALES))


@dequantize.reference
def _dequantize_reference(
    data: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, axis: int, out_dtype: str
) -> np.ndarray:
    wide = np.float32 if numerics.is_float(data) else np.int32
    shifted = data.astype(wide) - _along(zero_point, axis, data.ndim).astype(wide)
    value = shifted.astype(np.float32) * _along(scale, axis, data.ndim).astype(np.float32)
    return value if out_dtype == "float32" else _limited(value, out_dtype)


def te_dequantize(data: te.Tensor, scale: Any, zero_point: Any, axis: int, out_dtype: str) -> te.Tensor:
    """scale * (data - zero_point), limited."""
    wide = "float32" if data.dtype.is_float else "int32"

    def element(*index: Any) -> PrimExpr:
        zero = ops.cast(wide, _parameter(zero_point, index, axis))
        shifted = ops.subtract(ops.cast(wide, data(*index)), zero)
        value = ops.multiply(ops.cast("float32", shifted), ops.cast("float32", _parameter(scale, index, axis)))
        return value if out_dtype == "float32" else _clipped(value, out_dtype)

    return te.compute(data.shape, element, name="dequantized")


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    data, *parameters = call.args
    te_function = te_quantize if call.op is quantize.op else te_dequantize
    attrs = (call.attrs["axis"], call.attrs["out_dtype"])
    hint = call.op.name.removeprefix("relax.")
    return builder.call_te(te_function, data, *map(inlined, parameters), *attrs, primfunc_name_hint=hint)


quantize.legalize_as(_legalize)
dequantize.legalize_as(_legalize)
