"""Building a module of PrimFuncs: schedule, lower, write code, compile, load.

Compiled code is kept on disk under a digest of the module's structure, the target, the options and the compiler itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import LifoQueue
from typing import Any, TypeAlias

from ..codegen.backend import backend_of
from ..codegen.units import merged, split
from ..ir.module import BaseFunc, IRModule
from ..ir.structural import structural_digest
from ..ir.transform import Pass, PassContext, pass_key
from ..runtime import object_cache
from ..runtime.error import InvalidValue, TypeMismatch, UnsupportedError
from ..runtime.module import DeferredFunctions, Module
from ..runtime.once import once
from ..runtime.pool import num_threads
from ..runtime.signature import Signature
from ..target import datatype
from ..target.target import Target
from ..tir.function import PrimFunc
from ..tir.pipeline import DefaultTIRPipeline, TIRPipeline, driven, get_tir_pipeline
from ..tir.transform import BindTarget
from ..tir.transform.make_packed_api import signature_of
from . import registered
from .turns import short_turns

Compiler: TypeAlias = Callable[[str, Target], bytes]
"""Compiles the text of a unit for a target, as `Backend.compile` does."""


def build(
    mod: PrimFunc | IRModule,
    target: str | Mapping[str, object] | Target | None = None,
    pipeline: str | Pass | None = "default",
) -> Module:
    """Compiles PrimFuncs to native code.

    `mod` is one PrimFunc, called "main" unless it has a `global_symbol`, or a module of them. Functions with a
    `global_symbol` can be called from Python: `built["main"](a, b, c)`. Without `target`, the current one is taken
    (`with target:`) or, outside of any, "llvm", which is this machine. `pipeline` lowers the module: the name of a
    registered pipeline, a pass, or None for a module that is lowered already.

    Raises `TypeMismatch` for anything but a PrimFunc or an IRModule, `UnsupportedError` for a module with other
    functions and for a target without a back end, `InvalidValue` for a module without public functions or with two of
    one name, and `CompileError` for a program that cannot be compiled.
    """
    module, target = as_module(mod), as_target(target)
    backend, signatures = backend_of(target), signatures_of(module, target)
    if backend.compiles_late:
        texts = list(_unit_texts(split(module), target, pipeline, None))
        late = DeferredFunctions(lambda: [backend.compile(text, target) for text in texts], signatures)
        return backend.load([], {}, lambda fmt: "\n".join(backend.show(text, target, fmt) for text in texts), late)
    objects = compile_units(module, target, pipeline)
    return backend.load(objects, signatures, KernelSources(module, target, pipeline))


def compile_units(
    mod: IRModule, target: Target, pipeline: str | Pass | None, schedule: Pass | None = None
) -> list[bytes]:
    """The object code of a module, one object a unit, from the cache or compiled. `schedule` runs before the pipeline.

    Other threads, and for many units other processes as well, compile units while this one lowers the next.
    """
    units, backend = split(mod), backend_of(target)
    facts = cache_facts(target)
    keys = [code_key(unit, target, pipeline, schedule, facts) for unit in units]
    objects = [None if key is None else object_cache.get(key) for key in keys]
    missing = [i for i, data in enumerate(objects) if data is None]
    with (
        short_turns,
        backend.compilers(min(num_threads(), 1 + len(missing) // _UNITS_PER_HELPER)) as compilers,
        ThreadPoolExecutor(len(compilers)) as pool,
    ):
        idle: LifoQueue[Compiler] = LifoQueue()
        for compiler in reversed(compilers):
            idle.put(compiler)
        compiled = [
            pool.submit(_compile_timed, idle, text, target)
            for text in _unit_texts([units[i] for i in missing], target, pipeline, schedule)
        ]
        for i, result in zip(missing, compiled, strict=True):
            data, seconds = result.result()
            objects[i] = data
            _report_time("compiling code", seconds)
            key = keys[i]
            if key is not None:
                object_cache.put(key, data)
    return [data for data in objects if data is not None]


def _unit_texts(
    units: list[IRModule], target: Target, pipeline: str | Pass | None, schedule: Pass | None
) -> Iterator[str]:
    """The code of each unit as text. Pipelines of users, and instruments, get the whole module at once."""
    if not units:
        return
    backend = backend_of(target)
    if pipeline == "default" and not PassContext.current().instruments:
        for unit in units:
            yield backend.write(lower(unit, target, pipeline, schedule))
    else:
        for unit in split(lower(merged(units), target, pipeline, schedule)):
            start = time.perf_counter()
            text = backend.write(unit)
            _report_time("writing code", time.perf_counter() - start)
            yield text


_UNITS_PER_HELPER = 16
"""How many units make up for the start of another process that compiles."""


def _compile_timed(idle: LifoQueue[Compiler], text: str, target: Target) -> tuple[bytes, float]:
    """The object code, and the seconds that compiling it took."""
    compiler = idle.get()
    try:
        start = time.perf_counter()
        return compiler(text, target), time.perf_counter() - start
    finally:
        idle.put(compiler)


def _report_time(stage: str, seconds: float) -> None:
    """Reports to instruments the seconds that a step took which is not a pass."""
    for instrument in PassContext.current().instruments:
        instrument.run_after_stage(stage, seconds)


def signatures_of(mod: IRModule, target: Target) -> dict[str, Signature]:
    """The signatures of a module's public functions, by `global_symbol`; their tensors are on the target's device."""
    return {
        func.attrs["global_symbol"]: signature_of(func)
        for func in BindTarget(driven(target))(mod).functions.values()
        if isinstance(func, PrimFunc) and "global_symbol" in func.attrs
    }


def as_module(mod: object) -> IRModule:
    """A PrimFunc or module as a module that can be built; raises what `build` raises for one that cannot."""
    if isinstance(mod, PrimFunc):
        mod = IRModule(
            {
                mod.attrs.get("global_symbol", "main"): mod.with_attr(
                    "global_symbol", mod.attrs.get("global_symbol", "main")
                )
            }
        )
    if not isinstance(mod, IRModule):
        raise TypeMismatch(f"build expects a PrimFunc or an IRModule, found {type(mod).__name__}")
    for var, func in mod.functions.items():
        if not isinstance(func, PrimFunc):
            kind = type(func).__name__ if isinstance(func, BaseFunc) else repr(func)
            raise UnsupportedError(f"`{var.name_hint}` is a {kind}; only TensorIR functions can be built here")
    symbols: dict[str, str] = {}
    for var, func in mod.functions_items():
        symbol = func.attrs.get("global_symbol")
        if symbol in symbols:
            raise InvalidValue(
                f"`{symbols[symbol]}` and `{var.name_hint}` have the same global_symbol {symbol!r}; "
                "give one of them another: func.with_attr('global_symbol', ...)"
            )
        if symbol is not None:
            symbols[symbol] = var.name_hint
    if not symbols:
        raise InvalidValue("the module has no function to call from outside: all are private")
    return mod


def as_target(target: str | Mapping[str, object] | Target | None) -> Target:
    """The target given, else the current one, else this machine. Raises `UnsupportedError` if it has no back end."""
    if target is None:
        target = Target.current(allow_none=True) or "llvm"
    target = target if isinstance(target, Target) else Target(target)
    backend_of(target)
    return target


def lower(
    mod: IRModule, target: Target, pipeline: str | Pass | None = "default", schedule: Pass | None = None
) -> IRModule:
    """The module after `schedule` and the pipeline, ready for code generation."""
    passes = get_tir_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    with target:
        mod = mod if schedule is None else schedule(mod)
        return mod if passes is None else passes(mod)


class KernelSources:
    """The code of a built module as text: `sources(format)`. It is generated again when it is asked for."""

    def __init__(self, mod: IRModule, target: Target, pipeline: str | Pass | None, schedule: Pass | None = None):
        self.arguments = (mod, target, pipeline, schedule)

    def __call__(self, fmt: str) -> str:
        mod, target, pipeline, schedule = self.arguments
        return backend_of(target).text_of(lower(mod, target, pipeline, schedule), target, fmt)


# -- the cache --


def cache_facts(target: Target) -> list[str] | None:
    """What code depends on besides the module and the passes; None if nothing may be cached.

    These are the target, what its back end adds to it, the options of the `PassContext`, what custom dtypes are lowered
    to, facts of the compiler's operators, and its own files.
    """
    ctx = PassContext.current()
    watching = any(not getattr(instrument, "allows_cache", False) for instrument in ctx.instruments)
    if watching or ctx.disabled_pass or ctx.required_pass or object_cache.cache_dir() is None:
        return None
    options = json.dumps([ctx.opt_level, ctx.config], sort_keys=True, default=str)
    custom, operators = datatype.lowering_digest(), registered.of_loops()
    if custom is None or operators is None:
        return None
    return [str(target), *backend_of(target).facts(target), options, custom, operators, _fingerprint()]


def code_key(
    mod: IRModule, target: Target, pipeline: str | Pass | None, schedule: Pass | None, facts: list[str] | None
) -> str | None:
    """The key of this module's code in the cache; None if something that it depends on has no digest."""
    passes, operators = pass_key([_passes_of(pipeline, target), schedule]), registered.of_users(mod)
    if passes is None or operators is None or facts is None:
        return None
    names = ",".join(sorted(v.name_hint for v in mod.functions))
    return object_cache.cache_key(structural_digest(mod), names, _parameter_names(mod), passes, operators, *facts)


