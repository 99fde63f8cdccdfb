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
    "sm_53": "tegra-x1",
    "sm_60": "tesla-p100 quadro-gp100",
    "sm_61": "tesla-p40 tesla-p4 quadro-p6000 quadro-p5000 quadro-p4000 quadro-p2200 quadro-p2000 quadro-p1000 "
    "quadro-p620 quadro-p600 quadro-p400 p620 p520 quadro-p5200 quadro-p4200 quadro-p3200 quadro-p3000 quadro-p500 "
    "nvidia-titan-xp nvidia-titan-x geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti geforce-gtx-1070 "
    "geforce-gtx-1060 geforce-gtx-1050",
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
# Jetson boards: the GPU's architecture, then the CPU and its cores. The CPU alone is the tag with "/cpu" behind it.
_JETSON = {
    "jetson-nano": ("sm_53", "cortex-a57", 4),
    "jetson-tx1": ("sm_53", "cortex-a57", 4),
    "jetson-tx2": ("sm_62", "cortex-a57", 4),
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


# Boards and other processors: the triple and processor of LLVM, then cores (0: not one number), then features.
_ARM64, _ARM32, _RISCV = "aarch64-linux-gnu", "armv7-unknown-linux-gnueabihf", "riscv64-unknown-linux-gnu"
_WASM, _NEON = "wasm32-unknown-unknown", "+neon"
_CPUS = {
    "raspberry-pi/2b": (_ARM32, "cortex-a7", 4, _NEON),
    "raspberry-pi/3b-armv7": (_ARM32, "cortex-a53", 4, _NEON),
    "raspberry-pi/3b-aarch64": (_ARM64, "cortex-a53", 4, _NEON),
    "raspberry-pi/zero-2w-aarch64": (_ARM64, "cortex-a53", 4, _NEON),
    "raspberry-pi/4b-armv7": (_ARM32, "cortex-a72", 4, _NEON),
    "raspberry-pi/5-aarch64": (_ARM64, "cortex-a76", 4, _NEON),
    "beagle/black": (_ARM32, "cortex-a8", 1, _NEON),
    "beagle/ai": (_ARM32, "cortex-a15", 2, "+neon,+vfp4"),
    "rockchip/rk3399": (_ARM64, "cortex-a72", 2, _NEON),
    "rockchip/rk3588": (_ARM64, "cortex-a76", 4, _NEON),
    "android/arm64": ("aarch64-linux-android", "generic", 0, _NEON),
    "android/armv7": ("armv7-unknown-linux-androideabi", "generic", 0, _NEON),
    "apple/m1": ("arm64-apple-macos", "apple-m1", 4, ""),
    "apple/m2": ("arm64-apple-macos", "apple-m2", 4, ""),
    "aws/graviton2": (_ARM64, "neoverse-n1", 0, ""),
    "aws/graviton3": (_ARM64, "neoverse-v1", 0, ""),
    "aws/graviton4": (_ARM64, "neoverse-v2", 0, ""),
    "fujitsu/a64fx": (_ARM64, "a64fx", 48, ""),
    "riscv/rv64gc": (_RISCV, "generic-rv64", 0, "+m,+a,+f,+d,+c"),
    "riscv/rv64gcv": (_RISCV, "generic-rv64", 0, "+m,+a,+f,+d,+c,+v"),
    "riscv/hifive-unmatched": (_RISCV, "sifive-u74", 4, ""),
    "riscv/visionfive-2": (_RISCV, "sifive-u74", 4, ""),
    "riscv/banana-pi-f3": (_RISCV, "spacemit-x60", 8, ""),
    "wasm/mvp": (_WASM, "mvp", 1, ""),
    "wasm/simd": (_WASM, "generic", 1, "+simd128"),
    "wasm/relaxed-simd": (_WASM, "generic", 1, "+simd128,+relaxed-simd"),
    "x86-64/v2": ("x86_64-unknown-linux-gnu", "x86-64-v2", 0, ""),
    "x86-64/v3": ("x86_64-unknown-linux-gnu", "x86-64-v3", 0, ""),
    "x86-64/v4": ("x86_64-unknown-linux-gnu", "x86-64-v4", 0, ""),
}


def _cuda(arch: str) -> dict[str, object]:
    registers = 32768 if arch in ("sm_53", "sm_62") else 65536
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


def _cpu(triple: str, cpu: str, cores: int, features: str) -> dict[str, object]:
    found: dict[str, object] = {"kind": "llvm", "mtriple": triple, "mcpu": cpu}
    if features:
        found["mattr"] = features.split(",")
    if cores:
        found["num-cores"] = cores
    return found | ({"mabi": "lp64d"} if triple == _RISCV else {})


def _known() -> dict[str, dict[str, object]]:
    known: dict[str, dict[str, object]] = {name: _cpu(*cpu) for name, cpu in _CPUS.items()}
    raspberry = {**_arm_host("cortex-a72", 4), "mattr": ["+neon"]}
    known["raspberry-pi/4b-aarch64"] = {**raspberry, "host": raspberry}
    for arch, names in _NVIDIA.items():
        for name in names.split():
            known[f"nvidia/{name}"] = _cuda(arch)
    for name, size in _L2_CACHE.items():
        known[f"nvidia/{name}"]["l2_cache_size_bytes"] = size
    for name, (arch, cpu, cores) in _JETSON.items():
        host = _arm_host(cpu, cores)
        known[f"nvidia/{name}/cpu"] = host
        known[f"nvidia/{name}"] = {**_cuda(arch), "host": host}
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
