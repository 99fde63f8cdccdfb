"""Questions to LLVM about processors and targets. LLVM is loaded when the first one is asked."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ..runtime import llvm
from ..runtime.error import TypeMismatch
from .target import Target


def _as_target(target: Target | str | None) -> Target:
    if target is None:
        return Target.current(allow_none=True) or Target("llvm")
    return target if isinstance(target, Target) else Target(target)


def llvm_version_major(allow_none: bool = False) -> int:
    """The major version of LLVM."""
    return int(llvm.llvm_version().split(".")[0])


def llvm_get_system_triple() -> str:
    """This machine's triple."""
    return llvm.host_triple()


def llvm_get_system_cpu() -> str:
    """LLVM's name for this machine's processor."""
    return llvm.host_cpu()


def llvm_get_system_x86_vendor() -> str:
    """The maker, "amd" or "intel" for instance, of this machine's x86 processor; empty on other machines."""
    from pathlib import Path

    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    for line in text.splitlines():
        if line.startswith("vendor_id"):
            name = line.split(":", 1)[1].strip()
            return {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(name, name.lower())
    return ""


def llvm_get_targets() -> list[str]:
    """The architectures that code can be generated for."""
    return llvm.target_names()


# What the code for a few operations shows of a processor: the operation, what its assembly contains, the features.
_X86_PROBES = (
    ("fadd <16 x float> %a, %b", "<16 x float>", "%zmm", ("avx512f",)),
    ("add <64 x i8> %a, %b", "<64 x i8>", "vpaddb\t%zmm", ("avx512bw",)),
    ("fadd <8 x float> %a, %b", "<8 x float>", "%ymm", ("avx",)),
    ("add <8 x i32> %a, %b", "<8 x i32>", "vpaddd\t%ymm", ("avx2",)),
    ("call float @llvm.fma.f32(float %a, float %b, float %b)", "float", "vfmadd", ("fma",)),
    ("call i32 @llvm.ctpop.i32(i32 %a)", "i32", "popcnt", ("popcnt",)),
    ("call <4 x float> @llvm.floor.v4f32(<4 x float> %a)", "<4 x float>", "roundps", ("sse4.1",)),
    ("fadd <4 x float> %a, %b", "<4 x float>", "%xmm", ("sse", "sse2")),
)


@functools.lru_cache(maxsize=64)
def _enabled(triple: str, cpu: str, attributes: str) -> tuple[str, ...]:
    """The features of a processor: this machine's own list, or what its code shows together with what was asked for."""
    listed = [f for f in attributes.split(",") if f]
    enabled = {f[1:] for f in listed if f.startswith("+")}
    if triple == llvm.host_triple() and cpu == llvm.host_cpu():
        return tuple(sorted(enabled))
    if triple.startswith(("x86_64", "i386", "i686")):
        for operation, operand, shown, features in _X86_PROBES:
            if shown in _assembly(operation, operand, triple, cpu, attributes):
                enabled.update(features)
    elif triple.startswith(("aarch64", "arm64")):
        enabled.update(("neon", "fp-armv8"))
    return tuple(sorted(enabled - {f[1:] for f in listed if f.startswith("-")}))


def _assembly(operation: str, operand: str, triple: str, cpu: str, features: str) -> str:
    """The code for one operation over operands a and b."""
    text = f"""
declare float @llvm.fma.f32(float, float, float)
declare i32 @llvm.ctpop.i32(i32)
declare <4 x float> @llvm.floor.v4f32(<4 x float>)
define {operand} @probe({operand} %a, {operand} %b) "prefer-vector-width"="512" {{
  %c = {operation}
  ret {operand} %c
}}
"""
    return llvm.compile_to_assembly(text, name="probe", triple=triple, cpu=cpu, features=features, passes="none")


def llvm_get_cpu_features(target: Target | str | None = None) -> list[str]:
    """The features of a target's processor, without signs."""
    from .cpu import resolve

    return list(_enabled(*resolve(_as_target(target))))


def llvm_cpu_has_features(cpu_features: str | Sequence[str], target: Target | str | None = None) -> bool:
    """Whether the processor has all of the features."""
    wanted = [cpu_features] if isinstance(cpu_features, str) else list(cpu_features)
    have = set(llvm_get_cpu_features(target))
    return all(feature.lstrip("+") in have for feature in wanted)


target_has_features = llvm_cpu_has_features


def llvm_get_vector_width(target: Target | str | None = None) -> int:
    """Bits of the target's widest vectors."""
    from .cpu import cpu_info

    return cpu_info(_as_target(target)).vector_bytes * 8


_PROCESSORS = {
    "x86_64": (
        "x86-64 x86-64-v2 x86-64-v3 x86-64-v4 nehalem westmere sandybridge ivybridge haswell broadwell skylake "
        "skylake-avx512 cascadelake cooperlake icelake-client icelake-server tigerlake sapphirerapids emeraldrapids "
        "graniterapids alderlake znver1 znver2 znver3 znver4 znver5 goldmont silvermont"
    ),
    "aarch64": (
        "cortex-a53 cortex-a55 cortex-a57 cortex-a72 cortex-a73 cortex-a75 cortex-a76 cortex-a77 cortex-a78 cortex-x1 "
        "neoverse-n1 neoverse-n2 neoverse-v1 neoverse-v2 apple-m1 apple-m2 apple-m3 apple-m4 thunderx thunderx2t99"
    ),
    "arm": "cortex-a7 cortex-a8 cortex-a9 cortex-a15 cortex-m0 cortex-m0plus cortex-m3 cortex-m4 cortex-m7 cortex-m33",
    "riscv64": "generic-rv64 sifive-u54 sifive-u74 sifive-x280",
}


def llvm_get_cpu_archlist(target: Target | str | None = None) -> list[str]:
    """Common processors of the target's architecture, by LLVM's names; others can be given as well."""
    from .cpu import resolve

    triple = resolve(_as_target(target))[0]
    architecture = triple.split("-")[0].replace("arm64", "aarch64")
    family = next((name for name in _PROCESSORS if architecture.startswith(name)), None)
    return sorted(["generic", *_PROCESSORS.get(family or "", "").split()])


def llvm_lookup_intrinsic_id(name: str) -> int:
    """A number for an LLVM intrinsic; the same name gives the same number within a process."""
    if not name.startswith("llvm."):
        raise TypeMismatch(f'expected the name of an LLVM intrinsic, such as "llvm.sqrt", found {name!r}')
    if name not in _intrinsic_ids:
        _intrinsic_ids[name] = len(_intrinsic_ids) + 1
    return _intrinsic_ids[name]


def llvm_get_intrinsic_name(intrin_id: int) -> str:
    """The name behind a number of `llvm_lookup_intrinsic_id`."""
    for name, number in _intrinsic_ids.items():
        if number == intrin_id:
            return name
    return ""


_intrinsic_ids: dict[str, int] = {}
