"""The structures of the packed convention, field by field: what `tvm_struct_get` and `tvm_struct_set` name by number.

`tvm_struct_get(address, index, field, dtype)` is the field of the `index`-th structure that `address` points to.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Layout(NamedTuple):
    """Where a field lies: bytes from the start, dtype in memory, and the size of the whole structure in bytes."""

    code: int
    offset: int
    dtype: str
    size: int


class Field(Enum):
    """Fields of a `DLTensor` (48 bytes), of a packed `Value` (16 bytes), and of plain arrays of int64.

    `TENSOR_DTYPE` is the dtype's code, bits and lanes in one: code + bits * 2**8 + lanes * 2**16.
    """

    TENSOR_ADDRESS = Layout(0, 0, "handle", 48)
    TENSOR_DATA = Layout(1, 0, "handle", 48)
    TENSOR_DEVICE_TYPE = Layout(2, 8, "int32", 48)
    TENSOR_DEVICE_ID = Layout(3, 12, "int32", 48)
    TENSOR_NDIM = Layout(4, 16, "int32", 48)
    TENSOR_DTYPE = Layout(5, 20, "uint32", 48)
    TENSOR_SHAPE = Layout(8, 24, "handle", 48)
    TENSOR_STRIDES = Layout(9, 32, "handle", 48)
    TENSOR_BYTE_OFFSET = Layout(10, 40, "uint64", 48)
    VALUE_ADDRESS = Layout(11, 0, "handle", 16)
    VALUE_CODE = Layout(12, 0, "int32", 16)
    VALUE_FLAGS = Layout(13, 4, "int32", 16)
    VALUE_INT = Layout(14, 8, "int64", 16)
    VALUE_FLOAT = Layout(15, 8, "float64", 16)
    VALUE_HANDLE = Layout(16, 8, "handle", 16)
    INT64_ELEMENT = Layout(17, 0, "int64", 8)

    @property
    def code(self) -> int:
        """The number by which calls name the field."""
        return self.value.code

    @property
    def is_address(self) -> bool:
        """Whether the field stands for the structure's own address."""
        return self in (Field.TENSOR_ADDRESS, Field.VALUE_ADDRESS)


_BY_CODE = {field.code: field for field in Field}


def field_of(code: int) -> Field | None:
    """The field of that number; None when there is none."""
    return _BY_CODE.get(code)
