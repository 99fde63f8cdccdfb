"""Pipelines: the passes that take TensorIR from blocks to what code is generated from.

with Target("llvm"):
    mod = get_tir_pipeline("default")(mod)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass, PassContext, PassInfo, Sequential, register_config_option
from ..runtime.error import NotRegistered
from ..runtime.hook import Hook
from ..target.cpu import cpu_info, pointer_bytes
from ..target.target import Target
from . import transform

for _option in ("tir.disable_vectorize", "tir.disable_assert"):
    register_config_option(_option, bool)


def default_tir_passes() -> list[Pass]:
    """From blocks to flat, vectorized loops with the packed convention, for processors."""
    config, target = PassContext.current().config, Target.current(allow_none=True) or Target("llvm")
    checked = bool(config.get("tir.instrument_bound_checkers", False))
    has_half = target.kind.name != "llvm" or cpu_info(target).has_half
    return [
        transform.BindTarget(target),
        transform.LowerCustomDatatypes(),
        # blocks become statements, with memory where it is used and as large as what is used
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.MarkReductions(),
        transform.LowerInitBlock(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
        transform.LowerMatchBuffer(),
        transform.InjectSoftwarePipeline(expand=True),
        transform.LowerOpaqueBlock(),
        *([transform.InstrumentBoundCheckers()] if checked else []),
        *([transform.InstrumentProfileIntrinsics()] if config.get("tir.instrument_lwp", False) else []),
        transform.FlattenBuffer(),
        # a machine with addresses of 32 bits computes in int64 by several instructions, in pairs of registers
        *([transform.NarrowDataType(32)] if pointer_bytes(target) == 4 else []),
        # types that the target does not compute in
        transform.BF16ComputeLegalize(),
        transform.FP8ComputeLegalize(),
        *([] if has_half else [transform.HalfComputeLegalize()]),
        # loops
        transform.Simplify(),
        transform.HoistFirstIteration(),
        transform.LoopPartition(),
        transform.VectorizeLoop(not checked and not config.get("tir.disable_vectorize", False), mask_lanes=True),
        transform.InjectVirtualThread(),
        transform.InjectDoubleBuffer(),
        transform.StorageRewrite(keep_small=True),
        transform.RenormalizeSplitPattern(),
        transform.Simplify(),
        transform.RemoveNoOp(),
        transform.RewriteUnsafeSelect(keep_masks=True),
        *([transform.CollapseParallelLoops()] if target.kind.name == "llvm" else []),
        transform.HoistIfThenElse(),
        # no CommonSubexprElimTIR: code generation numbers values itself, so it costs time here and gains none there
        *([transform.SkipAssert()] if config.get("tir.disable_assert", False) else []),
        # the function as it is called
        transform.AnnotateEntryFunc(),
        transform.VerifyMemory(),
        transform.MakePackedAPI(),
        transform.MakeInternalAPI(),
        transform.BF16StorageLegalize(),
        transform.FP8StorageLegalize(),
        *([] if has_half else [transform.HalfStorageLegalize()]),
        # what the code generator does not know by itself
        transform.LowerTVMBuiltin(),
        transform.LowerIntrin(),
        # last, so that no pass walks over what is written out
        transform.UnrollLoop(),
    ]


def driven(target: Target) -> Target:
    """The target with a host: this machine's processor for a device that names none."""
    return target if target.host is not None or "cpu" in target.keys else target.with_host("llvm")


