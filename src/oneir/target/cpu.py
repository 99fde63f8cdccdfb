"""CPU targets: vector registers, caches and cores for schedules; triple, processor and features for LLVM.

cpu_info(Target("llvm -mcpu=znver3")).vector_bytes  # 32
resolve(Target("llvm"))  # ("x86_64-unknown-linux-gnu", "znver3", "+avx2,...") on such a machine
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime import llvm
from ..runtime.error import InvalidValue
from ..runtime.once import once
from ..runtime.pool import num_threads

if TYPE_CHECKING:
    from .target import Target


@dataclass(frozen=True, slots=True)
class CPUInfo:
    """The properties of a CPU that schedules depend on. Sizes of caches are those that one core can use."""

    arch: str
    """`x86_64`, `x86`, `aarch64`, `arm`, `riscv64`, `riscv32`, `wasm`, or another first word of LLVM's triple."""
    vector_bytes: int
    """The size of a vector register; without vectors 4, since each float32 then takes a register."""
    vector_registers: int
    has_fma: bool
    """Whether a floating-point multiply and add is one instruction."""
    has_half: bool
    """Whether there is an instruction that converts between float16 and float32."""
    num_cores: int
    """On this machine, the threads that parallel loops use."""
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    multiply_adds: int
    """How many multiply-adds of vectors of float32 begin in a cycle."""
    byte_dots: str | None = None
    """Its fastest instructions for sums of products of bytes: `vnni`, `avx_vnni`, `avx2` (`tir/tensor_intrin/x86.py`),
    or None."""
    has_bfloat16_dots: bool = False
    """Whether an instruction adds products of pairs of bfloat16 to float32, in vectors of `vector_bytes`, in less time
    than two multiply-adds of float32 take."""


def has_masked_loads(info: CPUInfo) -> bool:
    """Whether some lanes of a vector are read about as fast as all of them, as since AVX."""
    return info.arch in ("x86", "x86_64") and info.vector_bytes >= 32


# First-, second- and third-level data cache in KiB, by the processor's name. The last line is a guess for all others.
_CACHES = tuple(
    (re.compile(pattern), sizes)
    for pattern, sizes in (
        (r"znver5", (48, 1024, 32768)),
        (r"znver4|x86-64-v4", (32, 1024, 32768)),
        (r"znver[123]", (32, 512, 16384)),
        (r"sapphirerapids|emeraldrapids|graniterapids.*|diamondrapids", (48, 2048, 61440)),
        (r"icelake-server", (48, 1280, 49152)),
        (r"skylake-avx512|skx|cascadelake|cooperlake", (32, 1024, 25344)),
        (r"icelake-client|tigerlake|rocketlake", (48, 512, 8192)),
        (r"alderlake|raptorlake|meteorlake|arrowlake.*|lunarlake", (48, 1280, 24576)),
        (r"neoverse-v\d|neoverse-n2", (64, 1024, 32768)),
        (r"neoverse-n1|cortex-(a7[678]|x\d).*", (64, 512, 4096)),
        (r"apple-.*", (128, 12288, 0)),
        (r"a64fx", (64, 8192, 0)),
        (r"carmel", (64, 2048, 4096)),
        (r"cortex-a7(10|15|20|25).*", (64, 512, 8192)),
        (r"cortex-a(53|55|510|520|7|8|9|35).*", (32, 512, 0)),
        (r"cortex-a(57|72|73|15|17).*", (32, 1024, 0)),
        (r"sifive-(u54|u74|7-series)", (32, 2048, 0)),
        (r"sifive-x280|spacemit-x60", (32, 512, 0)),
        (r"cortex-m.*", (16, 0, 0)),
        (r".*", (32, 256, 8192)),
    )
)


# Processors that multiply bfloat16 in tiles, and whose dot products of vectors are slow: on an Emerald Rapids one takes
# as long as four multiply-adds of vectors of float32, which compute twice as much. The others are taken to be alike.
_SLOW_BFLOAT16_DOTS = re.compile(r"sapphirerapids|emeraldrapids|graniterapids.*|diamondrapids")


# Processors that compute a vector of 64 bytes in both of their units of 32 bytes.
_ONE_WIDE_MULTIPLY_ADD = re.compile(r"znver4|icelake-client|tigerlake|rocketlake")


