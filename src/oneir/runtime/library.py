"""Files of compiled functions: shared libraries, object files and archives, written and read.

All carry the signatures of the functions and a checksum over everything; a file that is damaged is refused before any
of it is given to a loader. A shared library reaches the runtime (worker threads, callbacks, memory) through a table of
addresses that is filled when it is loaded, so that linking it needs no library of ours.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import llvm
from .error import LibraryError
from .object_file import host_machine, read_symbols
from .signature import Signature

_FORMAT = 3
_TRAILER = b"oneir-checksum-1:"
_SHARED = (".so", ".dylib", ".dll")
_STATIC = (".o", ".obj")
_SIGNATURES = {
    "oneir_parallel_for": ("i32", ("ptr", "ptr", "i64", "i32")),
    "oneir_call_packed": ("i32", ("ptr", "ptr", "i32", "ptr")),
    "oneir_drop_error": ("void", ("ptr",)),
    "oneir_alloc_workspace": ("ptr", ("i64", "i64")),
    "oneir_free_workspace": ("void", ("ptr",)),
    "oneir_poll_signals": ("i32", ()),
    "oneir_launch_kernel": ("i32", ("ptr", "i32", "ptr", "i32", "ptr")),
    "oneir_alloc_device_memory": ("ptr", ("i32", "i32", "i64")),
    "oneir_free_device_memory": ("void", ("i32", "i32", "ptr")),
}


Linker = Callable[[str, list[str]], object]
"""Makes a shared library (the first argument) out of object files."""


def library_bytes(
    path: Path, objects: Sequence[bytes], signatures: dict[str, Signature], linker: Linker | None = None
) -> bytes:
    """The file of a shared library, an object file or an archive, as the ending of `path` says."""
    machine = read_symbols(objects[0], "the module").machine
    metadata = json.dumps(
        {
            "format": _FORMAT,
            "machine": machine,
            "signatures": {name: signature.to_json() for name, signature in signatures.items()},
        }
    )
    linker = linker or _linker()
    if path.suffix in _SHARED and linker is not None and machine == host_machine():
        content = _shared_library(objects, metadata, linker)
    elif path.suffix in _STATIC and len(objects) == 1:
        # Linkers do not look behind the last section of an object file.
        content = objects[0] + metadata.encode() + len(objects[0]).to_bytes(8, "little")
    else:
        content = _archive(objects, metadata)
    return content + _TRAILER + checksum(content)


def write_file(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Writes a file in one step: whoever reads it finds the old one or the new one.

    Raises `LibraryError` where it cannot be written; then nothing of it is left.
    """
    if not path.parent.is_dir():
        raise LibraryError(f"cannot write {path}: the directory {path.parent} does not exist")
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


