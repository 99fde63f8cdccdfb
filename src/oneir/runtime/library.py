"""Files of compiled functions: writing and reading shared libraries, object files and archives.

All contain the signatures of the functions and a checksum of everything else, which is compared before any of it is
given to a loader. A shared library calls the runtime (`symbols.py`) through a table of addresses that is filled when it
is loaded, so linking it needs no other library.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ..version import __version__
from . import llvm
from .error import LibraryError
from .launch import is_record, own_kernels
from .object_file import host_machine, read_symbols
from .signature import Signature
from .symbols import RUNTIME_FUNCTIONS

_FORMAT = 3
_TRAILER = b"oneir-checksum-1:"
SHARED = (".so", ".dylib", ".dll")
_STATIC = (".o", ".obj")

Linker = Callable[[str, list[str]], object]
"""Makes a shared library (the first argument) out of object files."""


class Linked(Protocol):
    """Code linked into this process, which stays loaded as long as this object lives."""

    def symbol(self, name: str) -> int:
        """The address of a symbol. Raises `LibraryError` if there is none of that name."""
        ...


Loaded = tuple[Callable[[], Linked], dict[str, Signature], Sequence[bytes]]
"""What links the code of a file, the signatures of its functions, and its object code, if the file contains any."""


def library_bytes(
    path: Path, objects: Sequence[bytes], signatures: dict[str, Signature], linker: Linker | None = None
) -> bytes:
    """The content of a shared library, an object file or an archive, by the suffix of `path`.

    Raises `LibraryError` if the linker fails.
    """
    machine = read_symbols(objects[0], "the module").machine
    metadata = library_metadata(machine, signatures, _kernels(objects))
    linker = linker or _linker()
    if path.suffix in SHARED and linker is not None and machine == host_machine():
        content = shared_library([*objects, _table(metadata)], linker)
    elif path.suffix in _STATIC and len(objects) == 1:
        # Linkers do not look behind the last section of an object file.
        content = objects[0] + metadata.encode() + len(objects[0]).to_bytes(8, "little")
    else:
        content = _archive(objects, metadata)
    return sealed(content)


def library_metadata(machine: str, signatures: Mapping[str, Signature], kernels: Sequence[str] = ()) -> str:
    """What a library says of itself: for which machines it is, its functions, the records of its devices' kernels."""
    return json.dumps(
        {
            "format": _FORMAT,
            "oneir": __version__,
            "machine": machine,
            "signatures": {name: signature.to_json() for name, signature in signatures.items()},
            "kernels": list(kernels),
        }
    )


def sealed(content: bytes) -> bytes:
    """The content of a library with its checksum, as `load` takes it."""
    return content + _TRAILER + checksum(content)


def link(*objects: bytes, what: str) -> Linked:
    """Links object code into this process, as `llvm.link` does; what its kernels need on devices goes with it."""
    loaded = llvm.link(*objects, what=what)
    records = [loaded.symbol(name) for name in loaded.symbols() if is_record(name)]
    if records:
        loaded.at_unload(own_kernels(records))
    return loaded


def _kernels(objects: Sequence[bytes]) -> list[str]:
    """The symbols of the records of all kernels."""
    defined = (name for data in objects for name in read_symbols(data, "the module").defined)
    return sorted(name for name in defined if is_record(name))


def expect_directory_of(path: Path) -> None:
    """Raises `LibraryError` if the directory in which a file is to be written does not exist."""
    if not path.parent.is_dir():
        raise LibraryError(f"cannot write {path}: the directory {path.parent} does not exist")


