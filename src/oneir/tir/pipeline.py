"""Pipelines: the passes that take TensorIR from blocks to what code is generated from.

with Target("llvm"):
    mod = get_tir_pipeline("default")(mod)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass, PassContext, PassInfo, Sequential, register_config_option
from ..runtime.error import NotRegistered
from ..target.target import Target
from . import transform

for _option in ("tir.disable_vectorize", "tir.disable_assert"):
    register_config_option(_option, bool)


class _Pipeline(Pass):
    """A pipeline is a pass: the passes that a function lists when it runs."""

    def __init__(self, name: str, passes: Callable[[], list[Pass]]):
        self.info = PassInfo(0, name)
        self.passes = passes

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential(self.passes(), name=self.info.name).transform_module(mod, ctx)


def default_tir_passes() -> list[Pass]:
    """From blocks to flat, vectorized loops with the packed convention, for processors."""
    config = PassContext.current().config
    checked = bool(config.get("tir.instrument_bound_checkers", False))
    return [
        transform.BindTarget(Target.current(allow_none=True) or Target("llvm")),
        # blocks become statements, with memory where it is used and as large as what is used
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.MarkReductions(),
        transform.LowerInitBlock(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
        transform.LowerMatchBuffer(),
        transform.InjectSoftwarePipeline(),
        transform.LowerOpaqueBlock(),
        *([transform.InstrumentBoundCheckers()] if checked else []),
        transform.FlattenBuffer(),
        # types that the target does not compute in
        transform.BF16ComputeLegalize(),
        transform.FP8ComputeLegalize(),
        # loops
        transform.Simplify(),
        transform.LoopPartition(),
        transform.VectorizeLoop(not checked and not config.get("tir.disable_vectorize", False)),
        transform.InjectVirtualThread(),
        transform.InjectDoubleBuffer(),
        transform.StorageRewrite(),
        transform.RenormalizeSplitPattern(),
        transform.Simplify(),
        transform.RemoveNoOp(),
        transform.RewriteUnsafeSelect(),
        transform.HoistIfThenElse(),
        # no CommonSubexprElimTIR: code generation numbers values itself, so it costs time here and gains none there
        *([transform.SkipAssert()] if config.get("tir.disable_assert", False) else []),
        # the function as it is called
        transform.AnnotateEntryFunc(),
        transform.VerifyMemory(),
        transform.MakePackedAPI(),
        transform.MakeUnpackedAPI(),
        transform.BF16StorageLegalize(),
        transform.FP8StorageLegalize(),
        # what the code generator does not know by itself
        transform.LowerTVMBuiltin(),
        transform.LowerIntrin(),
        # last, so that no pass walks over what is written out
        transform.UnrollLoop(),
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


def get_default_tir_pipeline(target: Any) -> Pass:
    """The pipeline for a target."""
    return get_tir_pipeline("default")
