"""What a machine is: target kinds, their options, tags for well-known machines, and the detection of this one.

target = oneir.target.Target("llvm -mcpu=znver3")
oneir.target.cpu_info(target).vector_bytes  # 32
"""

from __future__ import annotations

from . import codegen, datatype
from .codegen import (
    build_module,
    llvm_cpu_has_features,
    llvm_get_cpu_archlist,
    llvm_get_cpu_features,
    llvm_get_intrinsic_name,
    llvm_get_system_cpu,
    llvm_get_system_triple,
    llvm_get_system_x86_vendor,
    llvm_get_targets,
    llvm_get_vector_width,
    llvm_lookup_intrinsic_id,
    llvm_version_major,
    target_has_features,
)
from .cpu import CPUInfo, cpu_info, resolve
from .detect_target import detect_target_from_device
from .memory_info import MemoryInfo
from .tag import list_tags, register_tag
from .target import (
    HostWithoutTarget,
    InvalidOption,
    Target,
    TargetFeatures,
    TargetKind,
    adreno,
    arm_cpu,
    bifrost,
    create,
    cuda,
    hexagon,
    intel_graphics,
    mali,
    rasp,
    riscv_cpu,
    rocm,
    stm32,
)
from .virtual_device import VirtualDevice

__all__ = [
    "CPUInfo",
    "HostWithoutTarget",
    "InvalidOption",
    "MemoryInfo",
    "Target",
    "TargetFeatures",
    "TargetKind",
    "VirtualDevice",
    "adreno",
    "arm_cpu",
    "bifrost",
    "build_module",
    "codegen",
    "cpu_info",
    "create",
    "cuda",
    "datatype",
    "detect_target_from_device",
    "hexagon",
    "intel_graphics",
    "list_tags",
    "llvm_cpu_has_features",
    "llvm_get_cpu_archlist",
    "llvm_get_cpu_features",
    "llvm_get_intrinsic_name",
    "llvm_get_system_cpu",
    "llvm_get_system_triple",
    "llvm_get_system_x86_vendor",
    "llvm_get_targets",
    "llvm_get_vector_width",
    "llvm_lookup_intrinsic_id",
    "llvm_version_major",
    "mali",
    "rasp",
    "register_tag",
    "resolve",
    "riscv_cpu",
    "rocm",
    "stm32",
    "target_has_features",
]
