"""The configurations behind tags, by name. `tag.py` lists them as targets and registers more.

Those of NVIDIA's devices begin with sm_50, the oldest architecture that its compiler still takes.
"""

from __future__ import annotations

from collections.abc import Mapping

_NVIDIA = {
    "sm_50": "quadro-k2200 quadro-k1200 quadro-k620 quadro-m1200 quadro-m520 quadro-m5000m quadro-m4000m quadro-m3000m "
    "quadro-m2000m quadro-m1000m quadro-k620m quadro-m600m quadro-m500m nvidia-nvs-810 geforce-gtx-750-ti "
    "geforce-gtx-750 geforce-gtx-960m geforce-gtx-950m geforce-940m geforce-930m geforce-gtx-860m-sm-50 "
    "geforce-gtx-850m geforce-840m geforce-830m",
    "sm_52": "tesla-m60 tesla-m40 quadro-m6000-24gb quadro-m6000 quadro-m5000 quadro-m4000 quadro-m2000 quadro-m5500m "
    "quadro-m2200 quadro-m620 geforce-gtx-titan-x geforce-gtx-980-ti geforce-gtx-980 geforce-gtx-970 geforce-gtx-960 "
    "geforce-gtx-950 geforce-gtx-980m geforce-gtx-970m geforce-gtx-965m geforce-910m",
    "sm_53": "jetson-nano jetson-tx1 tegra-x1",
    "sm_60": "tesla-p100 quadro-gp100",
    "sm_61": "tesla-p40 tesla-p4 quadro-p6000 quadro-p5000 quadro-p4000 quadro-p2200 quadro-p2000 quadro-p1000 "
    "quadro-p620 quadro-p600 quadro-p400 p620 p520 quadro-p5200 quadro-p4200 quadro-p3200 quadro-p3000 quadro-p500 "
    "nvidia-titan-xp nvidia-titan-x geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti geforce-gtx-1070 "
    "geforce-gtx-1060 geforce-gtx-1050",
    "sm_62": "jetson-tx2",
    "sm_70": "nvidia-v100 quadro-gv100 nvidia-titan-v",
    "sm_75": "nvidia-t4 quadro-rtx-8000 quadro-rtx-6000 quadro-rtx-5000 quadro-rtx-4000 rtx-5000 rtx-4000 rtx-3000 "
    "t2000 t1000 nvidia-titan-rtx geforce-rtx-2080-ti geforce-rtx-2080 geforce-rtx-2070 geforce-rtx-2060",
    "sm_80": "nvidia-a100 nvidia-a30",
    "sm_86": "nvidia-a40 nvidia-a10 nvidia-a10g nvidia-a16 nvidia-a2 rtx-a6000 geforce-rtx-3090-ti geforce-rtx-3090 "
    "geforce-rtx-3080-ti geforce-rtx-3080 geforce-rtx-3070-ti geforce-rtx-3070 geforce-rtx-3060",
    "sm_89": "geforce-rtx-4090 geforce-rtx-4070-ti",
    "sm_90a": "nvidia-h100",
}
_L2_CACHE = {
    "nvidia-a100": 40 << 20,
    "nvidia-h100": 50 << 20,
    "geforce-rtx-4090": 72 << 20,
    "geforce-rtx-4070-ti": 72 << 20,
}
# Jetson boards: the GPU's architecture, then the CPU and its cores.
_JETSON = {
    "jetson-agx-xavier": ("sm_72", "carmel", 8),
    "jetson-orin-nano": ("sm_87", "carmel", 6),
    "jetson-agx-orin-32gb": ("sm_87", "cortex-a78", 8),
    "jetson-agx-orin-64gb": ("sm_87", "cortex-a78", 12),
}
_APPLE = {"m1-gpu": 1024, "m1-gpu-restricted": 256, "m2-gpu": 1024}
_AWS_C5 = {
    "large": ("skylake-avx512", 1),
    "xlarge": ("skylake-avx512", 2),
    "2xlarge": ("skylake-avx512", 4),
    "4xlarge": ("skylake-avx512", 8),
    "9xlarge": ("skylake-avx512", 18),
    "12xlarge": ("cascadelake", 24),
    "18xlarge": ("skylake-avx512", 36),
    "24xlarge": ("cascadelake", 48),
}


def _cuda(arch: str, registers: int = 65536) -> dict[str, object]:
    return {
        "kind": "cuda",
        "arch": arch,
        "max_shared_memory_per_block": 49152,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": registers,
    }


def _arm_host(cpu: str, cores: int) -> dict[str, object]:
    return {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu, "num-cores": cores}


def _known() -> dict[str, dict[str, object]]:
    known: dict[str, dict[str, object]] = {}
    raspberry = {**_arm_host("cortex-a72", 4), "mattr": ["+neon"]}
    known["raspberry-pi/4b-aarch64"] = {**raspberry, "host": raspberry}
    for arch, names in _NVIDIA.items():
        registers = 32768 if arch in ("sm_53", "sm_62") else 65536
        for name in names.split():
            known[f"nvidia/{name}"] = _cuda(arch, registers)
    for name, size in _L2_CACHE.items():
        known[f"nvidia/{name}"]["l2_cache_size_bytes"] = size
    for name, (arch, cpu, cores) in _JETSON.items():
        known[f"nvidia/{name}"] = {**_cuda(arch), "host": _arm_host(cpu, cores)}
    for name, threads in _APPLE.items():
        known[f"apple/{name}"] = {
            "kind": "metal",
            "max_threads_per_block": threads,
            "max_shared_memory_per_block": 32768,
            "thread_warp_size": 32,
            "host": {"kind": "llvm", "mtriple": "arm64-apple-macos", "mcpu": "apple-latest"},
        }
    for name, (cpu, cores) in _AWS_C5.items():
        known[f"aws/cpu/c5.{name}"] = {"kind": "llvm", "keys": ["x86", "cpu"], "mcpu": cpu, "num-cores": cores}
    return known


configs: dict[str, dict[str, object]] = _known()


def set_config(name: str, config: Mapping[str, object]) -> None:
    """Lets a tag stand for a configuration from now on."""
    configs[name] = dict(config)
