"""Graphs of unknown extents, compiled for known ones in another process while this one runs them.

    compile = compiler_of(key, target)
    module = compile("main", (64,))     # None where it cannot be had

The process finds the lowered graph, and keeps what it compiles, in the cache on disk. So only graphs that are there
are compiled anew, and another run of the program has the result within a second.
"""

from __future__ import annotations

import os
import pickle
import warnings

from ..codegen.backend import backend_of
from ..codegen.program.specialize import with_known_extents
from ..ir.transform import PassContext
from ..runtime.child import Child
from ..runtime.error import OneIRError
from ..runtime.module import Module
from ..runtime.pool import num_threads, set_num_threads
from ..runtime.signature import Signature
from ..runtime.vm.specialized import Compile
from ..target.target import Target
from . import graph_cache
from .build import compile_units, signatures_of
from .stages import schedule_passes

_NICE = 10
"""The process gets a tenth of a processor that others want: a second of compiling takes up to ten."""


def compiler_of(key: str | None, target: Target) -> Compile | None:
    """What compiles functions of the graph that the cache has under `key` for known extents; None if nothing is to.

    Setting the environment variable `ONEIR_SPECIALIZE` to 0 turns it off.
    """
    if key is None or os.environ.get("ONEIR_SPECIALIZE") == "0" or target.kind.name != "llvm":
        return None
    context = PassContext.current()
    try:
        options = pickle.dumps((context.opt_level, context.config))
    except (pickle.PicklingError, TypeError, AttributeError):
        return None

    def compile(symbol: str, extents: tuple[int, ...]) -> Module | None:
        try:
            with Child("from oneir.driver.background import compile_for as answer") as child:
                found = child.ask(key, symbol, extents, str(target), options, num_threads())
        except (OSError, EOFError):
            return None
        if isinstance(found, str):
            warnings.warn(
                f"`{symbol}` could not be compiled for the extents {extents}, so the code for all extents stays in "
                f"use (ONEIR_SPECIALIZE=0 turns this off): {found}",
                RuntimeWarning,
                stacklevel=1,
            )
            return None
        return found and backend_of(target).load(*found)

    return compile


def compile_for(
    key: str, symbol: str, extents: tuple[int, ...], target: str, options: bytes, threads: int
) -> tuple[list[bytes], dict[str, Signature]] | str | None:
    """What the other process does: the objects of a graph function for known extents, and its signature.

    Gives the text of an error, or None if the cache no longer has the graph.
    """
    if hasattr(os, "nice"):
        os.nice(_NICE)
    set_num_threads(threads)
    compiled, known = graph_cache.get(key), Target(target)
    if compiled is None or compiled.code is None:
        return None
    mod = with_known_extents(compiled.code.modules()[0], symbol, compiled.natives[symbol].params, extents)
    opt_level, config = pickle.loads(options)
    try:
        with PassContext(opt_level, config=config):
            return compile_units(mod, known, "default", schedule_passes(known)), signatures_of(mod, known)
    except OneIRError as error:
        return str(error)
