"""Pipelines: the passes that take a graph from operators to what a program is made of.

mod = relax.get_pipeline("zero")(mod)   # operators become fused kernels
ex = relax.build(mod, relax_pipeline="default")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import ModulePass, Pass, PassContext, Sequential
from ..runtime.error import NotRegistered
from ..runtime.hook import Hook
from ..target.target import Target
from . import transform
from .analysis.estimate_memory_usage import with_allocations
from .transform.lift_transform_params import LiftWeights


def _to_kernels() -> list[Pass]:
    return [
        transform.LambdaLift(),
        transform.DecomposeEinsum(),
        transform.ScatterRows(),
        transform.FuseAttention(),
        transform.FoldPadding(),
        transform.FoldBatchnormToConv2D(),
        transform.FoldBatchnorm(),
        transform.SplitConvTranspose(),
        transform.PadGroups(),
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        transform.FuseTransposeMatmul(max_rows=4),
        transform.BoundIndices(),
        transform.FoldConstant(),
        transform.LegalizeOps(),
    ]


def _fuse_kernels() -> list[Pass]:
    return [
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.PlaceKernels(),
    ]


def _lower_dataflow() -> list[Pass]:
    return [
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ]


@with_allocations.provide
def _with_allocations(mod: IRModule) -> IRModule:
    for step in [transform.LegalizeOps(), *_lower_dataflow()]:
        mod = step(mod)
    return mod


def _finalize() -> list[Pass]:
    return [
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]


def zero_pipeline(*, enable_warning: bool = False) -> Pass:
    """Operators become kernels, constants are folded, kernels are fused."""
    return Sequential(
        [
            transform.LegalizeOps(enable_warning=enable_warning),
            transform.AnnotateTIROpPattern(),
            transform.FoldConstant(),
            transform.FuseOps(),
            transform.FuseTIR(),
        ],
        name="zero_pipeline",
    )


def default_build_pipeline() -> Pass:
    """From a graph, legalized or not, to what a program is made of; nothing is fused."""
    passes = [transform.LambdaLift(), transform.LegalizeOps(), *_lower_dataflow(), *_finalize()]
    return Sequential(passes, name="default_build_pipeline")


def static_shape_tuning_pipeline(
    total_trials: int = 0, target: Target | None = None, work_dir: str = "tuning_logs", **kwargs: Any
) -> Pass:
    """For graphs of static shapes: operators become fused kernels, layers are decomposed for inference.

    Without trials there is no search, and kernels get the default schedules of the target.
    """
    if total_trials:
        raise NotRegistered("no search over schedules is available; call it with total_trials=0")
    return Sequential(
        [transform.DecomposeOpsForInference(), transform.CanonicalizeBindings(), zero_pipeline()],
        name="static_shape_tuning_pipeline",
    )


def generic_stages(target: Target | None) -> dict[str, list[Pass]]:
    """The passes that any target may have, by the stages of a graph; back ends change them (`codegen/backend.py`)."""
    return {
        "dispatched": [],
        "legalized": [*_to_kernels(), LiftWeights()],
        "fused": _fuse_kernels(),
        "layouts": [],
        "lowered": _lower_dataflow(),
        "planned": _finalize(),
    }


graph_passes: Hook[[Target | None], dict[str, list[Pass]]] = Hook("graph_passes", "oneir.codegen.backend")
"""The passes over graphs for a target, by stage: those of its back end."""


def graph_passes_of(mod: IRModule, target: Target | None) -> dict[str, list[Pass]]:
    """The passes over the graphs of a module, by stage.

    A module that declares devices says first which tensors are on which. Where these are of several kinds, the passes
    are those that suit any target, and the dispatchers of devices with threads, which look at where a tensor is.
    """
    found = graph_passes(target)
    declared = [Target(device.target) for device in mod.global_infos.get("vdevice", ())]
    if not declared:
        return found
    kinds = {other.kind.name: other for other in ([] if target is None else [target]) + declared}
    if len(kinds) < 2:
        return {**found, "dispatched": [transform.RealizeVDevice(), *found["dispatched"]]}
    dispatchers: dict[str, Pass] = {}
    for other in kinds.values():
        if "gpu" in other.keys:
            dispatchers |= {step.info.name: step for step in graph_passes(other)["dispatched"]}
    return {**generic_stages(target), "dispatched": [transform.RealizeVDevice(), *dispatchers.values()]}


def library_dispatch_passes(target: Target | None) -> list[Pass]:
    """The first stages of a target's pipeline: operators that libraries or kernels of the target's own compute."""
    return graph_passes(target)["dispatched"]


def legalize_passes(target: Target | None) -> list[Pass]:
    """The stages that follow: operators become fused kernels."""
    found = graph_passes(target)
    return [*found["legalized"], *found["fused"]]


def dataflow_lower_passes(target: Target | None) -> list[Pass]:
    """The stages that follow: values of graphs lie as kernels want them, in memory that is written and read."""
    found = graph_passes(target)
    return [*found["layouts"], *found["lowered"]]


def finalize_passes(target: Target | None) -> list[Pass]:
    """The last stage: memory is planned, and what is left becomes calls of the runtime."""
    return graph_passes(target)["planned"]


class DefaultPipeline(ModulePass, name="default_pipeline"):
    """All passes over graphs for a target, from operators to a program; each stage is a `Sequential` of its name.

    `target` None is the one that is entered when the pass runs, else this machine.
    """

    target: Target | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        target = self.target or Target.current(allow_none=True)
        for stage, passes in graph_passes_of(mod, target).items():
            mod = Sequential(passes, name=stage)(mod)
        return mod


def get_default_pipeline(target: Target | None) -> Pass:
    """All passes for a target, from operators to a program."""
    return DefaultPipeline(target if isinstance(target, Target) or target is None else Target(target))


_pipelines: dict[str, Callable[..., Pass]] = {
    "zero": zero_pipeline,
    "default": lambda: get_default_pipeline(Target.current(allow_none=True)),
    "default_build": default_build_pipeline,
    "static_shape_tuning": static_shape_tuning_pipeline,
}


def get_pipeline(name: str = "zero", **kwargs: Any) -> Pass:
    """The pipeline of that name, made with the options that it takes. Raises `NotRegistered` for an unknown name."""
    if name not in _pipelines:
        raise NotRegistered(f"no pipeline {name!r} is registered; there are {', '.join(sorted(_pipelines))}")
    return _pipelines[name](**kwargs)


def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """A decorator that registers a function, which returns a pass, as a pipeline.

    Raises `NotRegistered` for a name that is taken.
    """
    if name in _pipelines:
        raise NotRegistered(f"a pipeline {name!r} is registered already")

    def register(func: Callable[..., Pass]) -> Callable[..., Pass]:
        _pipelines[name] = func
        return func

    return register
