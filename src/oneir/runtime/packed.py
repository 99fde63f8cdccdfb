"""The packed calling convention: how compiled functions are called, by Python and by each other.

A compiled function is native code of the type

    int32_t f(void* context, const Value* args, int32_t num_args, Value* result)

It returns 0, or another status and in `*result` an error: `Code.FAILURE` with the address of a static `Failure`, or
`Code.EXCEPTION` with the token of a Python exception that a callback raised.
"""

from __future__ import annotations

import ctypes
import enum


class Code(enum.IntEnum):
    """What a `Value` holds."""

    NONE = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    POINTER = 4
    TENSOR = 7
    """The address of a DLTensor."""
    STR = 8
    """The address of UTF-8 text that ends with a zero byte."""
    FAILURE = 64
    EXCEPTION = 65


READ_ONLY = 1
"""The flag of a `Code.TENSOR` whose memory must not be written."""


class _Payload(ctypes.Union):
    _fields_ = (("i", ctypes.c_int64), ("f", ctypes.c_double), ("p", ctypes.c_void_p))


class Value(ctypes.Structure):
    """One argument or result: a code, flags, and eight bytes."""

    _anonymous_ = ("payload",)
    _fields_ = (("code", ctypes.c_int32), ("flags", ctypes.c_int32), ("payload", _Payload))


class Failure(ctypes.Structure):
    """The error of a compiled function: the name of a Python exception, such as `ValueError`, and a message."""

    _fields_ = (("kind", ctypes.c_char_p), ("message", ctypes.c_char_p))