def default_gpu_passes() -> list[Pass]:
    """From blocks to host functions and the kernels that they launch, for devices with threads."""
    target = Target.current(allow_none=True)
    is_cuda = target is not None and target.kind.name == "cuda"
    config = PassContext.current().config
    return [
        transform.BindTarget(None if target is None else driven(target)),
        transform.LowerCustomDatatypes(),
        transform.LowerCrossThreadReduction(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.LowerInitBlock(),
        transform.ConvertBlocksToOpaque(),
        transform.LowerAutoCopy(),
        transform.UnifyThreadBinding(),
        transform.LiftThreadBinding(),
        transform.CompactBufferAllocation(),
        transform.LowerMatchBuffer(),
        transform.LowerWarpMemory(),
        transform.InjectPermutedLayout(),
        transform.InjectSoftwarePipeline(expand=True),
        transform.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        transform.NarrowDataType(32),  # a device computes in int64 by several instructions
        *([transform.InjectPTXAsyncCopy()] if is_cuda else []),
        transform.Simplify(),
        transform.LoopPartition(),
        transform.VectorizeLoop(not config.get("tir.disable_vectorize", False), mask_lanes=True),
        transform.InjectVirtualThread(),
        transform.InjectDoubleBuffer(),
        transform.StorageRewrite(keep_small=True),
        transform.UnrollLoop(expand=False),
        transform.RenormalizeSplitPattern(),
        transform.Simplify(),
        transform.RemoveNoOp(),
        transform.RewriteUnsafeSelect(),
        transform.HoistIfThenElse(),
        # threads that meet in memory, and where the device takes over
        transform.BindUnboundStatements(),
        transform.ThreadSync("shared"),
        transform.ThreadSync("shared.dyn"),
        transform.MergeSharedMemoryAllocations(),
        transform.LowerThreadAllreduce(),
        transform.BF16ComputeLegalize(),
        transform.FP8ComputeLegalize(),
        *([transform.InjectPTXLDG32()] if is_cuda and config.get("tir.ptx_ldg32", False) else []),
        transform.AnnotateEntryFunc(),
        transform.VerifyMemory(),
        transform.AnnotateDeviceRegions(),
        transform.SplitHostDevice(),
        transform.MakePackedAPI(),
        transform.MakeInternalAPI(),
        transform.BF16StorageLegalize(),
        transform.FP8StorageLegalize(),
        transform.LowerDeviceKernelLaunch(),
        # once kernels are functions, so that nothing of theirs is computed on the host
        transform.CommonSubexprElimTIR(),
        transform.LowerTVMBuiltin(),
        transform.LowerIntrin(),
    ]


lowering_passes: Hook[[Any], list[Pass]] = Hook("lowering_passes", "oneir.codegen.backend")
"""The passes over loops for a target: those of its back end."""


class TIRPipeline(Pass):
    """The passes that a function lists when the pipeline runs."""

    name: str
    passes: Callable[[], list[Pass]]

    @property
    def info(self) -> PassInfo:
        return PassInfo(0, self.name)

    def listed(self, target: Target | None) -> list[Pass]:
        """The passes for a target, which is entered while they are listed."""
        with target or nullcontext():
            return self.passes()

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential(self.passes(), name=self.name).transform_module(mod, ctx)


class DefaultTIRPipeline(Pass, name="tir"):
    """The passes over loops for a target: from scheduled kernels to what code is written from.

    `target` None is the one that is entered when the pass runs, else this machine.
    """

    target: Target | None = None

    def listed(self, target: Target | None) -> list[Pass]:
        """The passes for a target, if the pipeline has none of its own."""
        chosen = self.target or target
        with chosen or nullcontext():
            return lowering_passes(chosen)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        passes = self.listed(Target.current(allow_none=True))
        return Sequential(passes, name="tir").transform_module(mod, ctx)


_pipelines: dict[str, Callable[[], list[Pass]]] = {}


def get_tir_pipeline(name: str = "default", **kwargs: Any) -> Pass:
    """The pipeline of that name."""
    if name == "default":
        return DefaultTIRPipeline()
    if name not in _pipelines:
        raise NotRegistered(f"no TensorIR pipeline {name!r}; there are {', '.join(sorted(['default', *_pipelines]))}")
    return TIRPipeline(name, _pipelines[name])


def register_tir_pipeline(name: str, passes: Callable[[], list[Pass]]) -> None:
    """Makes a pipeline known under a name; `passes` lists it each time it runs."""
    _pipelines[name] = passes


def get_default_tir_pipeline(target: Any) -> Pass:
    """The pipeline for a target."""
    return DefaultTIRPipeline(target if isinstance(target, Target) or target is None else Target(target))
