"""Executables: the bytecode, constants and kernels of a graph, which any number of virtual machines can run.

ex = relax.build(mod, "llvm")
print(ex.as_text())
ex.export_library("model.so")
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..error import InvalidValue, LibraryError, NotRegistered, ShapeMismatch, TypeMismatch, UnsupportedError
from ..hook import Hook
from ..library import Linker
from ..object import Object
from ..once import new_lock
from ..tensor import Tensor, as_array, from_dlpack, wrap_array
from . import program as texts
from .file import write_executable
from .program import Constant, Program, VMFunction

if TYPE_CHECKING:
    from ..module import Module
    from .machine import VirtualMachine
    from .native import Maker, NativeSpec


class NativeFunction(Protocol):
    """A VM function as one compiled function, which machines call in place of its bytecode."""

    spec: NativeSpec
    """How it is called; files contain it."""

    def bind(self, machine: VirtualMachine, make: Maker | None = None) -> Callable[..., Any]:
        """The function that `machine[name]` is: it takes arguments as users pass them, and checks them.

        Results are made by `make`, or are our tensors. A machine calls this once, when the function is first asked for.
        """
        ...

    def set_constant(self, index: int, value: Tensor) -> None:
        """Called when a constant is replaced. Running calls may finish with the old one."""
        ...


class ImportedModule(Protocol):
    """A module whose functions an executable may call besides its kernels, such as one of an external compiler.

    Functions take tensors and numbers; results that they write are their last arguments.
    """

    def implements_function(self, name: str) -> bool:
        """Whether there is a function of that name."""
        ...

    def get_function(self, name: str) -> Callable[..., Any]:
        """The function of that name."""
        ...


class Exporter(Protocol):
    """Writes programs that stand alone, of what an executable was compiled from."""

    def __call__(
        self,
        executable: Executable,
        path: Path,
        header: Path,
        weights: Path | None,
        threads: bool,
        linker: Linker | None,
    ) -> object:
        """See `Executable.export_library`; returns what C sees of the program."""
        ...


read_file: Hook[[Path], Any] = Hook("read_file", "oneir.runtime.module")
"""What reads the files of `export_library`: `load_module`."""


def unpickled(data: bytes) -> Any:
    """What was pickled as the content of a file of `export_library`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pickled.tar"
        path.write_bytes(data)
        return read_file(path)


