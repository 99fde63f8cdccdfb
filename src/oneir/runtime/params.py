"""Named tensors in one file: the safetensors format.

    save_param_dict_to_file({"weight": tensor(w)}, "model.safetensors")
    load_param_dict_from_file("model.safetensors")["weight"]

The format: the length of the header in 8 bytes, little-endian; the header, JSON, which gives dtype, shape and place of
every tensor; their items. Reading checks everything before any tensor is made, so a file from anywhere can be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .dtype import dtype_name, numpy_dtype
from .error import InvalidValue, TypeMismatch
from .tensor import Tensor, as_array, tensor

_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_ALIGNMENT = 8
_LONGEST_HEADER = 100_000_000
_MOST_DIMENSIONS = 64
"""What NumPy allows."""


def save_param_dict(params: Mapping[str, object]) -> bytes:
    """Named tensors, or arrays, as bytes. The order of the names is kept."""
    arrays = {name: as_array(value) for name, value in params.items()}
    header = params_header({name: (dtype_name(array.dtype), array.shape) for name, array in arrays.items()})
    return b"".join([header, *(array.tobytes() for array in arrays.values())])


def params_header(kinds: Mapping[str, tuple[str, Sequence[int]]]) -> bytes:
    """What a file begins with that has tensors of these dtypes and shapes; their items follow in this order."""
    header, position = {}, 0
    for name, (dtype, shape) in kinds.items():
        if not isinstance(name, str):
            raise TypeMismatch(f"parameters are named by str, found {name!r}")
        if dtype not in _NAMES:
            raise TypeMismatch(f"parameter {name!r} has the dtype {dtype}, which safetensors cannot hold")
        end = position + math.prod(shape) * numpy_dtype(dtype).itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def save_param_dict_to_file(params: Mapping[str, object], path: str | Path) -> None:
    """Writes named tensors, or arrays, to a file."""
    Path(path).write_bytes(save_param_dict(params))


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Tensor]:
    """The tensors in bytes of the safetensors format; `InvalidValue` for anything else."""
    content = np.frombuffer(bytes(param_bytes), np.uint8)
    return {name: tensor(stored.view(content)) for name, stored in stored_tensors(content).items()}


def load_param_dict_from_file(path: str | Path) -> dict[str, Tensor]:
    """The tensors in a file of the safetensors format; `InvalidValue`, which names the file, for any other."""
    try:
        return load_param_dict(Path(path).read_bytes())
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error}") from None


class StoredTensor(NamedTuple):
    """Where in a file a tensor stands, and what it is."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def view(self, content: np.ndarray) -> np.ndarray:
        """The tensor as a view of the file's bytes, uint8 `[bytes]`."""
        return content[self.begin : self.end].view(numpy_dtype(self.dtype)).reshape(self.shape)


def stored_tensors(content: np.ndarray) -> dict[str, StoredTensor]:
    """What the header of a file says of its tensors, checked against its bytes, uint8 `[bytes]`.

    Raises `InvalidValue` for anything but the safetensors format.
    """
    size = int.from_bytes(content[:8].tobytes(), "little")
    if len(content) < 8 or size > min(len(content) - 8, _LONGEST_HEADER):
        raise InvalidValue(f"expected the safetensors format, found {len(content)} bytes with a header of {size}")
    try:
        header = json.loads(content[8 : 8 + size].tobytes().decode())  # UTF-8, where `loads` would guess
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"the header of the parameters is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise InvalidValue("the header of the parameters must be a JSON object")
    return {
        name: _stored(name, entry, 8 + size, len(content)) for name, entry in header.items() if name != "__metadata__"
    }


def _stored(name: str, entry: object, start: int, size: int) -> StoredTensor:
    """An entry of the header of a file of `size` bytes, whose items begin at `start`."""
    match entry:
        case {"dtype": str(code), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if code in _DTYPES:
            pass
        case _:
            raise InvalidValue(f"parameter {name!r}: expected a known dtype, a shape and two offsets, found {entry!r}")
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise InvalidValue(f"parameter {name!r}: expected a shape without negative extents, found {shape}")
    itemsize = numpy_dtype(_DTYPES[code]).itemsize
    if len(shape) > _MOST_DIMENSIONS or math.prod(max(extent, 1) for extent in shape) * itemsize >= 1 << 63:
        raise InvalidValue(f"parameter {name!r}: {code} of shape {shape} takes more than an array can have")
    needed = math.prod(shape) * itemsize
    if not 0 <= begin <= end <= size - start or end - begin != needed:
        raise InvalidValue(
            f"parameter {name!r}: {code} of shape {shape} takes {needed} bytes; "
            f"found the bytes from {begin} to {end} of {size - start}"
        )
    return StoredTensor(_DTYPES[code], tuple(shape), start + begin, start + end)
