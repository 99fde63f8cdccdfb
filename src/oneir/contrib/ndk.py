"""Android's compiler as a linker: `export_library("m.so", ndk.create_shared)`.

The environment's TVM_NDK_CC names the compiler of Android's NDK, such as
`.../toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android28-clang++`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from ..runtime.error import LibraryError
from . import cc


def _compiler() -> str:
    found = os.environ.get("TVM_NDK_CC")
    if not found:
        raise LibraryError(
            "the environment's TVM_NDK_CC does not say which compiler of Android's NDK to use; expected a path such as "
            ".../bin/aarch64-linux-android28-clang++"
        )
    return found


def create_shared(output: str, objects: str | Sequence[str], options: Sequence[str] | None = None) -> None:
    """Makes a shared library `output` for Android of object files; `options` replaces `-shared -fPIC -lm`.

    Raises `LibraryError` where TVM_NDK_CC is not set, `CompileError` with the compiler's messages if it fails.
    """
    cc.run(_compiler(), ["-shared", "-fPIC", "-lm"] if options is None else options, output, objects)


cc.declare(create_shared, output_format="so")


def create_staticlib(output: str, inputs: str | Sequence[str]) -> None:
    """Makes an archive `output` for Android of object files, by the archiver beside the compiler; raises as above."""
    folder = os.path.dirname(_compiler())
    archiver = shutil.which("llvm-ar", path=folder)
    if archiver is None:
        raise LibraryError(f"expected the archiver llvm-ar beside the compiler that TVM_NDK_CC names, in {folder}")
    cc.create_staticlib(output, inputs, archiver)


cc.declare(create_staticlib, output_format="a")


def get_global_symbol_section_map(path: str, *, nm: str | None = None) -> dict[str, str]:
    """The sections (`T`, `D`, ...) of the global symbols of a file, by their names; see `cc`."""
    return cc.get_global_symbol_section_map(path, nm=nm or shutil.which("llvm-nm", path=os.path.dirname(_compiler())))
