"""Compiled modules: functions by name, their time evaluators, and the files that hold them.

lib = load_module("gemm.so")
lib["gemm"](a, b, c)
print(lib.time_evaluator("gemm", cpu(), number=100)(a, b, c))
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import llvm
from .benchmark import BenchmarkResult, time_evaluator
from .device import Device
from .entry import make_entry
from .error import LibraryError, UnknownFunction, UnsupportedError
from .library import Linked, ir_signatures, ir_with_metadata, library_bytes, link, load, loaded_libraries, write_file
from .object import Object
from .object_file import read_symbols
from .once import new_lock
from .signature import Signature
from .vm.executable import Executable as GraphExecutable
from .vm.executable import read_file, unpickled
from .vm.file import decode
from .vm.native import NativeGraph

SYMBOL_PREFIX = "__oneir_"
"""What the symbol of a function in object code starts with."""


Sources = Callable[[str], str]
"""Returns the text of the code in a format; "" is the default one."""


@dataclass(frozen=True, slots=True)
class DeferredFunctions:
    """Functions that are compiled when one of them is first asked for, or when the module is exported."""

    # `objects` compiles them.

    objects: Callable[[], Sequence[bytes]]
    signatures: Mapping[str, Signature]


class Module(Object):
    """Compiled functions by name.

    `module["f"]` is a function; calling the module calls its entry function: the only one, or "main". Functions take
    tensors of any library, numbers, strings and None, without copying them, and raise `TypeMismatch`, `ShapeMismatch`
    or `InvalidValue` for arguments that do not meet their signature.
    """

    def __init__(
        self,
        link: Callable[[], Linked],
        signatures: dict[str, Signature],
        objects: Sequence[bytes] = (),
        sources: Sources | None = None,
        deferred: DeferredFunctions | None = None,
    ):
        self._link = link
        self._linked: Linked | None = None
        self._signatures = {**signatures, **(deferred.signatures if deferred else {})}
        self._objects = tuple(objects)
        self._deferred = deferred
        self._sources = sources
        self._functions: dict[str, Callable[..., Any]] = {}
        self._lock = new_lock()

    @staticmethod
    def from_objects(
        objects: Sequence[bytes],
        signatures: dict[str, Signature],
        sources: Sources | None = None,
        deferred: DeferredFunctions | None = None,
    ) -> Module:
        """A module of object code, which is linked when a function is first asked for.

        `signatures` are those of its public functions, by name. `sources(format)` returns the text of the code, for
        `inspect_source`.
        """
        return Module(lambda: link(*objects, what="a compiled module"), signatures, objects, sources, deferred)

    # -- functions --

    @property
    def names(self) -> list[str]:
        """The names of all functions."""
        return list(self._signatures)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signature of each function, by its name."""
        return self._signatures

    @property
    def entry_name(self) -> str:
        """The name of the function that calling the module calls."""
        if len(self._signatures) == 1:
            return next(iter(self._signatures))
        return "main"

    @property
    def entry_func(self) -> Callable[..., Any]:
        """The function that calling the module calls."""
        return self.get_function(self.entry_name)

    @property
    def main(self) -> Callable[..., Any]:
        """The function that calling the module calls, by its other published name."""
        return self.entry_func

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function of that name. `query_imports` has no effect, since modules import no others.

        Raises `UnknownFunction` if there is none, `LibraryError` if the module cannot be linked.
        """
        function = self._functions.get(name)
        if function is None:
            signature = self._signatures.get(name)
            if signature is None:
                raise UnknownFunction(f"the module has no function {name!r}; it has {', '.join(self.names) or 'none'}")
            with self._lock:
                if self._deferred is not None and name in self._deferred.signatures:
                    self._complete()
                if self._linked is None:
                    self._linked = self._link()
                address = self._linked.symbol(SYMBOL_PREFIX + name)
                function = self._functions[name] = make_entry(address, signature, self._linked)
        return function

    def _complete(self) -> Sequence[bytes]:
        """The objects of all functions; compiles those that were deferred, after which all are linked again."""
        if self._deferred is not None:
            objects = self._objects = (*self._objects, *self._deferred.objects())
            self._link, self._linked = (lambda: link(*objects, what="a compiled module")), None
            self._deferred = None
        return self._objects

    def linked_again(self) -> Module:
        """Another module of the same code, with memory of its own. Raises `LibraryError` for a loaded library."""
        if not self.is_compilation_exportable():
            raise LibraryError("what was loaded from a shared library cannot be linked again; load the file again")
        with self._lock:
            return Module.from_objects(self._complete(), dict(self._signatures), self._sources)

    @property
    def mod(self) -> Module:
        """The module itself: what was compiled can be called at once."""
        return self

    def jit(
        self, *, fcompile: object = None, addons: object = None, force_recompile: bool = False, **kwargs: object
    ) -> Module:
        """The module itself: its code is in memory, and linked when a function is first asked for."""
        return self

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return name in self._signatures

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.get_function(name)

    def __contains__(self, name: object) -> bool:
        return name in self._signatures

    def __call__(self, *args: object) -> Any:
        return self.entry_func(*args)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled, and copied, as the file that `export_library` writes, without the machine's linker.

        Raises `LibraryError` for what was loaded from a shared library, which cannot be written again.
        """
        with tempfile.TemporaryDirectory() as folder:
            return unpickled, (Path(self.export_library(Path(folder) / "module.tar")).read_bytes(),)

    def __repr__(self) -> str:
        return f"Module({', '.join(map(str, self._signatures.values()))})"

    # -- time --

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that calls one of the module's and returns its times in seconds (`benchmark.time_evaluator`)."""
        return time_evaluator(
            self.get_function(func_name),
            number,
            repeat,
            min_repeat_ms,
            limit_zero_time_iterations,
            cooldown_interval_ms,
            repeats_to_cooldown,
            cache_flush_bytes,
            f_preproc,
            dev,
        )

    # -- texts and files --

    def inspect_source(self, fmt: str = "") -> str:
        """The text of the code, in one of the formats of the target's back end; "" is the first of them.

        For processors they are "ll" (optimized LLVM IR), "ll-unoptimized" and "asm"; for a device the name of its kind
        (the text of its kernels), and "host".

        Raises `LibraryError` for a module that was loaded from a file, `InvalidValue` for another format.
        """
        if self._sources is None:
            raise LibraryError("a module loaded from a file has no source text; inspect the one that was exported")
        return self._sources(fmt)

    get_source = inspect_source

    def export_library(
        self, file_name: str | Path, fcompile: Callable[..., object] | None = None, **kwargs: object
    ) -> str:
        """Writes a file that `load_module` reads, with nothing but `oneir.runtime` installed.

        A name that ends in .so, .dylib or .dll makes a shared library, where the machine has a linker; .o or .obj makes
        an object file, if the module is one; any other name, or no linker, an archive of object code.
        `fcompile(path, object_files, **kwargs)` is called in place of the machine's linker. Returns the path written.

        Raises `LibraryError` if the file cannot be written or the linker fails, and for a module that was loaded from a
        shared library.
        """
        if "header" in kwargs:
            raise UnsupportedError(
                "programs that stand alone, with a C header, are made of graphs; call these functions from one"
            )
        path = Path(file_name)
        write_file(path, [self.library_bytes(path, fcompile, **kwargs)])
        return str(path)

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Writes the code in one format: "o" and "obj" are object code, "ll" and "bc" LLVM IR as text and as bitcode,
        all of which `load_module` reads; any other is a text of `inspect_source`, and "" what the ending of the name
        says.

        Raises as `inspect_source` and `export_library` do.
        """
        path = Path(file_name)
        fmt = fmt or path.suffix.removeprefix(".")
        if fmt in ("o", "obj"):
            write_file(path, [self.library_bytes(path.with_suffix(".o"))])
        elif fmt in ("ll", "bc"):
            text = ir_with_metadata(self.inspect_source("ll"), self._machine(), self.signatures)
            write_file(path, [text.encode() if fmt == "ll" else llvm.to_bitcode(text)])
        else:
            write_file(path, [self.inspect_source(fmt).encode()])

    save = write_to_file

    def _machine(self) -> str:
        with self._lock:
            return read_symbols(self._complete()[0], "the module").machine

    def is_compilation_exportable(self) -> bool:
        """Whether the module can be a part of a library: not what was itself loaded from a shared library."""
        return bool(self._objects) or self._deferred is not None

    @property
    def kind(self) -> str:
        """ "library" for what was loaded from a shared library, else "static_library"."""
        return "static_library" if self.is_compilation_exportable() else "library"

    @property
    def imports(self) -> list[Module]:
        """No modules: the functions of what is imported are the module's own."""
        return []

    def import_module(self, module: Module) -> None:
        """Makes the functions of another module this one's own, in memory and in the files that it is exported to.

        Raises `LibraryError` for a module that was loaded from a shared library, and for functions that both have.
        """
        if both := sorted(self._signatures.keys() & module.signatures.keys()):
            raise LibraryError(f"both modules have {', '.join(both)}; give the functions different names")
        if not (self.is_compilation_exportable() and module.is_compilation_exportable()):
            raise LibraryError("what was loaded from a shared library cannot be linked again; import the object file")
        with module._lock:
            imported = module._complete()
        with self._lock:
            objects = self._objects = (*self._complete(), *imported)
            self._signatures.update(module.signatures)
            self._link, self._linked = (lambda: link(*objects, what="a compiled module")), None
            self._functions.clear()

    def library_bytes(self, path: Path, fcompile: Callable[..., object] | None = None, **kwargs: object) -> bytes:
        """The content of the file that `export_library` writes to `path`; raises as it does."""
        if not self.is_compilation_exportable():
            raise LibraryError("a module loaded from a shared library cannot be exported again; copy its file")
        linker = None if fcompile is None else partial(fcompile, **kwargs)
        with self._lock:
            return library_bytes(path, self._complete(), self._signatures, linker)


