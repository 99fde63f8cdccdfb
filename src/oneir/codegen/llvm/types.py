"""How dtypes look in LLVM: in registers, and in memory.

A value below a byte (bool, int4) takes a byte in memory and its own width in a register.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from ...ir.dtype import DataType
from ...runtime.error import CompileError

_FLOATS = {("float", 16): "half", ("float", 32): "float", ("float", 64): "double", ("bfloat", 16): "bfloat"}


def scalar_type(dtype: DataType) -> str:
    """The type of one lane in a register."""
    if dtype.code in ("int", "uint", "bool"):
        return f"i{dtype.bits}"
    if dtype.is_handle:
        return "ptr"
    name = _FLOATS.get((dtype.code, dtype.bits))
    if name is None:
        raise CompileError(
            f"dtype {dtype} cannot be computed with on this target; "
            "run BF16ComputeLegalize and FP8ComputeLegalize first"
        )
    return name


def register_type(dtype: DataType) -> str:
    """The type of a value in a register."""
    return with_lanes(scalar_type(dtype), dtype)


def memory_type(dtype: DataType) -> str:
    """The type of a value in memory."""
    return with_lanes(memory_scalar(dtype), dtype)


def memory_scalar(dtype: DataType) -> str:
    """The type of one element in memory."""
    if dtype.code in ("int", "uint", "bool") and dtype.bits < 8:
        return "i8"
    return scalar_type(dtype)


def with_lanes(element: str, dtype: DataType) -> str:
    """A vector of `element` with the lanes of `dtype`, or `element` for a scalar."""
    if dtype.is_scalar:
        return element
    return f"<{'vscale x ' if dtype.scalable else ''}{dtype.lanes} x {element}>"


def suffix(dtype: DataType) -> str:
    """How an overloaded intrinsic's name says a type: `v8f32`."""
    element = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16", "ptr": "p0"}.get(scalar_type(dtype))
    lanes = "" if dtype.is_scalar else f"{'nx' if dtype.scalable else ''}v{dtype.lanes}"
    return lanes + (element or scalar_type(dtype))


def literal(dtype: DataType, value: Any) -> str:
    """A scalar constant as text."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_int:
        return str(int(value))
    value = float(value)
    if dtype.code == "bfloat":
        bits = int(np.asarray(value, dtype.to_numpy()).view(np.uint16))
        return f"0xR{bits:04X}"
    if dtype.bits == 16:
        with np.errstate(over="ignore"):
            return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
    if dtype.bits == 32 and math.isfinite(value):
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def memory_suffix_of(dtype: DataType) -> str:
    """How an intrinsic's name says the type of a value in memory."""
    return suffix(DataType("int8").with_lanes(dtype.lanes, dtype.scalable) if dtype.bits < 8 else dtype)