# The bytes of scalable vectors, of processors of which they are published. Others, and all that follow no name, are
# taken to have those of 16 bytes, which every one of them has.
_SCALABLE = ((re.compile(r"a64fx"), 64), (re.compile(r"neoverse-(v1|512tvb)"), 32))


# LLVM ends the process over features that contradict the mode or the width of a processor, or each other. It is not
# asked about those that can.
_CONTRADICTORY = {
    "x86_64": r"\d+bit(-mode)?",
    "x86": r"\d+bit(-mode)?",
    "arm": r"noarm|thumb-mode",
    "riscv64": r"\d+bit|rv.*\d\d|[eq]|(x|experimental-|zc|zilsd|zvl).*|z.*inx.*",
    "riscv32": r"\d+bit|rv.*\d\d|[eq]|(x|experimental-|zc|zilsd|zvl).*|z.*inx.*",
}


MICROCONTROLLERS = re.compile(r"cortex-m\d+")
"""The names of Arm's microcontrollers."""

MICROCONTROLLER_FEATURES = {
    "dsp": ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m35p", "cortex-m52", "cortex-m55", "cortex-m85"),
    "mve": ("cortex-m52", "cortex-m55", "cortex-m85"),
}
"""Which of them multiply and add pairs in one instruction, and which have vectors. Targets of them need no triple, so
LLVM, which answers by triple, is not asked."""


def is_microcontroller(target: Target) -> bool:
    """Whether a target's `-mcpu` is a microcontroller of Arm."""
    return MICROCONTROLLERS.match(target.mcpu) is not None


def has_microcontroller_feature(target: Target, feature: str) -> bool:
    """Whether a microcontroller has one of `MICROCONTROLLER_FEATURES`; `-mattr=+nomve` or `-mve` takes it away."""
    taken = {f"+no{feature}", f"-{feature}"}
    return target.mcpu in MICROCONTROLLER_FEATURES[feature] and not taken.intersection(target.mattr)


def resolve(target: Target) -> tuple[str, str, str]:
    """The triple, CPU and feature string of LLVM for `target`, of kind `llvm` or `c`.

    Without `-mtriple` and `-mcpu`, they are those of this machine, with all its features. A triple without a CPU means
    a generic one, and a CPU without a triple this machine's system. `-mattr` is appended. Raises `InvalidValue` for a
    target of another kind, and for the triple of a GPU.
    """
    if target.kind.name not in ("llvm", "c"):
        raise InvalidValue(f'Only targets of kind llvm and c describe a CPU that LLVM knows; found "{target}".')
    triple, cpu, features = target.mtriple or llvm.host_triple(), target.mcpu, target.mattr
    if architecture(triple).startswith(("amdgcn", "nvptx", "r600", "spirv")):
        raise InvalidValue(
            f'Targets of kind llvm and c are CPUs, and -mtriple={triple} of "{target}" is a GPU; '
            "say the kind of its programming interface instead: cuda, rocm, opencl or vulkan."
        )
    if not cpu and triple == llvm.host_triple():
        return triple, llvm.host_cpu(), ",".join([llvm.host_features(), *features])
    return triple, cpu or "generic", ",".join(features)


def architecture(triple: str) -> str:
    """The canonical name of a triple's architecture; see `CPUInfo.arch`."""
    first = triple.partition("-")[0].lower()
    if re.fullmatch(r"i[3-6]86", first):
        return "x86"
    for prefix, name in (("amd64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64"), ("wasm", "wasm")):
        if first.startswith(prefix):
            return name
    return "arm" if first.startswith(("arm", "thumb")) else first


def pointer_bytes(target: Target) -> int:
    """The bytes of an address on the machine of `target`: 4 or 8."""
    first = (target.mtriple or llvm.host_triple()).partition("-")[0].lower()
    narrow = architecture(first) in ("arm", "x86", "riscv32") or (first.startswith("wasm") and first != "wasm64")
    return 4 if narrow else 8


def enabled_features(target: Target, names: Iterable[str]) -> frozenset[str]:
    """Those of the `names` of LLVM features that the code for `target` may use.

    The names must exist: LLVM takes one that does not for a feature that every CPU has.
    """
    return _enabled(*resolve(target), target.attrs.get("mabi", ""), tuple(names))


