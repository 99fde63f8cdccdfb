"""`compile`: builds a module of PrimFuncs, or one with graph functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ..ir.module import BaseFunc, IRModule
from ..ir.transform import Pass
from ..runtime.module import Module
from ..target.target import Target
from ..tir.function import PrimFunc
from .build import build
from .graph import build_graph

if TYPE_CHECKING:
    from ..runtime.vm.executable import Executable


def compile(
    mod: BaseFunc | IRModule,
    target: str | Mapping[str, object] | Target | None = None,
    *,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
) -> Module | Executable:
    """Compiles a module: one with graph functions as `relax.build` does, one of PrimFuncs only as `build` does.

    Without `target`, the current one is taken, else this machine. The pipelines are names of registered ones, passes,
    or None for none. Raises what those two functions raise.
    """
    functions = list(mod.functions.values()) if isinstance(mod, IRModule) else [mod]
    if functions and all(isinstance(f, PrimFunc) for f in functions):
        return build(cast("PrimFunc | IRModule", mod), target, tir_pipeline)
    return build_graph(mod, target, None, relax_pipeline, tir_pipeline)