class Executable(Module):
    """What `compile` returns for PrimFuncs: a module, `mod`, with its published methods."""

    def __init__(self, mod: Module):
        self._mod = mod
        self._jitted_mod: Module | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "_mod":  # while it is made
            raise AttributeError(name)
        return getattr(self._mod, name)

    @property
    def mod(self) -> Module:
        """The module."""
        return self._mod

    def jit(
        self, *, fcompile: object = None, addons: object = None, force_recompile: bool = False, **kwargs: object
    ) -> Module:
        """The module: its code is in memory, and linked when a function is first asked for.

        `force_recompile` links the code once more, as another module, if the module was compiled here.
        """
        if self._jitted_mod is None or force_recompile:
            again = force_recompile and self._mod.is_compilation_exportable()
            self._jitted_mod = self._mod.linked_again() if again else self._mod
        return self._jitted_mod

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        return self._mod.get_function(name, query_imports)

    def library_bytes(self, path: Path, fcompile: Callable[..., object] | None = None, **kwargs: object) -> bytes:
        return self._mod.library_bytes(path, fcompile, **kwargs)


@read_file.provide
def load_module(path: str | Path, fmt: str = "") -> Any:
    """The module, or the executable of a graph, in a file that `export_library` or `write_to_file` wrote.

    `fmt` is "ll" or "bc" for LLVM IR, which is compiled for this machine, if the ending of the name does not say so.
    Raises `LibraryError` for a file that is damaged, for another machine, or not of that kind, `CompileError` for IR
    that LLVM refuses.
    """
    path = Path(path)
    fmt = fmt or path.suffix.removeprefix(".")
    if fmt in ("ll", "bc"):
        return _read_ir(path, fmt)
    stored = decode(path)
    if stored is None:
        return _read_module(path)
    if not stored.library:
        return GraphExecutable(stored.program)
    library = Module(*load(path, stored.library))
    natives = {name: NativeGraph(spec, library) for name, spec in stored.natives.items()}
    return GraphExecutable(stored.program, library, natives)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LibraryError(f"cannot read the library {path}: {error.strerror or error}") from error


