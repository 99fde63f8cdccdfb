"""Reading relocatable object files: which symbols one defines, and which it needs from elsewhere.

LLVM's loader does not validate its input, so `read_symbols` does. Mach-O (on macOS) and ELF (everywhere else, since
LLVM's JIT uses it on Windows, too) are loaded into a process; COFF and WebAssembly are only linked for other machines.

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
_COFF_MACHINES = {0x14C: "i386", 0x1C4: "arm", 0x8664: "x86_64", 0xAA64: "aarch64"}
_MACHINE_ALIASES = {"amd64": "x86_64", "arm64": "aarch64", "armv7l": "arm", "armv8l": "arm", "i686": "i386"}


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
    little-endian machine. Relocations and code are not looked at.
    """
    try:
        if data[:4] == b"\x7fELF":
            return _read_elf(data, what)
        if data[:4] == b"\xcf\xfa\xed\xfe":
            return _read_macho(data, what)
        if data[:4] == b"\0asm":
            return _read_wasm(data, what)
        if int.from_bytes(data[:2], "little") in _COFF_MACHINES:
            return _read_coff(data, what)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise LibraryError(f"{what} is malformed: {error}. Build or export it again.") from error
    raise LibraryError(
        f"{what} is neither an ELF nor a Mach-O, COFF or WebAssembly object: it begins with {data[:8]!r}. "
        "Build or export it again."
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
    if data[4:6] not in (b"\x01\x01", b"\x02\x01"):
        raise LibraryError(
            f"{what} is not for a little-endian machine of 32 or 64 bits, the only kinds there is code for."
        )
    wide = data[4] == 2
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != 1:
        raise _malformed(what, f"ELF type {kind}, expected 1 (relocatable)")
    (table,) = struct.unpack_from("<Q" if wide else "<I", data, 40 if wide else 32)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 58 if wide else 46)
    # (name, type, flags, address, offset, size, link, info, alignment, entry size)
    section_format, header_size = ("<IIQQQQIIQQ", 64) if wide else ("<10I", 52)
    section_size = struct.calcsize(section_format)
    end = table + section_size * count
    if entry_size != section_size or table < header_size or end > len(data) or names_index >= max(count, 1):
        raise _malformed(what, "its section table lies outside the file; the file may be truncated")

    sections = list(struct.iter_unpack(section_format, data[table:end]))
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
        symbol_format = "<IBBHQQ" if wide else "<IIIBBH"
        if symbol_size != struct.calcsize(symbol_format) or size % symbol_size:
            raise _malformed(what, "its symbol table has entries of the wrong size")
        strings = data[sections[link][4] : sections[link][4] + sections[link][5]]
        for name_offset, *fields in struct.iter_unpack(symbol_format, data[offset : offset + size]):
            info, other, section_index = fields[:3] if wide else fields[2:]
            if section_index >= count and section_index < 0xFF00:
                raise _malformed(what, "a symbol names a section that does not exist")
            # Local symbols (binding 0) are the object's own affair.
            if info >> 4 and name_offset:
                visible = hidden if other & 3 in (1, 2) else defined
                (undefined if section_index == 0 else visible).add(_name_at(strings, name_offset))
    undefined.discard("_GLOBAL_OFFSET_TABLE_")  # made by the linker
    name = _ELF_MACHINES.get(machine, f"ELF machine {machine}")
    if name == "riscv64" and not wide:
        name = "riscv32"
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


def _read_coff(data: bytes, what: str) -> ObjectSymbols:
    machine, section_count, _, table, count, optional, _ = struct.unpack_from("<HHIIIHH", data)
    end = table + 18 * count
    if optional or 20 + 40 * section_count > len(data) or end > len(data):
        raise _malformed(what, "not a whole relocatable COFF object; the file may be truncated")
    prefix = "_" if _COFF_MACHINES[machine] == "i386" else ""
    defined: set[str] = set()
    undefined: set[str] = set()
    auxiliary = 0
    for name, value, section, _, storage, more in struct.iter_unpack("<8sIHHBB", data[table:end]):
        if auxiliary:
            auxiliary -= 1
            continue
        auxiliary = more
        if storage != 2:  # not visible outside of the object
            continue
        if section not in (0, 0xFFFF, 0xFFFE) and section > section_count:
            raise _malformed(what, "a symbol names a section that does not exist")
        long_name, offset = struct.unpack("<II", name)
        text = name.rstrip(b"\0").decode() if long_name else _name_at(data[end:], offset)
        (undefined if section == 0 and value == 0 else defined).add(text.removeprefix(prefix))
    return ObjectSymbols(_COFF_MACHINES[machine], frozenset(defined), frozenset(), frozenset(undefined))


class _WasmBytes:
    """A part of a WebAssembly module, read from its start."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """An unsigned integer in LEB128."""
        value = shift = 0
        while True:
            part = self.byte()
            value |= (part & 127) << shift
            shift += 7
            if part < 128:
                return value

    def bytes(self) -> bytes:
        """As many bytes as the number before them says."""
        size = self.number()
        self.at += size
        if self.at > len(self.data):
            raise IndexError("a part lies outside the file")
        return self.data[self.at - size : self.at]

    def limits(self) -> bool:
        """The sizes of a memory or a table; whether its addresses have 64 bits."""
        flags = self.byte()
        self.number()
        if flags & 1:
            self.number()
        return bool(flags & 4)


def _read_wasm(data: bytes, what: str) -> ObjectSymbols:
    """The symbols of an object for WebAssembly, as the section "linking" of tool conventions lists them."""
    file, symbols = _WasmBytes(data), None
    file.at = 8
    imports: dict[int, list[str]] = {}
    wide = False
    while file:
        section, content = file.byte(), _WasmBytes(file.bytes())
        if section == 2:
            imports, wide = _wasm_imports(content)
        elif section == 0 and content.bytes() == b"linking":
            content.number()  # the version
            while content:
                kind, part = content.byte(), _WasmBytes(content.bytes())
                symbols = part if kind == 8 else symbols
    if symbols is None:
        raise _malformed(what, "it has no list of symbols, so it is a linked module and no object")
    found: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for _ in range(symbols.number()):
        kind, flags = symbols.byte(), symbols.number()
        absent, local = bool(flags & 0x10), flags & 2
        if kind == 3:  # a section
            symbols.number()
            continue
        index = None if kind == 1 else symbols.number()
        name = symbols.bytes().decode() if index is None or not absent or flags & 0x40 else imports.get(kind, [])[index]
        if index is None and not absent:  # data: a segment, an offset in it and a size
            for _ in range(3):
                symbols.number()
        if not local and not name.startswith("__stack_pointer"):
            found[2 if absent else 1 if flags & 4 else 0].add(name)
    return ObjectSymbols("wasm64" if wide else "wasm32", *map(frozenset, found))


def _wasm_imports(section: _WasmBytes) -> tuple[dict[int, list[str]], bool]:
    """The names of what a module imports, by the kinds of symbols (functions, globals, tags and tables), and whether
    its memory has addresses of 64 bits.
    """
    wide = False
    symbol_kinds = {0: 0, 1: 5, 3: 2, 4: 4}
    names: dict[int, list[str]] = {kind: [] for kind in symbol_kinds.values()}
    for _ in range(section.number()):
        section.bytes()
        name, kind = section.bytes().decode(), section.byte()
        if kind in symbol_kinds:
            names[symbol_kinds[kind]].append(name)
        if kind == 1:
            section.byte()
            section.limits()
        elif kind == 2:
            wide = section.limits()
        elif kind == 3:
            section.at += 2
        else:
            if kind == 4:
                section.byte()
            section.number()
    return names, wide
