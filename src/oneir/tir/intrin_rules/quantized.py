"""q_multiply_shift, q_multiply_shift_per_axis: fixed-point multiplication of quantized integers."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Call, IntImm, PrimExpr, const
from ...ir.op import register_intrin_lowering
from .formula import like, select


def _rounded_shift(value: PrimExpr, count: PrimExpr) -> PrimExpr:
    """value / 2^count of int64, halves upwards; count is positive."""
    half = ops.shift_left(ops.cast(value.dtype, const(1, "int64")), count - 1)
    return ops.shift_right(value + half, count)


def _wide(x: Any) -> PrimExpr:
    return ops.cast(like(x.dtype, "int64"), x)


def _q_multiply_shift(call: Call) -> PrimExpr:
    """round(x * y * 2^(s - q)) for x in int32 and a y with q fractional bits."""
    x, y, q, s = call.args
    left = ops.maximum(s, 0)
    total = q - ops.minimum(s, 0)
    product = ops.shift_left(_wide(x), _wide(left)) * _wide(y)
    if isinstance(total, IntImm) and total.value == 0:
        return ops.cast(call.dtype, product)
    shifted = _rounded_shift(product, _wide(total))
    if not isinstance(total, IntImm):
        shifted = select(total > 0, shifted, product)
    return ops.cast(call.dtype, shifted)


def _q_multiply_shift_per_axis(call: Call) -> PrimExpr:
    """round(x * 2^left * y * 2^(-q - right)), each shift only where its flag says so."""
    x, y, left, right, q, has_left, _ = call.args
    value = _wide(x)
    value = select(ops.not_equal(has_left, 0), ops.shift_left(value, _wide(left)), value) * _wide(y)
    return ops.cast(call.dtype, _rounded_shift(value, _wide(q + right)))


register_intrin_lowering("tir.q_multiply_shift", "default", f=_q_multiply_shift)
register_intrin_lowering("tir.q_multiply_shift_per_axis", "default", f=_q_multiply_shift_per_axis)
