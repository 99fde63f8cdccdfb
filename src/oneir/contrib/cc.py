"""The machine's C compiler as a linker of object files: `create_shared("lib.so", ["a.o", "b.o"])`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..runtime.error import CompileError, LibraryError
from ..runtime.library import sealed, table_of_objects, write_file

_C_FLAGS = ("-x", "c", "-std=gnu11", "-O3", "-c", "-fPIC", "-w", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off")

Function = TypeVar("Function", bound=Callable[..., object])


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

    If object files that modules were written to are among them, `load_module` reads the library, with the functions of
    them all. `cc` is the compiler, `options` are more of its arguments, `cwd` is where it runs, `ccache_env` are
    variables of its environment. Raises `LibraryError` if there is no compiler and for two functions of one name,
    `CompileError` with the compiler's messages if it fails.
    """
    files = [objects] if isinstance(objects, str) else list(objects)
    folder = cwd or ""
    table = table_of_objects(os.path.join(folder, file) for file in files)
    if table is None:
        return _run(["-shared", "-fPIC"], output, files, options, cc, cwd, ccache_env)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "table.o"
        file.write_bytes(table)
        _run(["-shared", "-fPIC"], output, [*files, str(file)], options, cc, cwd, ccache_env)
    made = Path(folder, output)
    write_file(made, [sealed(made.read_bytes())])


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


def get_global_symbol_section_map(path: str, *, nm: str | None = None) -> dict[str, str]:
    """The sections of the global symbols of a file, by their names: `T` for code, `D` for data, as `nm` prints them.

    Raises `LibraryError` where there is no `nm`, or with its messages.
    """
    program = nm or shutil.which("nm")
    if program is None:
        raise LibraryError("listing symbols needs nm, and this machine has none; pass the path of one")
    printed = _checked([program, "-gU" if sys.platform == "darwin" else "-g", path], LibraryError, None, None)
    entries = [line.split() for line in printed.splitlines()]
    return {entry[2]: entry[1] for entry in entries if len(entry) == 3}


def cross_compiler(
    compile_func: str | Callable[..., None],
    options: Sequence[str] | None = None,
    output_format: str | None = None,
    get_target_triple: Callable[[], str | None] | None = None,
    add_files: Sequence[str] | None = None,
) -> Callable[..., None]:
    """What `export_library(fcompile=...)` takes: a compiler of another system, by its name or as a function.

    `options` and `add_files`, more files to link, are for every call. Who is made says as `output_format` ("so") and
    `get_target_triple` what it makes, and for which machine.
    """
    first, more_files = list(options or ()), list(add_files or ())
    by_name = isinstance(compile_func, str)

    def compile_with(
        output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, **kwargs: object
    ) -> None:
        more = [*first, *(options or ())]
        files = [*([objects] if isinstance(objects, str) else objects), *more_files]
        if callable(compile_func):
            compile_func(output, files, options=more, **kwargs)
        else:
            create_shared(output, files, more, cc=compile_func)

    asks = get_target_by_dump_machine(compile_func) if isinstance(compile_func, str) else None
    said = getattr(compile_func, "get_target_triple", lambda: None)
    return declare(
        compile_with,
        output_format=output_format or ("so" if by_name else getattr(compile_func, "output_format", "so")),
        get_target_triple=get_target_triple or asks or said,
    )


def get_target_by_dump_machine(compiler: str | None) -> Callable[[], str | None]:
    """A function that asks a compiler which triple it compiles for; it gives None where the compiler does not say."""

    def get_target_triple() -> str | None:
        if not compiler or shutil.which(compiler) is None:
            return None
        done = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
        return done.stdout.strip() or None

    return get_target_triple


def declare(function: Function, **facts: object) -> Function:
    """The function, which says of itself as attributes what it makes (`output_format`), and for which machine."""
    for name, value in facts.items():
        setattr(function, name, value)
    return function


declare(
    create_shared,
    output_format="dylib" if sys.platform == "darwin" else "so",
    get_target_triple=get_target_by_dump_machine(get_cc()),
)
declare(create_staticlib, output_format="a")


def run(compiler: str, flags: Sequence[str], output: str, objects: str | Sequence[str]) -> None:
    """Makes `output` of files by a compiler with flags. Raises `CompileError` with its messages if it fails.

    Raises `LibraryError` where there is no such compiler.
    """
    if shutil.which(compiler) is None:
        raise LibraryError(f"there is no compiler {compiler} here; install it, or name another one")
    files = [objects] if isinstance(objects, str) else list(objects)
    _checked([compiler, "-o", output, *files, *flags], CompileError, None, None)


def compile_c(text: str, options: Sequence[str] = ()) -> bytes:
    """The object code of a text in C, optimized for speed. `options` are more arguments of the compiler.

    Raises `CompileError` where there is no C compiler, or with its messages if it fails.
    """
    program = get_cc()
    if program is None:
        raise CompileError(
            "compiling C needs a C compiler, and this machine has none: install gcc or clang; inspect_source() gives "
            "the text, for a compiler elsewhere"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, output = os.path.join(folder, "module.c"), os.path.join(folder, "module.o")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        _checked([program, *_C_FLAGS, *options, "-o", output, source], CompileError, None, None)
        with open(output, "rb") as file:
            return file.read()


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
    if shutil.which(program) is None:
        raise LibraryError(f"there is no compiler {program} here; install it, or name another one")
    files = [objects] if isinstance(objects, str) else list(objects)
    _checked([program, *first, "-o", output, *files, *(options or ())], CompileError, cwd, environment)


def _checked(command: list[str], error: type[Exception], cwd: str | None, environment: dict[str, str] | None) -> str:
    variables = {**os.environ, **environment} if environment else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=variables)
    if done.returncode:
        raise error(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
