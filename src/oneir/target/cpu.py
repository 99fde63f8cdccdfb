"""What the compiler must know of a processor: vector width, registers, caches; and its name for LLVM.

info = cpu_info(Target("llvm"))
info.vector_bytes  # 64 with AVX-512
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from .target import Target


@dataclass(frozen=True)
class CPUInfo:
    """Facts about a processor. Sizes are in bytes; caches are those that one core uses."""

    vector_bytes: int
    vector_registers: int
    has_fma: bool
    num_cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int


def resolve(target: Target) -> tuple[str, str, str]:
    """The triple, processor and features that LLVM compiles for.

    A target without a triple means this machine; one without a processor means this machine's, or the generic one of a
    foreign triple.
    """
    from ..runtime import llvm

    triple = target.attrs.get("mtriple", "")
    native = not triple or triple == llvm.host_triple()
    cpu = target.attrs.get("mcpu", "")
    attributes = ",".join(target.attrs.get("mattr", ()))
    if native and not cpu:
        base = llvm.host_features()
        features = ",".join(part for part in (base, attributes) if part)
        return llvm.host_triple(), llvm.host_cpu(), features
    return triple or llvm.host_triple(), cpu or "generic", attributes


@functools.lru_cache(maxsize=32)
def cpu_info(target: Target) -> CPUInfo:
    """The facts about a target's processor."""
    from ..runtime.pool import num_threads

    triple, cpu, _ = resolve(target)
    features = _features(target)
    if triple.startswith(("x86_64", "i386", "i686")):
        if "avx512f" in features:
            vector_bytes, registers = 64, 32
        elif "avx" in features:
            vector_bytes, registers = 32, 16
        else:
            vector_bytes, registers = 16, 16
        has_fma = "fma" in features
    elif triple.startswith(("aarch64", "arm64")):
        vector_bytes, registers, has_fma = 16, 32, True
    elif triple.startswith(("arm", "thumb")):
        vector_bytes, registers, has_fma = 16, 16, "vfp4" in features
    else:
        vector_bytes, registers, has_fma = 16, 32 if triple.startswith("riscv") else 16, triple.startswith("riscv")
    native = not target.attrs.get("mtriple", "") and not target.attrs.get("mcpu", "")
    l1, l2, l3 = _host_caches() if native else (32 << 10, 512 << 10, 8 << 20)
    cores = target.attrs.get("num-cores", 0) or (num_threads() if native else 1)
    return CPUInfo(vector_bytes, registers, has_fma, int(cores), l1, l2, l3)


def _features(target: Target) -> set[str]:
    from .codegen import llvm_get_cpu_features

    return set(llvm_get_cpu_features(target))


@functools.cache
def _host_caches() -> tuple[int, int, int]:
    """Level 1 (data), 2 and 3 as the kernel describes them; usual sizes where it does not."""
    sizes = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            match = re.fullmatch(r"(\d+)([KM]?)", (index / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if match and kind != "Instruction" and level in sizes:
            sizes[level] = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]
    return sizes[1], sizes[2], sizes[3]