@functools.lru_cache(maxsize=64)
def _enabled(triple: str, cpu: str, features: str, abi: str, names: tuple[str, ...]) -> frozenset[str]:
    # LLVM tells no one what a CPU has, but it inlines a function only into callers that have all its features. So, of
    # functions that each ask for one feature more than the target's, the calls that remain are of those it lacks.
    llvm.check_processor(triple, cpu, features)
    base = [features] if features else []
    text = [f'attributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{features}" }}']
    for number, name in enumerate(names, 1):
        asked = ",".join([*base, f"+{name}"])
        text += [
            f'attributes #{number} = {{ "target-cpu"="{cpu}" "target-features"="{asked}" }}',
            f"define internal i32 @feature{number}(i32 %x) #{number} {{ %y = add i32 %x, {number} ret i32 %y }}",
            f"define i32 @use{number}(i32 %x) #0 {{ %y = call i32 @feature{number}(i32 %x) ret i32 %y }}",
        ]
    optimized = llvm.optimize(
        "\n".join(text), name="the question which features a CPU has", triple=triple, abi=abi, opt_level=1
    )
    lacking = {int(number) for number in re.findall(r"call [^@\n]*@feature(\d+)\(", optimized)}
    return frozenset(name for number, name in enumerate(names, 1) if number not in lacking)


