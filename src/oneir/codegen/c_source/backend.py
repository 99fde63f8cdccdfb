"""Back ends of devices whose code is text: LLVM for the host, a dialect of C for the kernels that it launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...contrib.cc import compile_c
from ...dlight import ScheduleRule, cpu, gpu
from ...ir.module import IRModule
from ...ir.transform import Pass
from ...relax.backend import DispatchSampling, DispatchSortScan
from ...relax.pipeline import generic_stages
from ...relax.transform import FoldConstant
from ...runtime import llvm
from ...runtime.error import InvalidValue
from ...runtime.llvm_worker import assembly_for
from ...target.cpu import resolve
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.pipeline import default_gpu_passes, default_tir_passes
from ...tir.transform import (
    ExactExtremes,
    ExactMoments,
    LowerThreadAllreduce,
    MultiplyReciprocals,
    VectorizeLoop,
    WideAccumulators,
)
from ...tir.transform.lower_device_kernel_launch import KERNEL_LAUNCH
from ..backend import Backend, register_backend
from ..llvm.device import AMDGCN, NVPTX, Machine, kernels_text
from ..llvm.module import llvm_text
from .cuda import CUDA
from .dialect import Dialect
from .emitter import source_of
from .hip import HIP
from .host_emitter import c_text
from .launch import Program
from .metal import METAL
from .opencl import OPENCL
from .wgsl import Wgsl
from .wgsl_emitter import WgslEmitter

HOST_FORMAT = {"host": "LLVM IR of the host's functions, which launch them"}
_SIMD_GROUP = 32
"""The threads that execute together on Apple's GPUs."""


class SourceBackend(Backend):
    """A device that compiles kernels from text.

    The text of a program goes into the host's object, beside the functions that launch its kernels; the device's driver
    compiles it when one of them is launched first.
    """

    dialect: ClassVar[Dialect]

    def graph_passes(self, target: Target) -> dict[str, list[Pass]]:
        # What is constant, such as the positions of a mask, is computed here and needs no kernel of the device.
        return {**generic_stages(target), "dispatched": [FoldConstant(), DispatchSampling(), DispatchSortScan()]}

    def numeric_passes(self, target: Target) -> list[Pass]:
        return [MultiplyReciprocals(), ExactExtremes(), ExactMoments(), WideAccumulators()]

    def schedule_rules(self, target: Target) -> Sequence[ScheduleRule]:
        products = self.product_rules(target)
        return [
            gpu.Attention(),
            gpu.FewRows(tuple(products)),
            *products,
            gpu.GEMV(),
            gpu.Reduction(),
            gpu.GeneralReduction(),
            gpu.Fallback(),
        ]

    def product_rules(self, target: Target) -> Sequence[ScheduleRule]:
        """The rules for products of matrices, of which those that are for fewer come first."""
        return [gpu.Matmul()]

    def lowering_passes(self, target: Target) -> list[Pass]:
        return default_gpu_passes()

    def write(self, mod: IRModule) -> str:
        host, device = _split(mod)
        source = self.source(device) if device.functions else ""
        program = Program.of(device, source) if source else None
        return llvm_text(host, program)

    def source(self, mod: IRModule) -> str:
        """The text of a module of kernels."""
        return source_of(mod, self.dialect)

    def compile(self, text: str, target: Target) -> bytes:
        return llvm.compile_ir(text, **_host_options(target))

    def show(self, text: str, target: Target, fmt: str) -> str:
        kernels, host, *_ = self.formats
        if fmt in ("", kernels):
            return Program.source_in(text)
        if fmt == host:
            return text
        raise InvalidValue(f'expected the format "{kernels}" or "{host}", found {fmt!r}')

    def facts(self, target: Target) -> list[str]:
        return [*map(str, resolve(_host(target)))]


def _split(mod: IRModule) -> tuple[IRModule, IRModule]:
    """The host's functions, and the kernels."""
    kernels = {
        var: func
        for var, func in mod.functions.items()
        if isinstance(func, PrimFunc) and func.attrs.get("calling_conv") == KERNEL_LAUNCH
    }
    host = {var: func for var, func in mod.functions.items() if var not in kernels}
    return mod.replace(functions=host), mod.replace(functions=kernels)


def _host(target: Target) -> Target:
    return target.host or Target("llvm")


def _host_options(target: Target) -> dict[str, Any]:
    """What LLVM is told of the host."""
    triple, processor, features = resolve(_host(target))
    return {"name": "module", "triple": triple, "cpu": processor, "features": features, "opt_level": 2}


class OpenCL(SourceBackend):
    """Devices with an OpenCL driver."""

    kind: ClassVar[str] = "opencl"
    dialect: ClassVar[Dialect] = OPENCL
    formats: ClassVar[Mapping[str, str]] = {"opencl": "OpenCL C of the kernels", **HOST_FORMAT}


