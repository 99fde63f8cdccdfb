"""What a machine is: kinds of targets, their options, tags, and the facts of processors.

target = Target("llvm -mcpu=znver3")
with target:
    ...
"""

from .codegen import (
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
from .detect_target import detect_target_from_device
from .kinds import TargetKind
from .tag import list_tags, register_tag
from .target import (
    Target,
    TargetFeatures,
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
