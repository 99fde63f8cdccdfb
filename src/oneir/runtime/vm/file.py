"""Files of compiled graphs.

A file begins with the library of the kernels, if there are any. Then come the program, as JSON, and at a multiple of
the page size the items of all constant tensors; a footer has the size of each part. Where the library has them already,
or a file beside this one, the program says where. Constants are mapped into memory, and read when they are used.
Everything else is checked before use: by a checksum against damage, and by `Program.verify`, since a malicious file has
a proper checksum as well.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...version import __version__
from ..digest import digests
from ..dtype import DTypeName, dlpack_dtype, numpy_dtype
from ..error import InvalidValue, LibraryError, OneIRError
from ..library import checksum, other_format, write_file
from ..mapped import release
from ..object import ShapeTuple
from ..signature import Param, Signature
from ..tensor import Tensor
from .native import NativeSpec
from .program import (
    Arg,
    Call,
    Constant,
    Cost,
    Function,
    Goto,
    If,
    Instruction,
    Note,
    PackedFunction,
    Program,
    Ret,
    VMFunction,
)

_FORMAT = 3
_MAGIC = b"oneir-graph-1:::"
_SIZES = struct.Struct("<QQQ")
"""The sizes of the library, of the program and of the constants."""
_FOOTER = len(_MAGIC) + _SIZES.size + 32
_PAGE = 4096
_ALIGNMENT = 128
_CHECKED = 1 << 20
"""Tensors up to this many bytes are compared with their checksum when a file is read; larger ones are not read."""
_MAX_EXTENT = 1 << 48
_MAX_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Stored:
    """The contents of a file. The format of `library` is that of whoever writes the file."""

    program: Program
    natives: dict[str, NativeSpec]
    """How native functions are called."""
    library: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where the items of constants lie that do not follow the program."""

    start: int
    """The byte of the library, or of the other file."""
    size: int
    file: str | None = None
    """The name of another file of the same folder."""


def write_executable(
    path: Path, program: Program, library: bytes, natives: dict[str, NativeSpec], place: Place | None = None
) -> None:
    """Writes a program, the bytes of its library, and how its native functions are called.

    `place` says where the items of constants lie (`constant_items`), if they are not to be written as well.
    """
    write_file(path, encode(Stored(program, natives, library), place))