class Executable(Object):
    """A program with its kernels. It has no state of execution; `VirtualMachine`s have.

    `natives` are the native forms of VM functions, by name. Raises `InvalidValue` for a program that `Program.verify`
    rejects.
    """

    def __init__(
        self,
        program: Program,
        library: Module | None = None,
        natives: Mapping[str, NativeFunction] | None = None,
        exporter: Exporter | None = None,
    ):
        program.verify()
        self.program = program
        self.library = library
        self.natives: Mapping[str, NativeFunction] = dict(natives or {})
        self.exporter = exporter
        """What writes programs that stand alone; None for an executable that was loaded from a file."""
        self.imports: list[ImportedModule] = []
        """Modules in which functions other than kernels are looked up, before the registry."""
        self.version = 0
        """The number of constants that have been replaced so far."""
        self._lock = new_lock()
        self._places = {
            function.name: place for place, function in enumerate(program.functions) if isinstance(function, VMFunction)
        }

    # -- functions --

    @property
    def mod(self) -> Executable:
        """The executable itself: what was built can be run at once."""
        return self

    def jit(
        self, *, fcompile: object = None, addons: object = None, force_recompile: bool = False, **kwargs: object
    ) -> Executable:
        """The executable itself: its kernels are in memory, and linked when they are first called."""
        return self

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The kernel of that name, or with `query_imports` the function of an imported module.

        "as_text", "as_python" and "stats" are the methods of these names, which callers of modules in general have.
        Raises `NotRegistered` if there is none, and for a function of the graph, which a `VirtualMachine` calls.
        """
        if name in self._places:
            raise NotRegistered(
                f'{name!r} is a function of the graph; call it through a machine: VirtualMachine(ex, cpu())["{name}"]'
            )
        if query_imports and not self.implements_function(name):
            for module in self.imports:
                if module.implements_function(name):
                    return module.get_function(name)
        if name in ("as_text", "as_python", "stats") and not self.implements_function(name):
            return getattr(self, name)
        if self.library is None:
            raise NotRegistered(f"the executable has no kernel {name!r}; it has none")
        return self.library.get_function(name)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a kernel of that name, or with `query_imports` a function of an imported module."""
        if self.library is not None and name in self.library:
            return True
        return query_imports and any(module.implements_function(name) for module in self.imports)

    def import_module(self, module: ImportedModule) -> None:
        """Adds a module whose functions the program may call."""
        self.imports.append(module)

    @property
    def vm_functions(self) -> list[str]:
        """The names of the functions of the graph."""
        return list(self._places)

    def place_of(self, name: str) -> int:
        """The index of a graph function in the program. Raises `NotRegistered` if there is none of that name."""
        if name not in self._places:
            names = ", ".join(self._places) or "none"
            raise NotRegistered(f"the program has no function {name!r}; it has {names}")
        return self._places[name]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.get_function(name)

    # -- constants --

    def constant(self, key: int | str) -> Constant:
        """A constant, by its index or its name. Raises `NotRegistered` or `InvalidValue` if there is none."""
        return self.program.constants[self._constant_index(key)]

    def set_constant(self, key: int | str, value: object) -> None:
        """Replaces a constant tensor, given by its index or its name, in all machines, without compiling.

        `value` is a tensor or array of the same dtype and shape; its memory is shared if it is contiguous. Raises
        `NotRegistered` or `InvalidValue` if there is no such tensor, `TypeMismatch` and `ShapeMismatch` for another
        dtype or shape.
        """
        index = self._constant_index(key)
        old = self.program.constants[index]
        if not isinstance(old, Tensor):
            raise InvalidValue(f"constant {key!r} is {old!r}; only tensors can be replaced")
        new = value if isinstance(value, Tensor) else wrap_or_share(value)
        if new.dtype != old.dtype:
            raise TypeMismatch(f"constant {key!r}: expected dtype {old.dtype}, found {new.dtype}")
        if new.shape != old.shape:
            raise ShapeMismatch(f"constant {key!r}: expected shape {old.shape}, found {new.shape}")
        if not new.is_contiguous():
            new = new.copyto(new.device)
        with self._lock:
            self.program.constants[index] = new
            self.version += 1
            for native in self.natives.values():
                native.set_constant(index, new)

    def _constant_index(self, key: int | str) -> int:
        names = self.program.constant_names
        if isinstance(key, str):
            if key not in names:
                raise NotRegistered(f"there is no constant named {key!r}; there are {', '.join(names) or 'none'}")
            return names[key]
        if not 0 <= key < len(self.program.constants):
            raise InvalidValue(f"there is no constant {key}, only {len(self.program.constants)}")
        return key

    # -- texts and files --

    def stats(self) -> str:
        """A summary: constants, tensors by their shapes, and the names of functions."""
        return texts.stats(self.program)

    def as_text(self) -> str:
        """The instructions as text."""
        return texts.as_text(self.program)

    def as_python(self) -> str:
        """The instructions as calls of a builder."""
        return texts.as_python(self.program)

    def inspect_source(self, fmt: str = "") -> str:
        """The text of the kernels' code, in a format that `Module.inspect_source` of their target takes.

        Raises `LibraryError` for an executable without kernels, and for one that was loaded from a file.
        """
        if self.library is None:
            raise LibraryError("the executable has no kernels, so there is no source text of any")
        return self.library.inspect_source(fmt)

    get_source = inspect_source

    def export_library(
        self,
        file_name: str | Path,
        fcompile: Callable[..., object] | None = None,
        workspace_dir: str | None = None,
        *,
        header: str | Path | None = None,
        weights: str | Path | None = None,
        threads: bool = False,
        **kwargs: object,
    ) -> str:
        """Writes a file that `load_module` reads, with nothing but `oneir.runtime` installed.

        The kernels are written as `Module.export_library` does: a shared library if the name ends in .so and the
        machine has a linker, else an archive of object code. `fcompile(path, object_files, **kwargs)` is called in
        place of the machine's linker. `workspace_dir` has no effect. Returns the path written.

        With `header`, the file stands alone: it is machine code, weights and a small runtime, and `header` a C header
        for it, after whose name its functions are called (`m.h`: `m_init`, `m_plan`, `m_run`, `m_free`). It needs
        nothing but the C library. An object file (.o, .obj) or a static library (.a) is linked into a program; a shared
        library (.so, .dylib, .dll) is one that `load_module` reads, too. `weights` names a file for the weights, which
        `m_init` maps; without it they lie in the file itself. With `threads`, loops may have threads
        (`m_set_threads`).

            ex.export_library("m.so", header="m.h")

        Raises `UnsupportedError` if the program calls functions of imported modules, and for a file that is to stand
        alone if it calls Python or runs on a device; `LibraryError` if a file cannot be written or the linker fails.
        """
        if self.imports:
            raise UnsupportedError(
                "the program calls functions of imported modules, which stay in this process: "
                f"{', '.join(type(module).__name__ for module in self.imports)}; what is written to a file has none"
            )
        path = Path(file_name)
        if header is not None:
            if self.exporter is None:
                raise UnsupportedError(
                    "a program that stands alone is made of what an executable was compiled from, which one that was "
                    "loaded from a file has not; export it where it is compiled"
                )
            linker = None if fcompile is None else partial(fcompile, **kwargs)
            self.exporter(self, path, Path(header), None if weights is None else Path(weights), threads, linker)
            return str(path)
        if weights is not None or threads:
            raise InvalidValue("`weights` and `threads` are for files that stand alone: give `header` as well")
        library = b"" if self.library is None else self.library.library_bytes(path, fcompile, **kwargs)
        specs = {name: native.spec for name, native in self.natives.items()}
        write_executable(path, self.program, library, specs)
        return str(path)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled, and copied, as the file that `export_library` writes, without the machine's linker.

        Raises `LibraryError` for what was loaded from a shared library, which cannot be written again.
        """
        with tempfile.TemporaryDirectory() as folder:
            return unpickled, (Path(self.export_library(Path(folder) / "executable.tar")).read_bytes(),)

    def __repr__(self) -> str:
        return f"Executable({', '.join(self._places)})"


def wrap_or_share(value: object) -> Tensor:
    """A tensor over the memory of an array of any library; a copy of lists and numbers."""
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value)
    return wrap_array(as_array(value))


VMExecutable = Executable
