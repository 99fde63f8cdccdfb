"""GGUF, the file of llama.cpp: metadata and tensors of a model, mapped into memory.

    file = GGUFFile("model.gguf")
    file.metadata["general.architecture"]     # "llama"
    file.tensors["blk.0.attn_q.weight"]       # shape (row-major), format, bytes

The format (ggml's `docs/gguf.md`, versions 2 and 3): "GGUF", version, counts of tensors and of metadata, the metadata
(key, type, value), for each tensor name, extents (the fastest first), format and offset, and then, aligned, the bytes.
Every count, length and offset is checked against the file before it is used, so a file from anywhere can be read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...runtime.error import InvalidValue, OneIRError
from .blocks import FORMATS, stored_bytes
from .source import map_file

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_DEEPEST_ARRAY = 4
_MAX_DIMENSIONS = 4
_TYPES = (
    *("F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K"),
    *("Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16"),
    *("I32", "I64", "F64", "IQ1_M", "BF16", "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "TQ1_0", "TQ2_0", "IQ4_NL_4_4"),
    *("IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4", "NVFP4", "Q1_0"),
)
"""ggml's names of its formats, by number."""


class GGUFTensor(NamedTuple):
    """A tensor of a file."""

    shape: tuple[int, ...]
    """As NumPy has it: the extent whose items are neighbours last."""
    format: str
    """ggml's name, such as "Q4_K"."""
    data: np.ndarray
    """Its bytes, uint8 `[bytes]`: a view of the file."""


class GGUFFile:
    """The metadata and the tensors of a GGUF file, by name.

    Metadata are int, float, bool, str, lists of str, and arrays of numbers. A tensor whose format is not read has no
    bytes here; who dequantizes it is told. Raises `InvalidValue`, which names the file, for any other file.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        content = map_file(self.path)
        cursor = _Cursor(content, self.path)
        if cursor.take(4) != b"GGUF":
            raise cursor.error("expected a GGUF file, which begins with the letters GGUF", 0)
        self.version = cursor.number("<I")
        if self.version not in (2, 3):
            raise cursor.error(f"expected version 2 or 3 of GGUF, little endian, found {self.version}", 4)
        tensors, entries = cursor.number("<Q"), cursor.number("<Q")
        self.metadata: dict[str, object] = {}
        self.entries: dict[str, np.ndarray] = {}
        """The bytes of each of the metadata: key, type and value."""
        for _ in range(entries):
            first = cursor.position
            key, kind = cursor.string(), cursor.number("<I")
            if key in self.metadata:
                raise cursor.error(f"the metadata {key!r} are there twice")
            self.metadata[key] = cursor.value(kind)
            self.entries[key] = content[first : cursor.position]
        infos = [_info(cursor) for _ in range(tensors)]
        start = cursor.position + -cursor.position % self.alignment
        self.tensors: dict[str, GGUFTensor] = {}
        for name, shape, kind, offset in infos:
            if name in self.tensors:
                raise InvalidValue(f"{self.path}: the tensor {name!r} is there twice")
            self.tensors[name] = self._tensor(content[start:], name, shape, kind, offset)

    @property
    def alignment(self) -> int:
        """Of the bytes of a tensor."""
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
            raise InvalidValue(f"{self.path}: expected a power of two as general.alignment, found {alignment!r}")
        return alignment

    def _tensor(self, data: np.ndarray, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GGUFTensor:
        form = _TYPES[kind] if kind < len(_TYPES) else f"number {kind}"
        if form not in FORMATS:
            return GGUFTensor(shape, form, data[:0])
        try:
            size = stored_bytes(shape, form)
        except OneIRError as error:
            raise InvalidValue(f"{self.path}: the tensor {name!r}: {error}") from None
        if offset + size > len(data):
            raise InvalidValue(
                f"{self.path}: the tensor {name!r}, {form} of shape {shape}, takes {size} bytes from {offset} on, of "
                f"{len(data)} that follow the header; the file may be cut short"
            )
        return GGUFTensor(shape, form, data[offset : offset + size])


def gguf_header(
    entries: Mapping[str, bytes | np.ndarray], tensors: Mapping[str, tuple[tuple[int, ...], str]], alignment: int
) -> bytes:
    """What a GGUF file begins with, for metadata as `GGUFFile.entries` has them, and the shapes and formats of tensors.

    The bytes of tensors follow in this order, each filled up to the alignment.
    """
    parts = [
        b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)),
        *(bytes(entry) for entry in entries.values()),
    ]
    offset = 0
    for name, (shape, form) in tensors.items():
        parts.append(_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape)))
        parts.append(struct.pack("<IQ", _TYPES.index(form), offset))
        size = stored_bytes(shape, form)
        offset += size + -size % alignment
    header = b"".join(parts)
    return header + bytes(-len(header) % alignment)


def gguf_number(key: str, value: int) -> bytes:
    """An entry of `GGUFFile.entries`: a number that is no less than 0."""
    return _string(key) + struct.pack("<II", 4, value)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


class _Cursor:
    """Reads a file from its beginning, and never past its end."""

    def __init__(self, content: np.ndarray, path: Path):
        self.content = content.data
        self.path = path
        self.position = 0

    def error(self, message: str, position: int | None = None) -> InvalidValue:
        return InvalidValue(f"{self.path}: {message} (at byte {self.position if position is None else position})")

    def take(self, size: int) -> bytes:
        self.need(size)
        self.position += size
        return bytes(self.content[self.position - size : self.position])

    def need(self, size: int) -> None:
        if size > len(self.content) - self.position:
            left = len(self.content) - self.position
            raise self.error(f"expected {size} more bytes, found {left}; the file may be cut short")

    def number(self, code: str) -> int:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        size, start = self.number("<Q"), self.position
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"expected text in UTF-8: {error}", start) from None

    def value(self, kind: int, depth: int = 0) -> object:
        """A value of the metadata, of a type by its number."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth == _DEEPEST_ARRAY:
            raise self.error(f"expected a type of metadata, found number {kind}, {depth} arrays deep")
        kind, count = self.number("<I"), self.number("<Q")
        if kind in _SCALARS:
            dtype = np.dtype(_SCALARS[kind])
            return np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if kind == _STRING:
            return self.strings(count)
        self.need(count * 12)  # the least that an array takes
        return [self.value(kind, depth + 1) for _ in range(count)]

    def strings(self, count: int) -> list[str]:
        """Many strings: vocabularies have hundreds of thousands, so this is `string` without its calls."""
        self.need(count * 8)
        content, position, length = self.content, self.position, struct.Struct("<Q").unpack_from
        result: list[str] = []
        try:
            for _ in range(count):
                start = position + 8
                position = start + length(content, position)[0]
                if position > len(content):
                    break
                result.append(str(content[start:position], "utf-8"))
            else:
                self.position = position
                return result
        except UnicodeDecodeError as error:
            raise self.error(f"expected text in UTF-8 as string {len(result)} of an array: {error}") from None
        except struct.error:
            pass
        raise self.error(f"string {len(result)} of {count} of an array goes past the end of the file")


def _info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, number of the format and offset of a tensor."""
    name, rank = cursor.string(), cursor.number("<I")
    if rank > _MAX_DIMENSIONS:
        raise cursor.error(f"expected at most {_MAX_DIMENSIONS} dimensions of the tensor {name!r}, found {rank}")
    shape = tuple(cursor.number("<Q") for _ in range(rank))[::-1]
    if math.prod(max(extent, 1) for extent in shape) >= 1 << 60:
        raise cursor.error(f"the tensor {name!r} is said to have the shape {shape}")
    return name, shape, cursor.number("<I"), cursor.number("<Q")
