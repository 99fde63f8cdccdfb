"""Dtypes: what one value, or one vector of values, is.

A `DataType` is a `str` ("float32", "int8x16", "handle"), so it compares, prints and hashes as users write it; its
parts are parsed once, since every distinct spelling is interned.

    DataType("float32x8").bits    # 32
    DataType("float32x8").lanes   # 8
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..runtime.dtype import DTypeName, data_type, dlpack_dtype
from ..runtime.error import InvalidValue, TypeMismatch

_FLOAT8 = {
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
}
_PATTERN = re.compile(r"(int|uint|float|bfloat)(\d+)(?:x(vscalex)?(\d+))?")
_FLOAT8_PATTERN = re.compile(r"(float8_e\w+?|float6_e\w+?|float4_e\w+?)(?:x(vscalex)?(\d+))?")
_interned: dict[str, DataType] = {}


class DataType(DTypeName):
    """An interned type name with its parts.

    Attributes
    ----------
    code: "int", "uint", "float", "bfloat", "bool", "handle" or "void"; the float8 family keeps its full name, and
        custom dtypes theirs without the width: "custom[posit]".
    bits: width of one lane in bits; 1 for bool, 64 for handles, 0 for void.
    lanes: number of lanes; for a scalable vector the multiple of vscale.
    scalable: whether `lanes` counts multiples of vscale.
    is_custom: whether it is registered with `oneir.target.datatype`, so that nothing is known but its width.
    """

    __slots__ = ("bits", "code", "element", "is_custom", "is_float", "is_int", "is_scalar", "lanes", "scalable")

    code: str
    bits: int
    lanes: int
    scalable: bool
    is_custom: bool
    is_float: bool
    is_int: bool
    is_scalar: bool
    element: DataType

    def __new__(cls, name: Any) -> DataType:
        found = _interned.get(name) if isinstance(name, str) else None
        return found if found is not None else _parse(name)

    def __reduce__(self):
        return (DataType, (str(self),))

    @property
    def type_code(self) -> int:
        """DLPack's type code."""
        return dlpack_dtype(str(self))[0]

    @property
    def is_uint(self) -> bool:
        """Whether it is an unsigned integer; bool is not counted."""
        return self.code == "uint"

    @property
    def is_bool(self) -> bool:
        return self.code == "bool"

    @property
    def is_handle(self) -> bool:
        return self.code == "handle"

    @property
    def is_index(self) -> bool:
        """Whether arith reasons about it: a scalar signed integer of 32 or 64 bits."""
        return self.code == "int" and self.lanes == 1 and self.bits >= 32

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory: whole bytes a lane, except types below a byte, which are rounded up
        together.
        """
        return (
            (self.bits * self.lanes + 7) // 8
            if self.bits < 8 and self.code != "bool"
            else max(1, self.bits // 8) * self.lanes
        )

    def with_lanes(self, lanes: int, scalable: bool = False) -> DataType:
        """The same element type with another number of lanes."""
        if lanes == self.lanes and scalable == self.scalable:
            return self
        if lanes == 1 and not scalable:
            return self.element
        return DataType(f"{self.element}x{'vscalex' if scalable else ''}{lanes}")

    def to_numpy(self) -> np.dtype:
        """The NumPy dtype of one lane; the types NumPy lacks come from ml_dtypes."""
        name = str(self.element)
        if (self.code in ("int", "uint", "float") and self.bits >= 8) or self.code == "bool":
            return np.dtype(name)
        if self.code == "handle":
            return np.dtype("uint64")
        import ml_dtypes

        try:
            return np.dtype(getattr(ml_dtypes, name))
        except AttributeError:
            raise InvalidValue(f"dtype {name!r} has no NumPy counterpart") from None


def _parse(name: Any) -> DataType:
    if not isinstance(name, str):
        if name is bool:
            return DataType("bool")
        try:
            return DataType(np.dtype(name).name)
        except TypeError:
            raise InvalidValue(f"expected a dtype such as 'float32' or 'int8x4', found {name!r}") from None
    code, bits, lanes, scalable = name, 0, 1, False
    if name == "" or name == "void":
        name, code = "void", "void"
    elif name == "handle":
        bits = 64
    elif name == "bfloat":
        return DataType("bfloat16")
    elif name == "bool" or (name.startswith("boolx") and name[5:].replace("vscalex", "").isdigit()):
        code, bits = "bool", 1
        scalable = "vscalex" in name
        lanes = int(name.rsplit("x", 1)[1]) if name != "bool" else 1
    elif match := _PATTERN.fullmatch(name):
        code, bits, scalable, lanes = match[1], int(match[2]), bool(match[3]), int(match[4] or 1)
    elif (match := _FLOAT8_PATTERN.fullmatch(name)) and (match[1] in _FLOAT8 or not name.startswith("float8")):
        code, bits, scalable, lanes = match[1], int(match[1][5]), bool(match[2]), int(match[3] or 1)
    elif name.startswith("custom["):
        try:
            _, bits, lanes = dlpack_dtype(name)
        except TypeMismatch:
            raise InvalidValue(
                f"unknown dtype {name!r}: expected custom[NAME]BITS, where oneir.target.datatype.register(NAME, code) "
                "was called"
            ) from None
        code = name[: name.index("]") + 1]
    else:
        raise InvalidValue(
            f'unknown dtype {name!r}: expected bool, int/uint/float with a width ("int8"), bfloat16, a float8 format '
            '("float8_e4m3fn"), handle, void or a registered "custom[NAME]32", with an optional "xLANES"'
        )
    if lanes < 1 or (code in ("int", "uint", "float", "bfloat") and not 1 <= bits <= 128):
        raise InvalidValue(f"unknown dtype {name!r}: width and lanes must be positive")
    if lanes == 1 and not scalable and "x" in name.rsplit("_", 1)[-1] and name[-2:] == "x1":
        return DataType(name[:-2])
    if code == "uint" and bits == 1:
        return DataType("bool").with_lanes(lanes, scalable)
    self = str.__new__(DataType, name)
    self.code, self.bits, self.lanes, self.scalable = code, bits, lanes, scalable
    self.is_custom = code.startswith("custom")
    self.is_float = code.startswith(("float", "bfloat", "custom"))
    self.is_int = code in ("int", "uint")
    self.is_scalar = lanes == 1 and not scalable
    self.element = (
        self if self.is_scalar else DataType("bool" if code == "bool" else code if "_" in code else f"{code}{bits}")
    )
    interned = _interned.setdefault(name, self)
    if name == "void":
        _interned[""] = interned
    return interned


BOOL = DataType("bool")
INT8 = DataType("int8")
INT32 = DataType("int32")
INT64 = DataType("int64")
UINT8 = DataType("uint8")
FLOAT16 = DataType("float16")
FLOAT32 = DataType("float32")
FLOAT64 = DataType("float64")
HANDLE = DataType("handle")
VOID = DataType("void")


@data_type.provide
def _data_type() -> type:
    return DataType