class Cuda(SourceBackend):
    """GPUs of NVIDIA's."""

    kind: ClassVar[str] = "cuda"
    dialect: ClassVar[Dialect] = CUDA
    formats: ClassVar[Mapping[str, str]] = {"cuda": "CUDA C++ of the kernels", **HOST_FORMAT}

    def product_rules(self, target: Target) -> Sequence[ScheduleRule]:
        return [
            gpu.MatmulWarpgroup(),
            gpu.MatmulTensorization(),
            gpu.MatmulInt8Tensorization(),
            gpu.MatmulInParts(),
            *super().product_rules(target),
        ]


class Rocm(SourceBackend):
    """GPUs of AMD's."""

    kind: ClassVar[str] = "rocm"
    dialect: ClassVar[Dialect] = HIP
    formats: ClassVar[Mapping[str, str]] = {
        "hip": "HIP of the kernels",
        **HOST_FORMAT,
        "amdgcn": "machine code of the kernels, as LLVM makes it",
    }

    def text_of(self, mod: IRModule, target: Target, fmt: str) -> str:
        if fmt != "amdgcn":
            return super().text_of(mod, target, fmt)
        return _assembly(_split(mod)[1], AMDGCN)


class Nvptx(SourceBackend):
    """GPUs of NVIDIA's by LLVM, without a compiler of NVIDIA's: kernels are PTX, which the driver takes."""

    kind: ClassVar[str] = "nvptx"
    formats: ClassVar[Mapping[str, str]] = {"ptx": "PTX of the kernels", **HOST_FORMAT}

    def source(self, mod: IRModule) -> str:
        return _assembly(mod, NVPTX)


def _assembly(mod: IRModule, machine: Machine) -> str:
    """The assembly of a module of kernels, which are all for one processor."""
    targets = [func.attrs["target"] for func in mod.functions.values()]
    return assembly_for(kernels_text(mod, machine), machine.triple, machine.processor_of(targets[0])) if targets else ""


class Metal(SourceBackend):
    """GPUs of Apple's."""

    kind: ClassVar[str] = "metal"
    dialect: ClassVar[Dialect] = METAL
    formats: ClassVar[Mapping[str, str]] = {"metal": "kernels in the Metal shading language", **HOST_FORMAT}

    def lowering_passes(self, target: Target) -> list[Pass]:
        # A SIMD group has 32 threads on Apple's GPUs, and all must come to its barrier: smaller warps, such as the 16
        # that targets have by default, cannot be told apart there.
        warp_size = None if target.thread_warp_size >= _SIMD_GROUP else 1
        passes = default_gpu_passes()
        return [LowerThreadAllreduce(warp_size) if isinstance(p, LowerThreadAllreduce) else p for p in passes]


class WebGPU(SourceBackend):
    """GPUs in browsers, and all that drivers of Vulkan, Metal and Direct3D reach."""

    kind: ClassVar[str] = "webgpu"
    formats: ClassVar[Mapping[str, str]] = {"wgsl": "kernels in WGSL", **HOST_FORMAT}

    def source(self, mod: IRModule) -> str:
        targets = [func.attrs["target"] for func in mod.functions.values()]
        has_half = any(target.attrs.get("supports_float16", False) for target in targets)
        return source_of(mod, Wgsl(has_half), WgslEmitter)


class HostC(Backend):
    """Processors by C: the text is for any C compiler, and this machine's compiles it when a function is called."""

    kind: ClassVar[str] = "c"
    formats: ClassVar[Mapping[str, str]] = {"c": "C of the functions"}
    calls_kernels: ClassVar[bool] = False
    compiles_late: ClassVar[bool] = True

    def numeric_passes(self, target: Target) -> list[Pass]:
        return [MultiplyReciprocals(), ExactExtremes(), ExactMoments(), WideAccumulators()]

    def schedule_rules(self, target: Target) -> Sequence[ScheduleRule]:
        return [cpu.Reduction(), cpu.Spatial()]

    def lowering_passes(self, target: Target) -> list[Pass]:
        # Loops stay loops: C has no vectors, and its compilers make them.
        return [VectorizeLoop(False) if isinstance(p, VectorizeLoop) else p for p in default_tir_passes()]

    def write(self, mod: IRModule) -> str:
        return c_text(mod)

    def compile(self, text: str, target: Target) -> bytes:
        options = [f"-m{name[1:]}={target.attrs[name]}" for name in ("march", "mcpu") if target.attrs.get(name)]
        return compile_c(text, options)

    def show(self, text: str, target: Target, fmt: str) -> str:
        if fmt in ("", "c", "cc"):
            return text
        raise InvalidValue(f'expected the format "c", found {fmt!r}')


register_backend(HostC())
register_backend(OpenCL())
register_backend(Cuda())
register_backend(Rocm())
register_backend(Nvptx())
register_backend(Metal())
register_backend(WebGPU())
