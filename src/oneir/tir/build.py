"""`tir.build`, which calls the driver."""

from __future__ import annotations

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..runtime.module import Module
from ..target import codegen
from ..target.target import Target
from .function import PrimFunc


def build(
    mod: PrimFunc | IRModule, target: str | Target | None = None, pipeline: str | Pass | None = "default"
) -> Module:
    """Compiles a function or a module of functions to native code; the same as `oneir.build`."""
    return codegen.build(mod, target, pipeline)
