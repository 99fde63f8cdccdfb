"""Quantization simulated in floats, to a dtype that is known only when the program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, const
from ...runtime.error import InvalidValue
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import require_axis, require_ndim

SQNN_DTYPE_TO_CODE = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}
"""The code of each dtype that quantization can be simulated for; "disable" changes nothing."""

_RANGES = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0), "int32": (-(2.0**31), 2.0**31 - 1)}

SQNN_CODE_TO_DTYPE = {code: dtype for dtype, code in SQNN_DTYPE_TO_CODE.items()}


@te.tag_scope(tag=tag.ELEMWISE)
def simulated_quantize(
    data: Tensor,
    out_dtype: Any,
    output_scale: Tensor | None = None,
    output_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """round(data / scale) + zero point, limited to the range of a dtype but kept in the data's.

    `out_dtype` is an integer expression, one of `SQNN_DTYPE_TO_CODE`. Scale and zero point have one element, or one
    for each index of `axis`.
    """

    def quantized(value: Any, scale: Any, zero_point: Any) -> Any:
        scaled = tir_op.round(value / scale.astype(value.dtype)) + zero_point.astype(value.dtype)
        result: Any = value
        for name, (low, high) in _RANGES.items():
            limited = te.max(te.min(scaled, const(high, value.dtype)), const(low, value.dtype))
            result = tir_op.if_then_else(ops.equal(out_dtype, SQNN_DTYPE_TO_CODE[name]), limited, result)
        return result

    return _by_channel(data, output_scale, output_zero_point, axis, "simulated_quantize", quantized)


@te.tag_scope(tag=tag.ELEMWISE)
def simulated_dequantize(
    data: Tensor,
    in_dtype: Any,
    input_scale: Tensor | None = None,
    input_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """(data - zero point) * scale; the reverse of `simulated_quantize`, but for what rounding lost."""

    def dequantized(value: Any, scale: Any, zero_point: Any) -> Any:
        codes = (SQNN_DTYPE_TO_CODE[name] for name in _RANGES)
        active = tir_op.any(*(ops.equal(in_dtype, code) for code in codes))
        real = (value - zero_point.astype(value.dtype)) * scale.astype(value.dtype)
        return tir_op.if_then_else(active, real, value)

    return _by_channel(data, input_scale, input_zero_point, axis, "simulated_dequantize", dequantized)


def _by_channel(
    data: Tensor, scale: Tensor | None, zero_point: Tensor | None, axis: int, function: str, rule: Callable[..., Any]
) -> Tensor:
    if scale is None or zero_point is None:
        raise InvalidValue(f"topi.nn.{function}: expected a scale and a zero point")
    require_ndim(scale, 1, f"nn.{function}", "the scale")
    require_ndim(zero_point, 1, f"nn.{function}", "the zero point")
    axis = require_axis(axis, data.ndim, f"nn.{function}")

    def element(*i: PrimExpr) -> Any:
        # One element serves every channel.
        factors = (t(ops.floormod(i[axis], t.shape[0])) for t in (scale, zero_point))
        return rule(data(*i), *factors)

    return te.compute(data.shape, element)
