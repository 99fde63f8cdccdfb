"""Tags: short names for whole target configurations, "nvidia/nvidia-a100" for instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..runtime.error import InvalidValue

if TYPE_CHECKING:
    from .target import Target

configs: dict[str, dict[str, Any]] = {}
"""The configuration behind each tag."""


def register_tag(name: str, config: Mapping[str, Any], override: bool = False) -> Target:
    """Makes a configuration known under a name, and gives the target that it stands for."""
    from .target import Target

    if name in configs and not override:
        raise InvalidValue(f"the tag {name!r} is registered already; pass override=True to replace it")
    target = Target(dict(config))
    configs[name] = dict(config)
    return target


def list_tags() -> dict[str, Target]:
    """All tags and their targets."""
    from .target import Target

    return {name: Target(name) for name in sorted(configs)}


def _cuda(name: str, arch: str, shared_kib: int = 48, registers: int = 65536, **more: Any) -> None:
    configs[f"nvidia/{name}"] = {
        "kind": "cuda",
        "arch": arch,
        "max_shared_memory_per_block": shared_kib * 1024,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": registers,
        **more,
    }


for _name, _arch in {
    "geforce-gtx-1080-ti": "sm_61",
    "geforce-rtx-2080-ti": "sm_75",
    "geforce-rtx-3070": "sm_86",
    "geforce-rtx-3080": "sm_86",
    "geforce-rtx-3090": "sm_86",
    "geforce-rtx-4090": "sm_89",
    "jetson-agx-xavier": "sm_72",
    "jetson-nano": "sm_53",
    "nvidia-a10": "sm_86",
    "nvidia-a40": "sm_86",
    "nvidia-a100": "sm_80",
    "nvidia-h100": "sm_90a",
    "nvidia-h200": "sm_90a",
    "nvidia-l4": "sm_89",
    "nvidia-t4": "sm_75",
    "nvidia-v100": "sm_70",
    "tesla-k80": "sm_37",
    "tesla-p100": "sm_60",
}.items():
    _cuda(_name, _arch)
configs["nvidia/nvidia-a100"]["l2_cache_size_bytes"] = 40 << 20

for _name, _cpu, _cores in (
    ("aws/cpu/c5.large", "skylake-avx512", 1),
    ("aws/cpu/c5.9xlarge", "skylake-avx512", 18),
    ("aws/cpu/c7a.large", "znver4", 2),
    ("amd/epyc-7003", "znver3", 64),
    ("amd/epyc-9004", "znver4", 96),
    ("intel/sapphire-rapids", "sapphirerapids", 56),
):
    configs[_name] = {"kind": "llvm", "keys": ["cpu"], "mcpu": _cpu, "num-cores": _cores}

configs["raspberry-pi/4b-aarch64"] = {
    "kind": "llvm",
    "mtriple": "aarch64-linux-gnu",
    "mcpu": "cortex-a72",
    "mattr": ["+neon"],
    "num-cores": 4,
    "host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "mattr": ["+neon"], "num-cores": 4},
}
configs["apple/m1-gpu"] = {
    "kind": "metal",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 32768,
    "thread_warp_size": 32,
    "host": {"kind": "llvm", "mtriple": "arm64-apple-macos", "mcpu": "apple-latest"},
}