def _passes_of(pipeline: str | Pass | None, target: Target) -> Any:
    """The passes of a pipeline. A name may be registered anew for other passes, so it is no key by itself."""
    if not isinstance(pipeline, str):
        return pipeline
    named = get_tir_pipeline(pipeline)
    return named.listed(target) if isinstance(named, (DefaultTIRPipeline, TIRPipeline)) else named


def _parameter_names(mod: IRModule) -> str:
    """The names of parameters: error messages contain them, and the structural digest does not."""
    parts = []
    for var, func in mod.functions_items():
        assert isinstance(func, PrimFunc)
        names = [func.buffer_map[p].name if p in func.buffer_map else p.name for p in func.params]
        parts.append(f"{var.name_hint}({','.join(names)})")
    return ";".join(parts)


@once
def _fingerprint() -> str:
    """A digest of names, sizes and times of the compiler's files: code of another version of it is not used."""
    digest = hashlib.blake2b(digest_size=16)
    folders = [str(Path(__file__).parent.parent)]
    while folders:
        for entry in sorted(os.scandir(folders.pop()), key=lambda e: e.name):
            if entry.name.endswith(".py"):
                stat = entry.stat()
                digest.update(f"{entry.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
            elif entry.name != "__pycache__" and entry.is_dir():
                folders.append(entry.path)
    return digest.hexdigest()