def write_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Writes a file in one step: whoever reads it finds the old one or the new one.

    Raises `LibraryError` where it cannot be written; then nothing of it is left.
    """
    expect_directory_of(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.writelines(parts)
        os.replace(temporary, path)
    except OSError as error:
        raise LibraryError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def load(path: Path, data: bytes) -> Loaded:
    """The arguments of a `Module`: what links the code, signatures, and the object code, if the file contains any.

    `data` is what `library_bytes` returned; the file at `path` begins with it. Raises `LibraryError` for a file that is
    damaged, for another machine, or not of that kind.
    """
    content = _checked_content(path, data)
    if (static := _split_static(content)) is not None:
        code, metadata = static
        signatures = _read_metadata(path, metadata)
        return (lambda: link(code, what=str(path))), signatures, (code,)
    if content[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe") or content[:2] == b"MZ":
        return _load_shared(path)
    return _load_archive(path, content)


def _checked_content(path: Path, data: bytes) -> bytes:
    """The content of a library, without its checksum."""
    content, trailer = data[: -len(_TRAILER) - 32], data[-len(_TRAILER) - 32 :]
    if trailer[: len(_TRAILER)] != _TRAILER:
        raise LibraryError(f"{path} is not a library that export_library wrote, or it is cut short; export it again")
    if trailer[len(_TRAILER) :] != checksum(content):
        raise LibraryError(f"{path} is damaged: its checksum does not match; copy or export it again")
    return content


def checksum(content: bytes | memoryview) -> bytes:
    """A checksum of 32 bytes."""
    return hashlib.blake2b(content, digest_size=32).digest()


def _read_metadata(path: Path, text: bytes) -> dict[str, Signature]:
    try:
        metadata = json.loads(text)
        if metadata["format"] != _FORMAT:
            raise LibraryError(f"{path} {other_format(metadata, _FORMAT)}")
        if metadata["machine"] != host_machine():
            raise LibraryError(
                f"{path} is for {metadata['machine']}, and this machine is {host_machine()}; "
                "compile it for this machine"
            )
        return {name: Signature.from_json(signature) for name, signature in metadata["signatures"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise LibraryError(f"{path} does not say which functions it has: {error}; export it again") from error


def other_format(found: Mapping[str, object], expected: int) -> str:
    """What is said of a file of a format that this release does not read; `found` is what it says of itself."""
    writer = found.get("oneir")
    by = f" of OneIR {writer}" if isinstance(writer, str) and len(writer) < 40 else ""
    return (
        f"has the format {found.get('format')!r:.20}{by}; this release, {__version__}, reads the format {expected}: "
        "export it again with this release, or load it with the one that wrote it"
    )


def _split_static(content: bytes) -> tuple[bytes, bytes] | None:
    """The object code and the metadata of an object file; None if it is something else."""
    size = int.from_bytes(content[-8:], "little")
    if not 0 < size < len(content) or content[size : size + 1] != b"{":
        return None
    return content[:size], content[size:-8]


def table_of_objects(files: Iterable[str | Path]) -> bytes | None:
    """The object code that makes a library of files which are linked together, to be linked with them.

    It tells the functions of the object files among them that `export_library` wrote for this machine; None if there is
    no such file. Raises `LibraryError` for damaged ones, and for functions that several have.
    """
    signatures: dict[str, Signature] = {}
    kernels: list[str] = []
    for path in map(Path, files):
        data = path.read_bytes() if path.suffix in _STATIC and path.is_file() else b""
        if data[-len(_TRAILER) - 32 :][: len(_TRAILER)] != _TRAILER:
            continue
        static = _split_static(_checked_content(path, data))
        if static is None or json.loads(static[1])["machine"] != host_machine():
            continue
        more = _read_metadata(path, static[1])
        if both := sorted(signatures.keys() & more.keys()):
            raise LibraryError(f"{path} has {', '.join(both)}, which another object file has, too; rename one of them")
        signatures.update(more)
        kernels += json.loads(static[1])["kernels"]
    return _table(library_metadata(host_machine(), signatures, kernels)) if signatures else None


def _table(metadata: str) -> bytes:
    return llvm.compile_ir(stub_ir(metadata), name="the library's table", cpu="generic", features="")


# -- archives --


def _archive(objects: Sequence[bytes], metadata: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        files = {"metadata.json": metadata.encode(), **{f"{i}.o": data for i, data in enumerate(objects)}}
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _load_archive(path: Path, content: bytes) -> Loaded:
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            files = {member.name: archive.extractfile(member) for member in archive.getmembers() if member.isfile()}
            data = {name: file.read() for name, file in files.items() if file is not None}
    except tarfile.TarError as error:
        raise LibraryError(f"{path} is neither a shared library nor an archive: {error}") from error
    signatures = _read_metadata(path, data.pop("metadata.json", b""))
    objects = [data[name] for name in sorted(data, key=lambda name: (len(name), name))]
    return (lambda: link(*objects, what=str(path))), signatures, objects


# -- shared libraries --


_DRIVERS = ("cc", "gcc", "clang")


def find_linker() -> str | None:
    """The path of this machine's linker, or compiler driver; None if it has none."""
    return next(filter(None, map(shutil.which, (*_DRIVERS, "ld", "ld.lld"))), None)


def _linker() -> Linker | None:
    program = find_linker()
    if program is None:
        return None
    libraries = ["-lm"] if Path(program).stem in _DRIVERS else []
    return lambda out, files: _run([program, "-shared", "-o", out, *files, *libraries])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LibraryError(f"the linker failed ({' '.join(command[:2])}): {done.stderr.strip()}")


def shared_library(objects: Sequence[bytes], linker: Linker | None) -> bytes:
    """A shared library of object files. Without `linker`, this machine's links it.

    Raises `LibraryError` if there is none, or if it fails.
    """
    linker = linker or _linker()
    if linker is None:
        raise LibraryError(
            "a shared library needs a linker, and this machine has none (cc, gcc, clang, ld or ld.lld); install one, "
            "give another as `fcompile`, or write an object file (.o)"
        )
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, data in enumerate(objects):
            file = Path(folder) / f"{i}.o"
            file.write_bytes(data)
            files.append(str(file))
        out = str(Path(folder) / "library.so")
        linker(out, files)
        if not os.path.exists(out):
            raise LibraryError(
                f"the linker that was given wrote no file {os.path.basename(out)!r} where it was asked to"
            )
        return Path(out).read_bytes()


