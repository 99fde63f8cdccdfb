"""WebAssembly linked by Emscripten, or by the linker alone: `export_library("m.wasm", emcc.create_tvmjs_wasm)`.

`link_wasm` needs no Emscripten: a program that stands alone needs no library but an allocator, which its caller brings.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from ..runtime.error import CompileError, LibraryError
from . import cc


def create_tvmjs_wasm(
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str = "emcc",
    libs: Sequence[str] | None = None,
) -> None:
    """Makes a WebAssembly module `output` of object files and libraries by Emscripten, without an entry point.

    Raises `LibraryError` where there is no Emscripten, `CompileError` with its messages if it fails.
    """
    if shutil.which(cc) is None:
        raise LibraryError(f"there is no {cc} here: install Emscripten, or link by `link_wasm`, which needs wasm-ld")
    files = [objects] if isinstance(objects, str) else list(objects)
    flags = ["-O3", "-std=c++17", "--no-entry", "-s", "WASM_BIGINT=1", "-s", "ALLOW_MEMORY_GROWTH=1"]
    _create(cc, [*flags, "-s", "STANDALONE_WASM=1", "-s", "ERROR_ON_UNDEFINED_SYMBOLS=0"], output, files, libs, options)


cc.declare(create_tvmjs_wasm, output_format="wasm")


def _create(
    compiler: str,
    flags: Sequence[str],
    output: str,
    files: Sequence[str],
    libs: Sequence[str] | None,
    options: Sequence[str] | None,
) -> None:
    cc.run(compiler, flags, output, [*files, *(libs or ()), *(options or ())])


def wasm_linker() -> list[str] | None:
    """The command of a linker of WebAssembly: `wasm-ld` of LLVM, or that of the package `ziglang`; None without one."""
    names = ["wasm-ld", *(f"wasm-ld-{version}" for version in range(30, 13, -1))]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return [found]
    return [sys.executable, "-m", "ziglang", "wasm-ld"] if importlib.util.find_spec("ziglang") else None


def link_wasm(output: str, objects: str | Sequence[str], exports: Sequence[str] = ()) -> None:
    """Makes a WebAssembly module `output` of object files, which offers `exports`, its memory and `__heap_base`.

    What the objects lack, such as `malloc`, it imports from `env`. Raises `LibraryError` where there is no
    linker, `CompileError` with its messages if it fails.
    """
    command = wasm_linker()
    if command is None:
        raise LibraryError(
            "linking WebAssembly needs wasm-ld, and there is none here: install LLVM's linker (Debian: apt-get install "
            "lld) or the package ziglang (pip install ziglang)"
        )
    files = [objects] if isinstance(objects, str) else list(objects)
    flags = ["--no-entry", "--allow-undefined", "--export=__heap_base", "--strip-all", "--stack-first"]
    flags += ["-z", "stack-size=1048576", *(f"--export={name}" for name in exports)]
    done = subprocess.run([*command, *flags, "-o", output, *files], capture_output=True, text=True, check=False)
    if done.returncode:
        said = re.sub(r"\n\s*\n", "\n", done.stderr.strip())
        raise CompileError(f"{' '.join(command)} failed with status {done.returncode}:\n{said}")
