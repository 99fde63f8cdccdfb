"""Names of dtypes, and what they are to NumPy and to DLPack.

    dtype_name(np.float32)        # "float32"
    dlpack_dtype("bfloat16")      # (4, 16, 1): type code, bits, lanes
    numpy_dtype("bfloat16")       # dtype(bfloat16), from ml_dtypes

A dtype is a `str` everywhere in OneIR. A vector of lanes is written after an `x`: `float32x4`.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Any

import numpy as np

from .error import InvalidValue, TypeMismatch
from .hook import Hook

data_type: Hook[[], type] = Hook("data_type", "oneir.ir.dtype")
"""The class `DataType`, which programs know as one of the runtime's."""


class DataTypeCode(enum.IntEnum):
    """DLPack's type codes."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    BOOL = 6


_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 6}
_SMALL_FLOATS = {
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
    "float6_e2m3fn": (15, 6),
    "float6_e3m2fn": (16, 6),
    "float4_e2m1fn": (17, 4),
}
_custom: dict[str, int] = {}
_FIRST_CUSTOM = 129
_SMALL_FLOAT_NAMES = {pair: name for name, pair in _SMALL_FLOATS.items()}
_NAMES = {code: name for name, code in _CODES.items()}

# Those that a tensor can hold. NumPy knows the first, ml_dtypes the others (one byte an item below eight bits).
_NUMPY_NAMES = frozenset(
    [
        "bool",
        "float16",
        "float32",
        "float64",
        *(f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64)),
    ]
)
_ML_NAMES = frozenset(["bfloat16", "int2", "int4", "uint2", "uint4", *_SMALL_FLOATS])


class DTypeName(str):
    """The name of a dtype, where any text could stand as well: among the constants of a program."""

    __slots__ = ()


def register_custom(name: str, code: int) -> None:
    """Makes `custom[NAME]BITS` the name of dtypes with a type code of their own.

    Raises `InvalidValue` for a code below 129, which DLPack may give a meaning, or above 255, for a name that is no
    identifier, and for a name or a code that has another partner already.
    """
    if not re.fullmatch(r"\w+", name):
        raise InvalidValue(f"the name of a custom dtype must be an identifier, found {name!r}")
    if not _FIRST_CUSTOM <= code <= 255:
        raise InvalidValue(
            f"the type code of a custom dtype must be in [{_FIRST_CUSTOM}, 255], found {code} of {name!r}"
        )
    if _custom.get(name, code) != code:
        raise InvalidValue(f"the custom dtype {name!r} has the type code {_custom[name]} already, found {code}")
    if custom_name(code) not in (None, name):
        raise InvalidValue(f"the type code {code} belongs to the custom dtype {custom_name(code)!r}, not to {name!r}")
    _custom[name] = code


def custom_name(code: int) -> str | None:
    """The name of the custom dtype with a type code; None if there is none."""
    return next((name for name, known in list(_custom.items()) if known == code), None)


def any_custom() -> bool:
    """Whether a custom dtype is registered."""
    return bool(_custom)


@functools.lru_cache(maxsize=1024)
def dlpack_dtype(name: str) -> tuple[int, int, int]:
    """The DLPack type code, bits and lanes of a dtype; `TypeMismatch` for a name that is none."""
    match = re.fullmatch(r"(.+?)(?:x([1-9]\d*))?", name)
    scalar, lanes = (match[1], int(match[2] or 1)) if match else (name, 1)
    if scalar in _SMALL_FLOATS:
        return (*_SMALL_FLOATS[scalar], lanes)
    match = re.fullmatch(r"custom\[(\w+)\]([1-9]\d*)", scalar)
    if match and match[1] in _custom:
        return _custom[match[1]], int(match[2]), lanes
    match = re.fullmatch(r"([a-z]+)([1-9]\d*)?", scalar)
    if match and match[1] in _CODES and lanes < 1 << 16:
        default = {"bool": 8, "handle": 64, "bfloat": 16}.get(match[1])
        bits = int(match[2] or default or 0)
        if 0 < bits < 256:
            return _CODES[match[1]], bits, lanes
    raise TypeMismatch(f"{name!r} is no dtype; expected a name such as 'float32', 'int64', 'bool' or 'bfloat16'.")


@functools.lru_cache(maxsize=1024)
def name_of_dlpack(code: int, bits: int, lanes: int) -> str:
    """The name of a dtype given as DLPack does."""
    suffix = f"x{lanes}" if lanes != 1 else ""
    if (code, bits) in _SMALL_FLOAT_NAMES:
        return _SMALL_FLOAT_NAMES[code, bits] + suffix
    if code == _CODES["bool"] and bits == 8:
        return "bool" + suffix
    if code == _CODES["handle"] and bits == 64:
        return "handle" + suffix
    if code >= _FIRST_CUSTOM and (custom := custom_name(code)) is not None:
        return f"custom[{custom}]{bits}{suffix}"
    if code in _NAMES:
        return f"{_NAMES[code]}{bits}{suffix}"
    raise TypeMismatch(f"DLPack's dtype with code {code}, {bits} bits and {lanes} lanes is not supported.")


@functools.lru_cache(maxsize=256)
def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype whose items a tensor of dtype `name` holds; `TypeMismatch` if a tensor cannot hold it.

    That of a vector is an array of its lanes, so that a NumPy array of it has one more axis.
    """
    if name in _NUMPY_NAMES:
        return np.dtype(name)
    if name in _ML_NAMES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    code, bits, lanes = dlpack_dtype(name)
    if lanes > 1 and bits % 8 == 0:
        return np.dtype((numpy_dtype(name_of_dlpack(code, bits, 1)), (lanes,)))
    raise TypeMismatch(f"A tensor cannot hold dtype {name!r}.")


def dtype_name(dtype: Any) -> str:
    """The name of a dtype given as a name, a NumPy dtype or scalar type, or a PyTorch dtype."""
    if isinstance(dtype, str):
        return name_of_dlpack(*dlpack_dtype(dtype))
    text = str(dtype)
    name = text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype).name
    if name not in _NUMPY_NAMES and name not in _ML_NAMES:
        raise TypeMismatch(f"dtype {name!r} is not supported; a tensor holds booleans, integers and real numbers.")
    return name