def _read_module(path: Path) -> Module:
    return Module(*load(path, _read(path)))


def _read_ir(path: Path, fmt: str) -> Module:
    data = _read(path)
    text = llvm.from_bitcode(data, str(path)) if fmt == "bc" else data.decode(errors="replace")
    signatures = ir_signatures(path, text)
    # What was written is optimized already.
    return Module.from_objects([llvm.compile_ir(text, name=str(path), passes="none")], signatures)


def load_static_library(path: str | Path, func_names: Sequence[str] = ()) -> Module:
    """The module in an object file that `export_library` wrote; it can be exported again, into a shared library.

    Raises `LibraryError` for a file that is damaged or for another machine, or that lacks one of `func_names`.
    """
    module = _read_module(Path(path))
    if missing := [name for name in func_names if name not in module]:
        raise LibraryError(f"{path} has no {', '.join(missing)}; it has {', '.join(module.names) or 'no functions'}")
    return module


class _Loaded:
    """Functions of libraries that are loaded already, by their names without a prefix."""

    def __init__(self, links: Mapping[str, Callable[[], Linked]], prefix: str):
        self.links, self.prefix = links, prefix

    def symbol(self, name: str) -> int:
        """The address of a function."""
        name = self.prefix + name.removeprefix(SYMBOL_PREFIX)
        return self.links[name]().symbol(SYMBOL_PREFIX + name)


def system_lib(symbol_prefix: str = "") -> Module:
    """The module of all compiled functions that are in this process already.

    They are those of shared libraries that it has loaded, by `ctypes.CDLL` for instance, on systems that list these in
    /proc. Of names that begin with `symbol_prefix`, and no others, the module has the rest.
    """
    links: dict[str, Callable[[], Linked]] = {}
    signatures: dict[str, Signature] = {}
    for code, functions, _ in loaded_libraries():
        for name, signature in functions.items():
            if name.startswith(symbol_prefix) and name not in links:
                links[name], signatures[name.removeprefix(symbol_prefix)] = code, signature
    return Module(lambda: _Loaded(links, symbol_prefix), signatures)


def enabled(target: str) -> bool:
    """Whether code for a target, such as "llvm", can run in this process."""
    return target.split()[0] in ("llvm", "c", "cpu")