def load(path: Path, data: bytes) -> tuple[Callable[[], Any], dict[str, Signature], Sequence[bytes]]:
    """What links the code of a library, the signatures of its functions, and its object code if it holds any as such.

    `data` is what `library_bytes` gave, and what the file at `path` begins with.
    """
    content, trailer = data[: -len(_TRAILER) - 32], data[-len(_TRAILER) - 32 :]
    if trailer[: len(_TRAILER)] != _TRAILER:
        raise LibraryError(f"{path} is not a library that export_library wrote, or it is cut short; export it again")
    if trailer[len(_TRAILER) :] != checksum(content):
        raise LibraryError(f"{path} is damaged: its checksum does not match; copy or export it again")
    if (static := _split_static(content)) is not None:
        code, metadata = static
        signatures = _read_metadata(path, metadata)
        return (lambda: llvm.link(code, what=str(path))), signatures, (code,)
    if content[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe") or content[:2] == b"MZ":
        return _load_shared(path, content)
    return _load_archive(path, content)


def checksum(content: bytes | memoryview) -> bytes:
    """32 bytes that tell if others have changed."""
    return hashlib.blake2b(content, digest_size=32).digest()


def _read_metadata(path: Path, text: bytes) -> dict[str, Signature]:
    try:
        metadata = json.loads(text)
        if metadata["format"] != _FORMAT:
            raise LibraryError(
                f"{path} has the format {metadata['format']}, this release reads {_FORMAT}; export it again"
            )
        if metadata["machine"] != host_machine():
            raise LibraryError(
                f"{path} is for {metadata['machine']}, and this machine is {host_machine()}; "
                "compile it for this machine"
            )
        return {name: Signature.from_json(signature) for name, signature in metadata["signatures"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise LibraryError(f"{path} does not say which functions it has: {error}; export it again") from error


def _split_static(content: bytes) -> tuple[bytes, bytes] | None:
    """The object code and the metadata of an object file; None if it is something else."""
    size = int.from_bytes(content[-8:], "little")
    if not 0 < size < len(content) or content[size : size + 1] != b"{":
        return None
    return content[:size], content[size:-8]


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


def _load_archive(path: Path, content: bytes) -> tuple[Callable[[], Any], dict[str, Signature], Sequence[bytes]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            files = {member.name: archive.extractfile(member) for member in archive.getmembers() if member.isfile()}
            data = {name: file.read() for name, file in files.items() if file is not None}
    except tarfile.TarError as error:
        raise LibraryError(f"{path} is neither a shared library nor an archive: {error}") from error
    signatures = _read_metadata(path, data.pop("metadata.json", b""))
    objects = [data[name] for name in sorted(data, key=lambda name: (len(name), name))]
    return (lambda: llvm.link(*objects, what=str(path))), signatures, objects


# -- shared libraries --


_DRIVERS = ("cc", "gcc", "clang")


def find_linker() -> str | None:
    """The program that makes shared libraries out of object files here; None when the machine has none."""
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


def _shared_library(objects: Sequence[bytes], metadata: str, linker: Linker) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        files = []
        stub = llvm.compile_ir(_stub_ir(metadata), name="the library's table", cpu="generic", features="")
        for i, data in enumerate([*objects, stub]):
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


def _stub_ir(metadata: str) -> str:
    """The signatures as data, and functions that jump where the table says."""
    data = metadata.encode() + b"\0"
    text = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    lines = [
        f'@oneir_library_metadata = constant [{len(data)} x i8] c"{text}"',
        f"@oneir_library_table = global [{len(_SIGNATURES)} x ptr] zeroinitializer",
    ]
    for i, (name, (result, parameters)) in enumerate(_SIGNATURES.items()):
        declared = ", ".join(f"{p} %a{j}" for j, p in enumerate(parameters))
        lines.append(
            f"define hidden {result} @{name}({declared}) {{\n"
            f"  %slot = getelementptr [{len(_SIGNATURES)} x ptr], ptr @oneir_library_table, i64 0, i64 {i}\n"
            f"  %function = load ptr, ptr %slot\n"
            + (
                f"  call void %function({declared})\n  ret void\n}}"
                if result == "void"
                else f"  %value = call {result} %function({declared})\n  ret {result} %value\n}}"
            )
        )
    return "\n".join(lines) + "\n"


class _SharedLibrary:
    """A shared library, loaded as long as this lives; its functions keep it alive."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.library = ctypes.CDLL(str(path.resolve()))
        except OSError as error:
            raise LibraryError(f"{path} cannot be loaded: {error}") from error
        if os.name == "posix":
            weakref.finalize(self, _ctypes.dlclose, self.library._handle).atexit = False

    def symbol(self, name: str) -> int:
        try:
            return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            raise LibraryError(f"{self.path} has no symbol {name!r}; export it again") from None


def _load_shared(path: Path, content: bytes) -> tuple[Callable[[], Any], dict[str, Signature], Sequence[bytes]]:
    from .module import RUNTIME_SYMBOLS

    shared = _SharedLibrary(path)
    try:
        metadata = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(shared.library, "oneir_library_metadata")))
        signatures = _read_metadata(path, metadata)
        table = (ctypes.c_void_p * len(_SIGNATURES)).in_dll(shared.library, "oneir_library_table")
    except ValueError as error:
        raise LibraryError(f"{path} is not a library that export_library wrote: {error}") from error

    def link() -> _SharedLibrary:
        for i, name in enumerate(_SIGNATURES):
            table[i] = RUNTIME_SYMBOLS[name]()
        return shared

    return link, signatures, ()
