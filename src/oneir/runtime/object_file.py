"""Reading relocatable object files: which symbols one defines, and which it needs from elsewhere.

LLVM's loader does not validate its input, so `read_symbols` does. It reads the two formats that are loaded into a
process: Mach-O on macOS, and ELF everywhere else (LLVM's JIT uses it on Windows, too).

    symbols = read_symbols(data)
    symbols.defined, symbols.undefined
"""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple

from .error import LibraryError

_ELF_MACHINES = {
    3: "i386",
    8: "mips",
    21: "ppc64le",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
}
_MACHO_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_MACHINE_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


class ObjectSymbols(NamedTuple):
    """The symbols that an object file defines and needs, by their names in C.

    `hidden` ones are visible only to objects that it is linked with.
    """

    machine: str
    defined: frozenset[str]
    hidden: frozenset[str]
    undefined: frozenset[str]


def host_machine() -> str:
    """The processor family of this process: `x86_64`, `aarch64`, ..."""
    machine = platform.machine().lower()
    return _MACHINE_ALIASES.get(machine, machine)


def read_symbols(data: bytes, what: str = "object file") -> ObjectSymbols:
    """Check the structure of a relocatable object file and list its symbols.

    `what` names the object in errors. Raises `LibraryError` for anything that is not a whole, well-formed object for a
    64-bit little-endian machine. Relocations and code are not looked at.
    """
    try:
        if data[:4] == b"\x7fELF":
            return _read_elf(data, what)
        if data[:4] == b"\xcf\xfa\xed\xfe":
            return _read_macho(data, what)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise LibraryError(f"{what} is malformed: {error}. Build or export it again.") from error
    raise LibraryError(
        f"{what} is neither an ELF nor a Mach-O object: it begins with {data[:8]!r}. Build or export it again."
    )


def _malformed(what: str, why: str) -> LibraryError:
    return LibraryError(f"{what} is malformed: {why}. Build or export it again.")


def _name_at(strings: bytes, offset: int) -> str:
    """The zero-terminated name at `offset`; IndexError when there is none."""
    end = strings.find(b"\0", offset)
    if end < 0:
        raise IndexError("a symbol's name lies outside the string table")
    return strings[offset:end].decode()


def _read_elf(data: bytes, what: str) -> ObjectSymbols:
    if data[4:6] != b"\x02\x01":
        raise LibraryError(f"{what} is not for a 64-bit little-endian machine, the only kind that can be loaded.")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != 1:
        raise _malformed(what, f"ELF type {kind}, expected 1 (relocatable)")
    (table,) = struct.unpack_from("<Q", data, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 58)
    if entry_size != 64 or table < 64 or table + 64 * count > len(data) or names_index >= max(count, 1):
        raise _malformed(what, "its section table lies outside the file; the file may be truncated")

    # (name, type, flags, address, offset, size, link, info, alignment, entry size)
    sections = list(struct.iter_unpack("<IIQQQQIIQQ", data[table : table + 64 * count]))
    symtab = None
    for section in sections:
        _, section_type, _, _, offset, size, link, _, alignment, _ = section
        if section_type not in (0, 8) and offset + size > len(data):  # 8: NOBITS has no bytes in the file
            raise _malformed(what, "a section lies outside the file; the file may be truncated")
        if alignment & (alignment - 1) or alignment > 1 << 20 or size > 1 << 40 or link >= count:
            raise _malformed(what, "a section has an impossible size, link or alignment")
        if section_type == 2:
            symtab = section
    defined: set[str] = set()
    hidden: set[str] = set()
    undefined: set[str] = set()
    if symtab is not None:
        _, _, _, _, offset, size, link, _, _, symbol_size = symtab
        if symbol_size != 24 or size % 24:
            raise _malformed(what, "its symbol table has entries of the wrong size")
        strings = data[sections[link][4] : sections[link][4] + sections[link][5]]
        for name_offset, info, other, section_index, _, _ in struct.iter_unpack(
            "<IBBHQQ", data[offset : offset + size]
        ):
            if section_index >= count and section_index < 0xFF00:
                raise _malformed(what, "a symbol names a section that does not exist")
            # Local symbols (binding 0) are the object's own affair.
            if info >> 4 and name_offset:
                visible = hidden if other & 3 in (1, 2) else defined
                (undefined if section_index == 0 else visible).add(_name_at(strings, name_offset))
    undefined.discard("_GLOBAL_OFFSET_TABLE_")  # made by the linker
    name = _ELF_MACHINES.get(machine, f"ELF machine {machine}")
    return ObjectSymbols(name, frozenset(defined), frozenset(hidden), frozenset(undefined))


def _read_macho(data: bytes, what: str) -> ObjectSymbols:
    cpu, _, kind, command_count, commands_size = struct.unpack_from("<IIIII", data, 4)
    if kind != 1 or 32 + commands_size > len(data):
        raise _malformed(what, "not a whole relocatable Mach-O object; the file may be truncated")
    defined: set[str] = set()
    hidden: set[str] = set()
    undefined: set[str] = set()
    position = 32
    for _ in range(command_count):
        command, size = struct.unpack_from("<II", data, position)
        if size < 8 or position + size > 32 + commands_size:
            raise _malformed(what, "a load command has an impossible size")
        if command == 2:  # LC_SYMTAB
            symbols, count, strings_at, strings_size = struct.unpack_from("<IIII", data, position + 8)
            if symbols + 16 * count > len(data) or strings_at + strings_size > len(data):
                raise _malformed(what, "its symbol table lies outside the file; the file may be truncated")
            strings = data[strings_at : strings_at + strings_size]
            for name_offset, info, _, _, value in struct.iter_unpack("<IBBHQ", data[symbols : symbols + 16 * count]):
                if info & 0xE0 or not info & 1:  # debugging entries, and symbols that are not external
                    continue
                name = _name_at(strings, name_offset).removeprefix("_")
                if info & 0x0E == 0 and value == 0:
                    undefined.add(name)
                else:
                    (hidden if info & 0x10 else defined).add(name)  # 0x10: private extern
        position += size
    machine = _MACHO_MACHINES.get(cpu, f"Mach-O machine {cpu:#x}")
    return ObjectSymbols(machine, frozenset(defined), frozenset(hidden), frozenset(undefined))
