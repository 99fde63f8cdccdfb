"""Apple's tools as linkers: `export_library("m.dylib", xcode.create_dylib, arch="arm64", sdk="iphoneos")`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..runtime.error import CompileError, LibraryError
from . import cc


def xcrun(cmd: Sequence[str]) -> str:
    """What a tool of Xcode prints, without white space around it. Raises `LibraryError` without Xcode."""
    if shutil.which("xcrun") is None:
        raise LibraryError(f"there is no xcrun here, which finds Xcode's {cmd[-1]}; it is part of Xcode, on macOS")
    return subprocess.run(["xcrun", *cmd], capture_output=True, text=True, check=False).stdout.strip()


def create_dylib(
    output: str, objects: str | Sequence[str], arch: str, sdk: str = "macosx", min_os_version: str | None = None
) -> None:
    """Makes a dynamic library of object files for an architecture (`arm64`) and SDK (`iphoneos`).

    Raises `LibraryError` without Xcode, `CompileError` with the messages of its compiler.
    """
    clang, root = xcrun(["-sdk", sdk, "-find", "clang"]), xcrun(["-sdk", sdk, "--show-sdk-path"])
    oldest = [f"-m{sdk}-version-min={min_os_version}"] if min_os_version else []
    cc.run(clang, ["-dynamiclib", "-arch", arch, "-isysroot", root, *oldest], output, objects)


cc.declare(create_dylib, output_format="dylib")


def codesign(lib: str) -> None:
    """Signs a library with the identity that the keychain has, as iOS demands. Raises `CompileError` if it fails."""
    if shutil.which("codesign") is None:
        raise LibraryError("there is no codesign here; it is part of Xcode, on macOS")
    done = subprocess.run(["codesign", "--force", "--sign", "-", lib], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{lib} cannot be signed: {done.stderr.strip()}")


def compile_metal(
    code: str, path_target: str | None = None, sdk: str = "macosx", min_os_version: str | None = None
) -> bytes:
    """The library of Metal kernels of a source text, written to `path_target` as well, if there is one.

    Raises `LibraryError` without Xcode, `CompileError` with the messages of its compiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, parts, library = (str(Path(folder) / f"kernels.{suffix}") for suffix in ("metal", "air", "metallib"))
        Path(source).write_text(code)
        oldest = [f"-m{sdk}-version-min={min_os_version}"] if min_os_version else []
        cc.run(xcrun(["-sdk", sdk, "-find", "metal"]), ["-O3", *oldest, "-c"], parts, source)
        cc.run(xcrun(["-sdk", sdk, "-find", "metallib"]), [], library, parts)
        data = Path(library).read_bytes()
    if path_target is not None:
        Path(path_target).write_bytes(data)
    return data
