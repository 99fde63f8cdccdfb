"""The structures of the packed convention, field by field: what `tvm_struct_get` and `tvm_struct_set` name by number.

`tvm_struct_get(address, index, field, dtype)` is the field of the `index`-th structure that `address` points to. Where
a field lies depends on the size of the machine's pointers, so only code generation knows it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Layout(NamedTuple):
    """Where a field lies: bytes from the start, and the size of the whole structure in bytes."""

    offset: int
    size: int


class _Declared(NamedTuple):
    """A field's number, its dtype in memory, and its layouts where pointers have 8 bytes and where they have 4."""

    code: int
    dtype: str
    wide: Layout
    narrow: Layout


def _declared(code: int, dtype: str, offset: int, size: int, narrow: tuple[int, int] | None = None) -> _Declared:
    wide = Layout(offset, size)
    return _Declared(code, dtype, wide, wide if narrow is None else Layout(*narrow))


class Field(Enum):
    """Fields of a `DLTensor` (48 bytes; 40 with pointers of 4 bytes), of a packed `Value` (16), and of arrays of int64.

    `TENSOR_DTYPE` is the dtype's code, bits and lanes in one: code + bits * 2**8 + lanes * 2**16.
    """

    TENSOR_ADDRESS = _declared(0, "handle", 0, 48, (0, 40))
    TENSOR_DATA = _declared(1, "handle", 0, 48, (0, 40))
    TENSOR_DEVICE_TYPE = _declared(2, "int32", 8, 48, (4, 40))
    TENSOR_DEVICE_ID = _declared(3, "int32", 12, 48, (8, 40))
    TENSOR_NDIM = _declared(4, "int32", 16, 48, (12, 40))
    TENSOR_DTYPE = _declared(5, "uint32", 20, 48, (16, 40))
    TENSOR_SHAPE = _declared(8, "handle", 24, 48, (20, 40))
    TENSOR_STRIDES = _declared(9, "handle", 32, 48, (24, 40))
    TENSOR_BYTE_OFFSET = _declared(10, "uint64", 40, 48, (32, 40))
    VALUE_ADDRESS = _declared(11, "handle", 0, 16)
    VALUE_CODE = _declared(12, "int32", 0, 16)
    VALUE_FLAGS = _declared(13, "int32", 4, 16)
    VALUE_INT = _declared(14, "int64", 8, 16)
    VALUE_FLOAT = _declared(15, "float64", 8, 16)
    VALUE_HANDLE = _declared(16, "handle", 8, 16)
    INT64_ELEMENT = _declared(17, "int64", 0, 8)

    @property
    def code(self) -> int:
        """The number by which calls name the field."""
        return self.value.code

    @property
    def is_address(self) -> bool:
        """Whether the field stands for the structure's own address."""
        return self in (Field.TENSOR_ADDRESS, Field.VALUE_ADDRESS)

    def layout(self, pointer_bytes: int) -> Layout:
        """Where the field lies on a machine whose pointers have 8 or 4 bytes."""
        return self.value.wide if pointer_bytes == 8 else self.value.narrow


_BY_CODE = {field.code: field for field in Field}


def field_of(code: int) -> Field | None:
    """The field of that number; None when there is none."""
    return _BY_CODE.get(code)
