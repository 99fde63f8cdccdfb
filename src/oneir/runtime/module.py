"""Compiled modules: functions by name, how long they take, and files of them.

lib = load_module("gemm.so") lib["gemm"](a, b, c) print(lib.time_evaluator("gemm", cpu(), number=100)(a, b, c))
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import callback, llvm, pool, workspace
from .device import Device
from .entry import make_entry
from .error import InvalidValue, LibraryError, NotRegistered, TypeMismatch
from .object import Object
from .registry import get_global_func
from .signature import Signature

SYMBOL_PREFIX = "__oneir_"
"""What the symbol of a function in object code starts with."""

# What object code refers to by name; importing these modules has made it known to the linker.
RUNTIME_SYMBOLS = {
    "oneir_parallel_for": pool.parallel_for_address,
    "oneir_call_packed": callback.call_packed_address,
    "oneir_alloc_workspace": partial(workspace.workspace_address, "oneir_alloc_workspace"),
    "oneir_free_workspace": partial(workspace.workspace_address, "oneir_free_workspace"),
}


class Linked(Protocol):
    """Code in memory: says where a symbol is, and stays as long as it is referred to."""

    def symbol(self, name: str) -> int:
        """The address of a symbol."""
        ...


class BenchmarkResult:
    """Times of repeated measurements, in seconds."""

    def __init__(self, results: Sequence[float]):
        self.results = tuple(results)
        self.mean = statistics.fmean(self.results)
        self.median = statistics.median(self.results)
        self.min, self.max = min(self.results), max(self.results)
        self.std = statistics.pstdev(self.results)

    def __repr__(self) -> str:
        return (
            f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, std={self.std})"
        )

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        header = "".join(f"{name + ' (ms)':^14}" for name in names)
        values = "".join(f"{getattr(self, name) * 1e3:^14.4f}" for name in names)
        return f"Execution time summary:\n{header}\n{values}"


class Module(Object):
    """Functions by name.

    `module["f"]` is the function; calling the module calls its entry function: the only one, or "main".
    """

    def __init__(
        self,
        link: Callable[[], Linked],
        signatures: dict[str, Signature],
        objects: Sequence[bytes] = (),
        sources: Callable[[str], str] | None = None,
    ):
        self._link = link
        self._linked: Linked | None = None
        self._signatures = dict(signatures)
        self._objects = tuple(objects)
        self._sources = sources
        self._functions: dict[str, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    @staticmethod
    def from_objects(
        objects: Sequence[bytes], signatures: dict[str, Signature], sources: Callable[[str], str] | None = None
    ) -> Module:
        """A module of object code; it is linked when a function is first asked for.

        `sources(format)` gives the text behind the code, for `inspect_source`.
        """
        return Module(lambda: llvm.link(*objects, what="a compiled module"), signatures, objects, sources)

    # -- functions --

    @property
    def names(self) -> list[str]:
        """The names of all functions."""
        return list(self._signatures)

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

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function of that name. Of `query_imports` there is nothing to tell: modules import no others."""
        function = self._functions.get(name)
        if function is None:
            signature = self._signatures.get(name)
            if signature is None:
                raise NotRegistered(f"the module has no function {name!r}; it has {', '.join(self.names) or 'none'}")
            with self._lock:
                if self._linked is None:
                    self._linked = self._link()
                address = self._linked.symbol(SYMBOL_PREFIX + name)
                function = self._functions[name] = make_entry(address, signature, self._linked)
        return function

    @property
    def mod(self) -> Module:
        """The module itself: what was compiled can be called at once."""
        return self

    def jit(self, *, fcompile: Any = None, addons: Any = None, force_recompile: bool = False, **kwargs: Any) -> Module:
        """The module itself: its code is in memory, and linked when a function is first asked for."""
        return self

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return name in self._signatures

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.get_function(name)

    def __contains__(self, name: object) -> bool:
        return name in self._signatures

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeMismatch(
            "a compiled module can be neither pickled nor copied: "
            "write it to a file with export_library, and read that with load_module"
        )

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
        """A function that calls another and measures it: `repeat` times the mean over `number` calls.

        With `min_repeat_ms`, `number` grows until one measurement takes that long, unless it takes no measurable time
        for `limit_zero_time_iterations` times. One call before is not counted. After every `repeats_to_cooldown`
        measurements comes a rest of `cooldown_interval_ms`; before each, `cache_flush_bytes` of other memory are
        written, which puts the arguments out of the caches. The function registered as `f_preproc` is called with the
        arguments before each.
        """
        if min(number, repeat, repeats_to_cooldown) < 1:
            raise InvalidValue(
                "number, repeat and repeats_to_cooldown must be at least 1, "
                f"found {number}, {repeat} and {repeats_to_cooldown}"
            )
        function = self.get_function(func_name)
        prepare = get_global_func(f_preproc) if f_preproc else None

        def measure(count: int, args: tuple[Any, ...]) -> float:
            start = time.perf_counter()
            for _ in range(count):
                function(*args)
            return time.perf_counter() - start

        def evaluate(*args: Any) -> BenchmarkResult:
            function(*args)
            count, zeros, results = number, 0, []
            while min_repeat_ms and zeros < limit_zero_time_iterations:
                seconds = measure(count, args)
                if seconds * 1e3 >= min_repeat_ms:
                    break
                zeros += seconds == 0
                count = max(count * 2, int(count * min_repeat_ms / max(seconds * 1e3, 1e-3)) + 1)
            for index in range(repeat):
                if cache_flush_bytes:
                    np.zeros(cache_flush_bytes, "uint8").fill(1)
                if prepare is not None:
                    prepare(*args)
                results.append(measure(count, args) / count)
                if cooldown_interval_ms and (index + 1) % repeats_to_cooldown == 0:
                    time.sleep(cooldown_interval_ms * 1e-3)
            return BenchmarkResult(results)

        return evaluate

    # -- texts and files --

    def inspect_source(self, fmt: str = "") -> str:
        """The text behind the code: "ll" (LLVM IR, optimized) unless `fmt` asks for "asm" or "ll-unoptimized"."""
        if self._sources is None:
            raise LibraryError("a module loaded from a file has no source text; inspect the one that was exported")
        return self._sources(fmt)

    get_source = inspect_source

    def export_library(self, file_name: str | Path, fcompile: Any = None, **kwargs: Any) -> str:
        """Writes a file that `load_module` reads, with nothing but `oneir.runtime` installed.

        A name that ends in .so, .dylib or .dll makes a shared library, where the machine has a linker; .o or .obj makes
        an object file, if the module is one; any other name, or no linker, an archive of object code.
        `fcompile(path, object_files, **kwargs)` is called in place of the machine's linker. Returns the path written.
        """
        from .library import export

        if not self._objects:
            raise LibraryError("a module loaded from a shared library cannot be exported again; copy its file")
        linker = None if fcompile is None else partial(fcompile, **kwargs)
        return export(Path(file_name), self._objects, self._signatures, linker)


Executable = Module
"""What `compile` returns: a module, ready to be called."""


def load_module(path: str | Path, fmt: str = "") -> Module:
    """The module in a file that `export_library` wrote. Damaged, foreign and other files are a `LibraryError`."""
    from .library import load

    link, signatures, objects = load(Path(path))
    return Module(link, signatures, objects)


def load_static_library(path: str | Path, func_names: Sequence[str] = ()) -> Module:
    """The module in an object file that `export_library` wrote; it can be exported again, into a shared library.

    `LibraryError` for a file that is damaged or foreign, or that lacks one of `func_names`.
    """
    module = load_module(path)
    if missing := [name for name in func_names if name not in module]:
        raise LibraryError(f"{path} has no {', '.join(missing)}; it has {', '.join(module.names) or 'no functions'}")
    return module


def enabled(target: str) -> bool:
    """Whether code for a target can be run in this process."""
    return target.split()[0] in ("llvm", "cpu")
