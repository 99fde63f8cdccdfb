"""The back end of processors: LLVM, in this process and, where there are many kernels, in others that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from ...dlight import ScheduleRule, cpu
from ...ir.module import IRModule
from ...ir.transform import Pass
from ...relax.pipeline import generic_stages
from ...relax.transform import FoldRequantization, IntegerProducts
from ...relax.transform.lift_transform_params import LiftWeights
from ...runtime import llvm
from ...runtime.error import InvalidValue
from ...runtime.llvm_worker import Helper
from ...target.cpu import cores_and_caches, cpu_info, resolve
from ...target.target import Target
from ...tir.pipeline import default_tir_passes
from ...tir.transform import ExactExtremes, ExactMoments, MultiplyReciprocals, SplitArgExtremes, WideAccumulators
from ..backend import Backend, register_backend
from .module import llvm_text


class LLVM(Backend):
    """Machine code for processors."""

    kind: ClassVar[str] = "llvm"
    formats: ClassVar[Mapping[str, str]] = {
        "llvm": "optimized LLVM IR of the kernels",
        "asm": "their machine code",
    }

    def graph_passes(self, target: Target) -> dict[str, list[Pass]]:
        stages = {**generic_stages(target), "layouts": [cpu.ChooseLayouts(), LiftWeights()]}
        if cpu_info(target).byte_dots is not None:
            stages["dispatched"] = [IntegerProducts(), FoldRequantization()]
        return stages

    def numeric_passes(self, target: Target) -> list[Pass]:
        return [MultiplyReciprocals(), SplitArgExtremes(), ExactExtremes(), ExactMoments(), WideAccumulators()]

    def schedule_rules(self, target: Target) -> Sequence[ScheduleRule]:
        return [
            cpu.Attention(),
            cpu.IntegerDots(),
            cpu.FloatPanels(),
            cpu.Depthwise(),
            cpu.DotProducts(),
            cpu.Contraction(),
            cpu.ShortRows(),
            cpu.Reduction(),
            cpu.Spatial(),
        ]

    def lowering_passes(self, target: Target) -> list[Pass]:
        return default_tir_passes()

    def write(self, mod: IRModule) -> str:
        return llvm_text(mod)

    def compile(self, text: str, target: Target) -> bytes:
        return llvm.compile_ir(text, **_options(target))

    @contextmanager
    def compilers(self, count: int) -> Iterator[list[Callable[[str, Target], bytes]]]:
        with ExitStack() as helpers:
            yield [self.compile, *(_compiler(helpers.enter_context(Helper())) for _ in range(count - 1))]

    def show(self, text: str, target: Target, fmt: str) -> str:
        match fmt:
            case "" | "ll" | "llvm":
                return llvm.optimize(text, **_options(target))
            case "ll-unoptimized":
                return text
            case "asm" | "s":
                return llvm.compile_to_assembly(text, **_options(target))
        raise InvalidValue(f'expected the format "ll", "ll-unoptimized" or "asm", found {fmt!r}')

    def facts(self, target: Target) -> list[str]:
        return [*map(str, resolve(target)), repr(cores_and_caches(target))]


def _compiler(helper: Helper) -> Callable[[str, Target], bytes]:
    return lambda text, target: helper.compile_ir(text, **_options(target))


def _options(target: Target) -> dict[str, Any]:
    """What LLVM is told of a target."""
    triple, processor, features = resolve(target)
    level = int(target.attrs.get("opt-level", 3))
    return {
        "name": "module",
        "triple": triple,
        "cpu": processor,
        "features": features,
        "abi": target.attrs.get("mabi", ""),
        "opt_level": level,
    }


register_backend(LLVM())