def constant_items(program: Program) -> list[tuple[int, int, np.ndarray]]:
    """The constant tensors of a program, in order: their index, at which byte they lie among all, and their items."""
    found: list[tuple[int, int, np.ndarray]] = []
    end = 0
    for index, constant in enumerate(program.constants):
        if isinstance(constant, Tensor):
            items = np.ascontiguousarray(constant).reshape(-1).view(np.uint8)
            offset = -(-end // _ALIGNMENT) * _ALIGNMENT
            found.append((index, offset, items))
            end = offset + items.nbytes
    return found


def encode(
    stored: Stored, place: Place | None = None, checksums: Sequence[bytes] | None = None
) -> Iterator[bytes | memoryview]:
    """The content of a file, in parts that are written one after the other; for `place` see `write_executable`.

    `checksums` are those of the constants' items, where they are known.
    """
    items = constant_items(stored.program)
    document = _encode(stored.program, items, checksums)
    if place is not None:
        document["data"] = [place.start, place.size, place.file]
    document["natives"] = {name: spec.to_json() for name, spec in stored.natives.items()}
    text = json.dumps(document, separators=(",", ":")).encode()
    return _parts(stored.library, text, items if place is None else [])


def _parts(library: bytes, text: bytes, items: list[tuple[int, int, np.ndarray]]) -> Iterator[bytes | memoryview]:
    yield library
    yield text
    yield b"\0" * (-(len(library) + len(text)) % _PAGE)
    yield from encode_items(items)
    sizes = _SIZES.pack(len(library), len(text), size_of(items))
    yield _MAGIC + sizes + checksum(text + sizes)


def encode_items(items: list[tuple[int, int, np.ndarray]]) -> Iterator[bytes | memoryview]:
    """The items of constants, each at its place, in parts that are written one after the other."""
    end = 0
    for _, offset, part in items:
        yield b"\0" * (offset - end)
        yield part.data
        release(part)
        end = offset + part.nbytes


def size_of(items: list[tuple[int, int, np.ndarray]]) -> int:
    """The bytes that the items of constants take."""
    return items[-1][1] + items[-1][2].nbytes if items else 0


def checksums_of(items: list[tuple[int, int, np.ndarray]]) -> list[bytes]:
    """The checksum of the items of each constant."""
    return digests([part.data for _, _, part in items])


def decode(path: Path, checked: int | None = _CHECKED) -> Stored | None:
    """The contents of a file; None if it is of another kind, or cannot be read.

    Constants up to `checked` bytes are compared with their checksum, all if it is None. Raises `LibraryError` for a
    damaged file, and for a program that breaks the rules.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _FOOTER:
                return None
            file.seek(size - _FOOTER)
            footer = file.read(_FOOTER)
            return _read(path, file, size, footer, checked) if footer.startswith(_MAGIC) else None
    except OSError as error:
        if isinstance(error, LibraryError):
            raise
        return None


def _read(path: Path, file: BinaryIO, size: int, footer: bytes, checked: int | None) -> Stored:
    sizes = footer[len(_MAGIC) : len(_MAGIC) + _SIZES.size]
    library_size, text_size, data_size = _SIZES.unpack(sizes)
    start = -(-(library_size + text_size) // _PAGE) * _PAGE
    if start + data_size + _FOOTER != size:
        raise LibraryError(f"{path} is damaged: its parts do not add up to its size; copy or export it again")
    file.seek(0)
    library, text = file.read(library_size), file.read(text_size)
    if checksum(text + sizes) != footer[-32:]:
        raise LibraryError(f"{path} is damaged: its checksum does not match; copy or export it again")
    try:
        document = json.loads(text)
        if isinstance(document, dict) and "data" in document:
            mapped = _placed(path, file, library_size, document["data"])
        else:
            mapped = _mapped(file, start, data_size)
        decoder = _Decoder(mapped)
        program = decoder.program(document)
        decoder.compare(checked)
        program.verify()
        return Stored(program, _natives(document.get("natives", {}), program), library)
    except LibraryError:
        raise
    except (OneIRError, ValueError, RecursionError) as error:
        raise LibraryError(f"{path} holds no proper program: {error}; export it again") from error


def _mapped(file: BinaryIO, start: int, size: int) -> np.ndarray | None:
    """The memory of a part of a file; None for nothing."""
    if not size:
        return None
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)[start : start + size]


def _placed(path: Path, file: BinaryIO, library_size: int, place: object) -> np.ndarray | None:
    """The items of constants that lie in the library, or in another file of the same folder."""
    match place:
        case [int(start), int(size), None] if min(start, size) >= 0 and start + size <= library_size:
            return _mapped(file, start, size)
        case [int(start), int(size), str(name)] if min(start, size) >= 0 and Path(name).name == name:
            beside = path.parent / name
            try:
                with beside.open("rb") as other:
                    if os.fstat(other.fileno()).st_size == start + size:
                        return _mapped(other, start, size)
            except OSError as error:
                raise LibraryError(f"the weights of {path}, {beside}, cannot be read: {error.strerror}") from error
            raise LibraryError(f"{beside} has another size than the weights of {path}; export both again")
    raise _unexpected("where the constants lie", place)


def _natives(value: object, program: Program) -> dict[str, NativeSpec]:
    """How native functions are called, checked against the program that they are of."""
    if not isinstance(value, dict):
        raise _unexpected("native functions by name", value)
    found, constants = {}, program.constants
    functions = {function.name: function for function in program.functions if isinstance(function, VMFunction)}
    for name, data in value.items():
        spec = NativeSpec.from_json(data)
        function = functions.get(name)
        fits = function is not None and function.signature is not None and len(function.params) == spec.params
        if not fits or not all(0 <= c < len(constants) and isinstance(constants[c], Tensor) for c in spec.constants):
            raise _unexpected(f"the native form of {name!r}", data)
        found[name] = spec
    return found


# Writing -------------------------------------------------------------------------------------------------------------


def _encode(
    program: Program, items: list[tuple[int, int, np.ndarray]], checksums: Sequence[bytes] | None
) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "oneir": __version__,
        "functions": [_encode_function(function) for function in program.functions],
        "constants": _encode_constants(program.constants, items, checksums or checksums_of(items)),
        "names": program.constant_names,
        "devices": program.devices,
    }


def _encode_function(function: Function) -> list[object]:
    if isinstance(function, PackedFunction):
        return ["packed", function.name, function.cost]
    signature = None if function.signature is None else function.signature.to_json()
    instructions = [_encode_instruction(instruction) for instruction in function.instructions]
    return ["vm", function.name, function.params, function.registers, instructions, signature]


def _encode_instruction(instruction: Instruction) -> list[object]:
    match instruction:
        case Call(dst, callee, args, note):
            return ["call", dst, callee, [arg.word() for arg in args], note]
        case Ret(result):
            return ["ret", result]
        case Goto(offset):
            return ["goto", offset]
        case If(cond, false_offset):
            return ["if", cond, false_offset]


def _encode_constants(
    constants: list[Constant], items: list[tuple[int, int, np.ndarray]], checksums: Sequence[bytes]
) -> list[list[object]]:
    tensors = {index: (offset, found.hex()) for (index, offset, _), found in zip(items, checksums, strict=True)}
    return [_encode_constant(constant, tensors.get(index)) for index, constant in enumerate(constants)]


def _encode_constant(constant: Constant, where: tuple[int, str] | None) -> list[object]:
    match constant:
        case Tensor():
            return ["tensor", constant.dtype, constant.shape, *(where or ())]
        case ShapeTuple():
            return ["shape", constant]
        case DTypeName():
            return ["dtype", constant]
        case str():
            return ["str", constant]
        case float():
            return ["float", constant]
        case _:
            return ["int", constant]


# Reading -------------------------------------------------------------------------------------------------------------


class _Decoder:
    """Makes a program of untrusted JSON. Raises `InvalidValue` for anything but a program."""

    def __init__(self, data: np.ndarray | None):
        self.data = np.empty(0, np.uint8) if data is None else data
        self.checksums: list[tuple[np.ndarray, str]] = []
        """The items of constants, and the checksum that each should have."""

    def program(self, value: object) -> Program:
        match value:
            case {**found} if found.get("format") != _FORMAT:
                raise InvalidValue(f"it {other_format(found, _FORMAT)}")
            case {"functions": [*functions], "constants": [*constants], "names": {**names}, "devices": [*devices]}:
                pass
            case _:
                raise InvalidValue("expected functions, constants, names and devices")
        if not all(type(index) is int for index in names.values()):
            raise InvalidValue("expected the places of named constants")
        return Program(
            [self.function(f) for f in functions],
            [self.constant(c) for c in constants],
            names,
            [self.device(d) for d in devices],
        )

    def device(self, value: object) -> tuple[int, int]:
        match value:
            case [int(kind), int(number)] if kind > 0 and number >= 0:
                return kind, number
        raise _unexpected("a device", value)

    def function(self, value: object) -> Function:
        match value:
            case ["packed", str(name), None]:
                return PackedFunction(name)
            case ["packed", str(name), [int() | float() as flops, int() | float() as size]]:
                return PackedFunction(name, Cost(flops, size))
            case ["vm", str(name), [*params], int(registers), [*instructions], signature] if _are_texts(params):
                steps = tuple(self.instruction(instruction) for instruction in instructions)
                return VMFunction(name, tuple(params), registers, steps, self.signature(signature))
        raise _unexpected("a function", value)

    def instruction(self, value: object) -> Instruction:
        match value:
            case ["call", int(dst), int(callee), [*words], note] if all(type(word) is int for word in words):
                return Call(dst, callee, tuple(map(Arg.from_word, words)), self.note(note))
            case ["ret", int(result)]:
                return Ret(result)
            case ["goto", int(offset)]:
                return Goto(offset)
            case ["if", int(cond), int(false_offset)]:
                return If(cond, false_offset)
        raise _unexpected("an instruction", value)

    def note(self, value: object) -> Note | None:
        match value:
            case None:
                return None
            case [None | str() as operator, None | str() as source]:
                return Note(operator, source)
        raise _unexpected("a note", value)

    def signature(self, value: object) -> Signature | None:
        match value:
            case None:
                return None
            case [str(name), [*params]]:
                return Signature(name, tuple(self.param(param) for param in params))
            case [str(name), [*params], [*results]] if _are_texts(results):
                return Signature(name, tuple(self.param(param) for param in params), tuple(results))
        raise _unexpected("a signature", value)

    def param(self, value: object) -> Param:
        match value:
            case [str(name), "tensor" | "int" | "float" | "bool" | "handle" as kind, dtype, shape, strides, *rest]:
                pass
            case _:
                raise _unexpected("a parameter", value)
        if dtype is not None:
            dlpack_dtype(_text(dtype))
        match rest:
            case [bool(writable), int(alignment), int(device_type), int() | None as number] if alignment > 0:
                extents = self.extents(shape), self.extents(strides)
                return Param(name, kind, dtype, *extents, writable, alignment, device_type, number)
        raise _unexpected("a parameter", value)

    def extents(self, value: object) -> tuple[int | str | None, ...] | None:
        match value:
            case None:
                return None
            case [*items]:
                return tuple(e if e is None or type(e) is int else _text(e) for e in items)
        raise _unexpected("extents", value)

    def constant(self, value: object) -> Constant:
        match value:
            case ["tensor", str(dtype), [*shape], int(offset), str(digest)] if _are_extents(shape):
                return self.tensor(dtype, tuple(shape), offset, digest)
            case ["shape", [*extents]] if all(type(extent) is int for extent in extents):
                return ShapeTuple(extents)
            case ["dtype", str(name)]:
                dlpack_dtype(name)
                return DTypeName(name)
            case ["str", str(constant)] | ["float", float(constant)] | ["int", int(constant)]:
                return constant
        raise _unexpected("a constant", value)

    def tensor(self, dtype: str, shape: tuple[int, ...], offset: int, digest: str) -> Tensor:
        nbytes = math.prod(shape) * numpy_dtype(dtype).itemsize
        if offset < 0 or offset % _ALIGNMENT or offset + nbytes > len(self.data):
            raise InvalidValue(
                f"a constant of shape {shape} and dtype {dtype} at byte {offset} lies outside of {len(self.data)} bytes"
            )
        items = self.data[offset : offset + nbytes]
        self.checksums.append((items, digest))
        return Tensor(items.__array_interface__["data"][0], shape, dtype, owner=items, read_only=True)

    def compare(self, largest: int | None) -> None:
        """Compares the constants up to so many bytes with their checksums, all if it is None."""
        chosen = [(items, digest) for items, digest in self.checksums if largest is None or items.nbytes <= largest]
        for (items, digest), found in zip(chosen, digests([items.data for items, _ in chosen]), strict=True):
            if found.hex() != digest:
                raise InvalidValue(f"the constant of {items.nbytes} bytes is damaged")


def _unexpected(what: str, value: object) -> InvalidValue:
    return InvalidValue(f"expected {what}, found {value!r:.80}")


def _are_texts(values: list[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _are_extents(values: list[object]) -> bool:
    return all(type(value) is int and 0 <= value < _MAX_EXTENT for value in values)


def _text(value: object) -> str:
    """A text that is short enough to be parsed."""
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise _unexpected("a text", value)
    return value
