"""Pipelines: the passes that take TensorIR from blocks to what code is generated from.

    with Target("llvm"):
        mod = get_tir_pipeline("default")(mod)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass, PassContext, PassInfo, Sequential
from ..runtime.error import NotRegistered
from ..target.target import Target
from . import transform


class _Pipeline(Pass):
    """A pipeline is a pass: the passes that a function lists when it runs."""

    def __init__(self, name: str, passes: Callable[[], list[Pass]]):
        self.info = PassInfo(0, name)
        self.passes = passes

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential(self.passes(), name=self.info.name).transform_module(mod, ctx)


def default_tir_passes() -> list[Pass]:
    """From blocks to flat, vectorized loops with the packed convention, for processors."""
    return [
        transform.BindTarget(Target.current(allow_none=True) or Target("llvm")),
        # blocks become statements
        transform.LowerInitBlock(),
        transform.ConvertBlocksToOpaque(),
        transform.LowerMatchBuffer(),
        transform.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        # types that processors do not compute in
        transform.BF16ComputeLegalize(),
        transform.FP8ComputeLegalize(),
        # loops
        transform.Simplify(),
        transform.LoopPartition(),
        transform.VectorizeLoop(),
        transform.StorageRewrite(),
        transform.UnrollLoop(),
        transform.Simplify(),
        transform.RemoveNoOp(),
        transform.RewriteUnsafeSelect(),
        # the function as it is called
        transform.MakePackedAPI(),
        transform.LowerTVMBuiltin(),
        transform.LowerIntrin(),
        transform.FP8StorageLegalize(),
        transform.BF16StorageLegalize(),
    ]


_pipelines: dict[str, Callable[[], list[Pass]]] = {"default": default_tir_passes}


def get_tir_pipeline(name: str = "default", **kwargs: Any) -> Pass:
    """The pipeline of that name."""
    if name not in _pipelines:
        raise NotRegistered(f"no TensorIR pipeline {name!r}; there are {', '.join(sorted(_pipelines))}")
    return _Pipeline(name, _pipelines[name])


def register_tir_pipeline(name: str, passes: Callable[[], list[Pass]]) -> None:
    """Makes a pipeline known under a name; `passes` lists it each time it runs."""
    _pipelines[name] = passes