def stub_ir(metadata: str, own: Mapping[str, str] | None = None) -> str:
    """The metadata as a global, and the runtime's functions as calls through a table of addresses.

    `own` are names of functions that the table begins with, by those of the runtime's functions.
    """
    lines = [_metadata_ir(metadata, "")]
    table: list[str] = []
    for i, (name, function) in enumerate(RUNTIME_FUNCTIONS.items()):
        result = function.result
        if own is not None and name in own:
            lines.append(f"declare {result} @{own[name]}({', '.join(function.parameters)})")
            table.append(f"ptr @{own[name]}")
        else:
            table.append("ptr null")
        declared = ", ".join(f"{p} %a{j}" for j, p in enumerate(function.parameters))
        lines.append(
            f"define hidden {result} @{name}({declared}) {{\n"
            f"  %slot = getelementptr [{len(RUNTIME_FUNCTIONS)} x ptr], ptr @oneir_library_table, i64 0, i64 {i}\n"
            f"  %function = load ptr, ptr %slot\n"
            + (
                f"  call void %function({declared})\n  ret void\n}}"
                if result == "void"
                else f"  %value = call {result} %function({declared})\n  ret {result} %value\n}}"
            )
        )
    lines.append(f"@oneir_library_table = global [{len(table)} x ptr] [{', '.join(table)}]")
    return "\n".join(lines) + "\n"


def _metadata_ir(metadata: str, linkage: str) -> str:
    """The metadata as a global of LLVM IR."""
    data = metadata.encode() + b"\0"
    text = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    return f'@oneir_library_metadata = {linkage} constant [{len(data)} x i8] c"{text}"'


# -- LLVM IR --


def ir_with_metadata(text: str, machine: str, signatures: Mapping[str, Signature]) -> str:
    """The LLVM IR of a module, with what `ir_signatures` reads."""
    return f"{text}\n{_metadata_ir(library_metadata(machine, signatures), 'internal')}\n"


def ir_signatures(path: Path, text: str) -> dict[str, Signature]:
    """The signatures of the functions in the LLVM IR of a file.

    Raises `LibraryError` for IR that `ir_with_metadata` did not write, and for another machine's.
    """
    found = re.search(r'^@oneir_library_metadata = internal .*? c"(.*)\\00"', text, re.MULTILINE)
    if found is None:
        raise LibraryError(
            f"{path} does not say which functions it has: it is not LLVM IR that write_to_file wrote; "
            "compile other IR into a program with the pragma import_llvm"
        )
    written = re.sub(r"\\(\\|[0-9A-F]{2})", lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 16)), found[1])
    return _read_metadata(path, written.encode("latin-1"))


class _SharedLibrary:
    """A shared library, which is unloaded when this object dies; its functions keep it alive."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.library = ctypes.CDLL(str(path.resolve()))
        except OSError as error:
            raise LibraryError(f"{path} cannot be loaded: {error}") from error
        if os.name == "posix":
            weakref.finalize(self, _ctypes.dlclose, self.library._handle).atexit = False

    def own(self, kernels: Sequence[str]) -> None:
        """Has what the kernels need on devices given back before the library is unloaded, by their records' symbols."""
        if kernels:
            disown = own_kernels([self.symbol(name) for name in kernels])
            weakref.finalize(self, disown).atexit = False  # the latest finalizer runs first: before dlclose

    def symbol(self, name: str) -> int:
        try:
            return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise LibraryError(f"{self.path} has no symbol {name!r}; export it again") from None


def loaded_libraries() -> list[Loaded]:
    """The libraries of compiled functions that this process has loaded, by whatever means, in the order of their paths.

    None where the system does not list them in /proc.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.is_file() else []
    found = []
    for path in sorted({line.split(maxsplit=5)[5] for line in lines if line.endswith(SHARED)}):
        try:
            handle = _ctypes.dlopen(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:  # deleted, or no library
            continue
        try:
            _ctypes.dlsym(handle, "oneir_library_metadata")
            found.append(_load_shared(Path(path)))
        except OSError:
            pass
        finally:
            _ctypes.dlclose(handle)
    return found


def _load_shared(path: Path) -> Loaded:
    shared = _SharedLibrary(path)
    try:
        metadata = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(shared.library, "oneir_library_metadata")))
        signatures = _read_metadata(path, metadata)
        shared.own(json.loads(metadata).get("kernels", ()))
        table = (ctypes.c_void_p * len(RUNTIME_FUNCTIONS)).in_dll(shared.library, "oneir_library_table")
    except ValueError as error:
        raise LibraryError(f"{path} is not a library that export_library wrote: {error}") from error

    def link() -> _SharedLibrary:
        for i, function in enumerate(RUNTIME_FUNCTIONS.values()):
            table[i] = function.address()
        return shared

    return link, signatures, ()
