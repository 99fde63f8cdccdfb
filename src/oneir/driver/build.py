"""Building: from a module of loops to functions that can be called.

The work is one line each: lower, write code, compile, load. Compiled code is kept on disk under a digest of the
module's structure, the target, the options and the compiler itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..codegen.backend import Backend, backend_of
from ..codegen.units import merged, split
from ..ir.module import BaseFunc, IRModule
from ..ir.structural import structural_digest
from ..ir.transform import Pass, PassContext, pass_key
from ..runtime import object_cache
from ..runtime.error import InvalidValue, TypeMismatch, UnsupportedError
from ..runtime.module import Module
from ..runtime.once import once
from ..runtime.signature import Signature
from ..target.target import Target
from ..tir.function import PrimFunc
from ..tir.pipeline import DefaultTIRPipeline, TIRPipeline, get_tir_pipeline
from ..tir.transform.make_packed_api import signature_of


def build(
    mod: PrimFunc | IRModule,
    target: str | dict[str, Any] | Target | None = None,
    pipeline: str | Pass | None = "default",
) -> Module:
    """Compiles loops to native code.

    `mod` is a function, called "main" unless its `global_symbol` says otherwise, or a module of functions; those with a
    `global_symbol` can be called from Python: `built["main"](a, b, c)`.
    `target` is "llvm" (this machine) unless given or
    entered as a context. `pipeline` lowers the module: the name of a registered pipeline, or a pass.
    """
    module, target = as_module(mod), as_target(target)
    objects = compile_units(module, target, pipeline)
    return backend_of(target).load(objects, signatures_of(module), KernelSources(module, target, pipeline))


def compile_units(
    mod: IRModule, target: Target, pipeline: str | Pass | None, schedule: Pass | None = None
) -> list[bytes]:
    """The objects of a module, from the cache or compiled. `schedule` runs before the pipeline.

    Code is compiled in a thread of its own, one unit while the next is lowered.
    """
    units, backend = split(mod), backend_of(target)
    facts = cache_facts(target)
    keys = [_cache_key(unit, target, pipeline, schedule, facts) for unit in units]
    objects = [None if key is None else object_cache.get(key) for key in keys]
    missing = [i for i, data in enumerate(objects) if data is None]
    with ThreadPoolExecutor(1) as pool:
        compiled = [
            pool.submit(_compile, backend, text, target)
            for text in _texts([units[i] for i in missing], target, pipeline, schedule)
        ]
        for i, result in zip(missing, compiled, strict=True):
            data, seconds = result.result()
            objects[i] = data
            _tell("compiling code", seconds)
            key = keys[i]
            if key is not None:
                object_cache.put(key, data)
    return [data for data in objects if data is not None]


def _texts(units: list[IRModule], target: Target, pipeline: str | Pass | None, schedule: Pass | None) -> Iterator[str]:
    """The code of each unit as text. Others' passes, and those who watch passes, see the whole module at once."""
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
            _tell("writing code", time.perf_counter() - start)
            yield text


def _compile(backend: Backend, text: str, target: Target) -> tuple[bytes, float]:
    """The object, and how many seconds it took."""
    start = time.perf_counter()
    return backend.compile(text, target), time.perf_counter() - start


def _tell(stage: str, seconds: float) -> None:
    """Tells instruments how long something took that is no pass."""
    for instrument in PassContext.current().instruments:
        instrument.run_after_stage(stage, seconds)


def signatures_of(mod: IRModule) -> dict[str, Signature]:
    """What the exported functions of a module expect of their arguments."""
    return {
        func.attrs["global_symbol"]: signature_of(func)
        for func in mod.functions.values()
        if isinstance(func, PrimFunc) and "global_symbol" in func.attrs
    }


def as_module(mod: Any) -> IRModule:
    """A function or module as a module whose exported functions all have a `global_symbol`."""
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


def as_target(target: Any) -> Target:
    """The target given, else the one entered, else this machine. `UnsupportedError` for one without a back end."""
    if target is None:
        target = Target.current(allow_none=True) or "llvm"
    target = target if isinstance(target, Target) else Target(target)
    backend_of(target)
    return target


def lower(
    mod: IRModule, target: Target, pipeline: str | Pass | None = "default", schedule: Pass | None = None
) -> IRModule:
    """The module after its schedules and the pipeline, ready for code generation."""
    passes = get_tir_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    with target:
        mod = mod if schedule is None else schedule(mod)
        return mod if passes is None else passes(mod)


class KernelSources:
    """The texts behind a built module, made again only when someone asks for them."""

    def __init__(self, mod: IRModule, target: Target, pipeline: str | Pass | None, schedule: Pass | None = None):
        self.arguments = (mod, target, pipeline, schedule)

    def __call__(self, fmt: str) -> str:
        mod, target, pipeline, schedule = self.arguments
        backend = backend_of(target)
        return backend.show(backend.write(lower(mod, target, pipeline, schedule)), target, fmt)


# -- the cache --


def cache_facts(target: Target) -> list[str] | None:
    """What code depends on besides what is compiled; None if nothing may be cached.

    That is the target, what its back end says of it, the options of passes, and the state of the compiler itself.
    """
    ctx = PassContext.current()
    if ctx.instruments or ctx.disabled_pass or ctx.required_pass or object_cache.cache_dir() is None:
        return None
    options = json.dumps([ctx.opt_level, ctx.config], sort_keys=True, default=str)
    return [str(target), *backend_of(target).facts(target), options, _fingerprint()]


def _cache_key(
    mod: IRModule, target: Target, pipeline: str | Pass | None, schedule: Pass | None, facts: list[str] | None
) -> str | None:
    """Where compiled code of this module is kept; None when something about it has no digest."""
    passes = pass_key([_passes_of(pipeline, target), schedule])
    if passes is None or facts is None:
        return None
    names = ",".join(sorted(v.name_hint for v in mod.functions))
    return object_cache.cache_key(structural_digest(mod), names, _parameter_names(mod), passes, *facts)


def _passes_of(pipeline: str | Pass | None, target: Target) -> Any:
    """What a pipeline runs: a name stands for its passes, which whoever registered it may have changed."""
    if not isinstance(pipeline, str):
        return pipeline
    named = get_tir_pipeline(pipeline)
    return named.listed(target) if isinstance(named, (DefaultTIRPipeline, TIRPipeline)) else named


def _parameter_names(mod: IRModule) -> str:
    """The names of parameters, which the messages of refused calls show but equality does not see."""
    parts = []
    for var, func in mod.functions_items():
        assert isinstance(func, PrimFunc)
        names = [func.buffer_map[p].name if p in func.buffer_map else p.name for p in func.params]
        parts.append(f"{var.name_hint}({','.join(names)})")
    return ";".join(parts)


@once
def _fingerprint() -> str:
    """A digest of the compiler's own files, so that code compiled by another state of it is not used."""
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
