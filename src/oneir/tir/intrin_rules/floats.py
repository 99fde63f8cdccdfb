"""isnan, isinf, isfinite, nextafter, fmod: predicates of floats and steps between them."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import Call, PrimExpr, const
from ...ir.op import register_intrin_lowering
from ...runtime.error import TypeMismatch
from ..op import call_pure_extern, reinterpret
from .formula import Formula, like, select

_EXPONENT_BITS = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}


def _layout(dtype: DataType) -> tuple[str, int, int]:
    """The integer dtype of an IEEE float's bits, the mask of all but the sign, the pattern of infinity."""
    element = dtype.element
    if element not in _EXPONENT_BITS:
        raise TypeMismatch(
            f"isnan, isinf, isfinite and nextafter know {', '.join(_EXPONENT_BITS)}; found {element}: cast to float32"
        )
    mantissa = element.bits - 1 - _EXPONENT_BITS[element]
    return f"int{element.bits}", (1 << (element.bits - 1)) - 1, ((1 << _EXPONENT_BITS[element]) - 1) << mantissa


def _absolute_bits(x: PrimExpr) -> tuple[PrimExpr, Any]:
    integer, mask, infinity = _layout(x.dtype)
    return reinterpret(like(x.dtype, integer), x) & const(mask, integer), const(infinity, integer)


def _isnan(call: Call) -> PrimExpr:
    bits, infinity = _absolute_bits(call.args[0])
    return bits > infinity


def _isinf(call: Call) -> PrimExpr:
    bits, infinity = _absolute_bits(call.args[0])
    return ops.equal(bits, infinity)


def _isfinite(call: Call) -> PrimExpr:
    bits, infinity = _absolute_bits(call.args[0])
    return bits < infinity


register_intrin_lowering("tir.isnan", "default", f=_isnan)
register_intrin_lowering("tir.isinf", "default", f=_isinf)
register_intrin_lowering("tir.isfinite", "default", f=_isfinite)


def _nextafter(call: Call) -> PrimExpr:
    """One step in the bit pattern, away from 0 when y lies farther out; from 0 itself, to the smallest denormal."""
    integer, mask, _ = _layout(call.dtype)
    f = Formula()
    x, y = f.let(call.args[0], "x"), f.let(call.args[1], "y")
    bits = f.let(reinterpret(like(x.dtype, integer), x), "bits")
    sign_of_y = reinterpret(like(x.dtype, integer), y) & const(-mask - 1, integer)
    outwards = ops.equal(y > x, x > 0.0)
    step = select(outwards, ops.cast(bits.dtype, const(1, integer)), -1)
    step = select(ops.equal(x, 0.0), sign_of_y | const(1, integer), bits + step)
    moved = reinterpret(x.dtype, step)
    moved = select(ops.equal(x, y), y, moved)
    return f.close(select(ops.logical_or(ops.not_equal(x, x), ops.not_equal(y, y)), x + y, moved))


register_intrin_lowering("tir.nextafter", "llvm", f=_nextafter)


def _fmod(call: Call) -> PrimExpr:
    """Long division bit by bit, which the C library does; half precision goes through float32, where it is exact."""
    if call.dtype.element == "float64":
        return call_pure_extern(call.dtype, "fmod", *call.args)
    wide = like(call.dtype, "float32")
    return ops.cast(call.dtype, call_pure_extern(wide, "fmodf", *(ops.cast(wide, a) for a in call.args)))


register_intrin_lowering("tir.fmod", "llvm", f=_fmod)
