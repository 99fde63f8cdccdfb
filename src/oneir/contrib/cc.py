"""The machine's C compiler as a linker of object files: `create_shared("lib.so", ["a.o", "b.o"])`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence

from ..runtime.error import CompileError, LibraryError


def get_cc() -> str | None:
    """The C++ compiler to use: what the environment names by CXX or CC, else one that is installed, or None."""
    for name in (os.environ.get("CXX"), os.environ.get("CC"), "g++", "gcc", "clang++", "clang", "c++", "cc"):
        if name and shutil.which(name):
            return name
    return None


def create_shared(
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
    ccache_env: dict[str, str] | None = None,
) -> None:
    """Makes a shared library `output` of object or source files.

    `cc` is the compiler, `options` are more of its arguments, `cwd` is where it runs, `ccache_env` are variables of
    its environment. Raises `LibraryError` if there is no compiler, `CompileError` with its messages if it fails.
    """
    _run(["-shared", "-fPIC"], output, objects, options, cc, cwd, ccache_env)


def create_executable(
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
    ccache_env: dict[str, str] | None = None,
) -> None:
    """Makes a program `output` of object or source files; raises as `create_shared` does."""
    _run([], output, objects, options, cc, cwd, ccache_env)


def create_staticlib(output: str, inputs: str | Sequence[str], ar: str | None = None) -> None:
    """Makes an archive `output` of object files. Raises `LibraryError` without an archiver, or with its messages."""
    program = ar or shutil.which("ar")
    if program is None:
        raise LibraryError("a static library needs the archiver ar, and this machine has none; pass the path of one")
    files = [inputs] if isinstance(inputs, str) else list(inputs)
    if os.path.exists(output):
        os.remove(output)  # ar adds to what is there
    _checked([program, "rcs", output, *files], LibraryError, None, None)


def cross_compiler(
    compile_func: str | Callable[..., None], options: Sequence[str] | None = None
) -> Callable[..., None]:
    """What `export_library(fcompile=...)` takes: a compiler of another system, by its name or as a function."""

    first = list(options or ())

    def compile_with(
        output: str, objects: Sequence[str], options: Sequence[str] | None = None, **kwargs: object
    ) -> None:
        more = [*first, *(options or ())]
        if callable(compile_func):
            compile_func(output, objects, options=more, **kwargs)
        else:
            create_shared(output, objects, more, cc=compile_func)

    return compile_with


def get_target_by_dump_machine(compiler: str) -> str | None:
    """The triple that a compiler compiles for; None if it does not say."""
    done = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _run(
    first: Sequence[str],
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None,
    cc: str | None,
    cwd: str | None,
    environment: dict[str, str] | None,
) -> None:
    program = cc or get_cc()
    if program is None:
        raise LibraryError("linking needs a C compiler, and this machine has none; install gcc or clang, or pass cc=")
    files = [objects] if isinstance(objects, str) else list(objects)
    _checked([program, *first, "-o", output, *files, *(options or ())], CompileError, cwd, environment)


def _checked(command: list[str], error: type[Exception], cwd: str | None, environment: dict[str, str] | None) -> None:
    variables = {**os.environ, **environment} if environment else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=variables)
    if done.returncode:
        raise error(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