@once
def processors_and_features(triple: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the processors, and then of the features, that LLVM has for a triple.

    Raises `InvalidValue` for a triple for which this LLVM generates no code.
    """
    asked = llvm.ask_apart(triple, "help")
    if asked.returncode:
        raise InvalidValue(f"LLVM has no target for the triple {triple!r}; it has {', '.join(llvm.target_names())}.")
    processors, _, features = asked.stderr.partition("Available features")
    entry = re.compile(r"^  (\S+) +- ", re.MULTILINE)
    arch = architecture(triple)
    names = [name for name in entry.findall(features) if not re.fullmatch(_CONTRADICTORY.get(arch, ""), name)]
    if arch in ("x86_64", "x86"):
        # Those that even the first of them seems to have are hints of speed, about which LLVM does not tell.
        hints = _enabled("i386-linux-gnu", "i386", "", "", tuple(names))
        names = [name for name in names if name not in hints]
    return tuple(entry.findall(processors)), tuple(names)


def all_enabled_features(target: Target) -> frozenset[str]:
    """All LLVM features that the code for `target` may use."""
    return enabled_features(target, processors_and_features(resolve(target)[0])[1])


def cpu_info(target: Target) -> CPUInfo:
    """The properties of the CPU of `target`: measured if it is this machine, else the usual ones of its `-mcpu`.

    `-num-cores` and `-vector-width` (in bits) override them. Raises `InvalidValue` for a target that is no CPU.
    """
    arch = architecture(resolve(target)[0])
    width, registers, has_fma, has_half = _vectors(target, arch)
    cores, l1, l2, l3 = cores_and_caches(target)
    vector_bytes = target.attrs.get("vector-width", 8 * width) // 8
    return CPUInfo(
        arch=arch,
        vector_bytes=vector_bytes,
        vector_registers=registers,
        has_fma=has_fma,
        has_half=has_half,
        num_cores=cores,
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
        multiply_adds=1 if vector_bytes >= 64 and _ONE_WIDE_MULTIPLY_ADD.fullmatch(resolve(target)[1]) else 2,
        byte_dots=_byte_dots(target, arch, vector_bytes),
        has_bfloat16_dots=_has_bfloat16_dots(target, arch, vector_bytes),
    )


def has_scalable_vectors(target: Target) -> bool:
    """Whether a processor has vectors whose length only the machine knows: SVE of Arm, V of RISC-V."""
    arch = architecture(resolve(target)[0])
    names = ("sve",) if arch == "aarch64" else ("zve32x",) if arch.startswith("riscv") else ()
    return bool(names and enabled_features(target, names))


def vector_scale(target: Target) -> int | None:
    """How many times 16 bytes the scalable vectors of a processor of Arm have, of which code may make use.

    None where vectors have 16 bytes, and on others.
    """
    info = cpu_info(target)
    if info.arch != "aarch64" or info.vector_bytes <= 16 or not enabled_features(target, ("sve",)):
        return None
    return info.vector_bytes // 16


def _byte_dots(target: Target, arch: str, vector_bytes: int) -> str | None:
    if arch != "x86_64" or vector_bytes < 32:
        return None
    has = enabled_features(target, ("avx512vnni", "avx512vl", "avxvnni", "avx2"))
    if has >= {"avx512vnni", "avx512vl"}:
        # Its vectors of 32 bytes are multiplied by the same instruction as those of AVX-VNNI.
        return "vnni" if vector_bytes >= 64 else "avx_vnni"
    return "avx_vnni" if "avxvnni" in has else "avx2" if "avx2" in has else None


def _has_bfloat16_dots(target: Target, arch: str, vector_bytes: int) -> bool:
    if arch != "x86_64" or vector_bytes < 64 or _SLOW_BFLOAT16_DOTS.fullmatch(resolve(target)[1]):
        return False
    return bool(enabled_features(target, ("avx512bf16",)))


def cores_and_caches(target: Target) -> tuple[int, int, int, int]:
    """The number of threads of parallel loops, and the bytes of three levels of data caches.

    Code depends on them, though neither the text of a target nor the name of its processor determines them.
    """
    triple, cpu, _ = resolve(target)
    here = triple == llvm.host_triple() and cpu == llvm.host_cpu()
    usual = next(sizes for pattern, sizes in _CACHES if pattern.fullmatch(cpu))
    l1, l2, l3 = (_host_caches() if here else None) or tuple(size << 10 for size in usual)
    return target.attrs.get("num-cores", num_threads() if here else 4), l1, l2, l3


def _vectors(target: Target, arch: str) -> tuple[int, int, bool, bool]:
    """The bytes of a vector register, the number of vector registers, whether there is a fused multiply-add, and
    whether there are conversions of float16.
    """
    if arch in ("x86_64", "x86"):
        has = enabled_features(target, ("sse2", "avx", "fma", "f16c", "avx512f", "avx512vl"))
        few = 16 if arch == "x86_64" else 8
        if has >= {"avx512f", "avx512vl"}:
            return 64, 32 if arch == "x86_64" else 8, True, True
        if "avx" in has:
            return 32, few, "fma" in has, "f16c" in has
        return (16 if "sse2" in has else 4), few, False, False
    if arch == "aarch64":
        cpu = resolve(target)[1]
        scalable = next((size for pattern, size in _SCALABLE if pattern.fullmatch(cpu)), 16)
        return (scalable if scalable == 16 or enabled_features(target, ("sve",)) else 16), 32, True, True
    if arch == "arm":
        has = enabled_features(target, ("neon", "vfp4", "fp16"))
        return (16 if "neon" in has else 4), 16, "vfp4" in has, "fp16" in has
    if arch in ("riscv64", "riscv32"):
        has = enabled_features(target, ("f", "zfhmin", "zve32x", "zvfhmin"))
        if "zve32x" not in has:
            return 4, 32, "f" in has, "zfhmin" in has
        # LLVM ends the process when it is asked about lengths of vectors where there are none.
        lengths = {f"zvl{bits}b": bits // 8 for bits in (32, 64, 128, 256, 512, 1024)}
        width = max(lengths[name] for name in enabled_features(target, lengths))
        return width, 32, "f" in has, "zvfhmin" in has
    if arch == "wasm":
        has = enabled_features(target, ("simd128", "relaxed-simd"))
        # As compiled in browsers for processors of x86-64: of 16 registers, one is the compiler's own.
        return (16 if "simd128" in has else 4), 15, "relaxed-simd" in has, False
    raise InvalidValue(f'No CPU of the architecture "{arch}" is known; found it in the target "{target}".')


@once
def _host_caches() -> tuple[int, int, int] | None:
    """The data caches of this machine's first core as the system reports them, or None where it does not."""
    sizes = {1: 0, 2: 0, 3: 0}
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, level, size = ((cache / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        found = re.fullmatch(r"(\d+)([KM]?)", size)
        if kind != "Instruction" and found and int(level) in sizes:
            sizes[int(level)] = int(found[1]) << {"": 0, "K": 10, "M": 20}[found[2]]
    return (sizes[1], sizes[2], sizes[3]) if sizes[1] else None
