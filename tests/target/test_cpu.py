"""What is known of CPUs: against what their makers publish, and against the operating system for this machine."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from oneir.runtime import llvm
from oneir.runtime.error import InvalidValue
from oneir.target import Target, TargetFeatures, codegen, cpu_info, resolve
from oneir.target.cpu import vector_scale

X86 = "llvm -mtriple=x86_64-pc-linux-gnu"  # spelled unlike any host, so that it never means this machine
CPUINFO = Path("/proc/cpuinfo")


@pytest.mark.parametrize(
    ("text", "arch", "vector_bytes", "registers", "fma"),
    [
        (f"{X86}", "x86_64", 16, 16, False),
        (f"{X86} -mcpu=nehalem", "x86_64", 16, 16, False),
        (f"{X86} -mcpu=sandybridge", "x86_64", 32, 16, False),
        (f"{X86} -mcpu=haswell", "x86_64", 32, 16, True),
        (f"{X86} -mcpu=znver3", "x86_64", 32, 16, True),
        (f"{X86} -mcpu=skylake-avx512", "x86_64", 64, 32, True),
        (f"{X86} -mcpu=skylake-avx512 -mattr=-avx512f", "x86_64", 32, 16, True),
        (f"{X86} -mattr=+avx2", "x86_64", 32, 16, False),
        ("llvm -mtriple=i686-linux-gnu -mcpu=pentium4", "x86", 16, 8, False),
        ("llvm -mtriple=aarch64-linux-gnu", "aarch64", 16, 32, True),
        ("llvm -mtriple=arm64-apple-macos -mcpu=apple-m1", "aarch64", 16, 32, True),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=a64fx", "aarch64", 64, 32, True),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=a64fx -mattr=-sve", "aarch64", 16, 32, True),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", "aarch64", 32, 32, True),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v2", "aarch64", 16, 32, True),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a7", "arm", 16, 16, True),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a9", "arm", 16, 16, False),
        ("llvm -mtriple=riscv64-linux-gnu", "riscv64", 4, 32, False),
        ("llvm -mtriple=riscv64-linux-gnu -mattr=+v", "riscv64", 16, 32, True),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=sifive-x280 -mabi=lp64d", "riscv64", 64, 32, True),
        ("llvm -mtriple=riscv32-linux-gnu -mcpu=sifive-e31", "riscv32", 4, 32, False),
        ("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128", "wasm", 16, 15, False),
        ("llvm -mtriple=wasm32-unknown-unknown -mcpu=mvp", "wasm", 4, 15, False),
    ],
)
def test_vector_registers_are_those_that_makers_publish(text, arch, vector_bytes, registers, fma):
    info = cpu_info(Target(text))
    assert (info.arch, info.vector_bytes, info.vector_registers, info.has_fma) == (arch, vector_bytes, registers, fma)


def test_options_override_what_is_known():
    info = cpu_info(Target(f"{X86} -mcpu=znver3 -vector-width=128 -num-cores=12"))
    assert (info.vector_bytes, info.num_cores) == (16, 12)


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=a64fx", 4),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+sve -vector-width=256", 2),
        ("llvm -mtriple=aarch64-linux-gnu -vector-width=256", None),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v2", None),
        (f"{X86} -mcpu=znver4", None),
    ],
)
def test_scalable_vectors_have_a_length_where_it_is_known(text, scale):
    assert vector_scale(Target(text)) == scale


@pytest.mark.parametrize(
    ("text", "count"),
    [("-mcpu=znver4", 1), ("-mcpu=znver4 -vector-width=256", 2), ("-mcpu=znver5", 2), ("-mcpu=znver3", 2)],
)
def test_a_vector_that_is_computed_in_two_halves_takes_both_units(text, count):
    assert cpu_info(Target(f"{X86} {text}")).multiply_adds == count


def test_caches_of_a_named_cpu():
    info = cpu_info(Target(f"{X86} -mcpu=znver3"))
    assert (info.l1_bytes, info.l2_bytes) == (32 << 10, 512 << 10)


def test_caches_of_this_machine_are_those_that_the_system_reports():
    if shutil.which("getconf") is None:
        pytest.skip("there is no getconf to ask")
    info = cpu_info(Target("llvm"))
    for size, name in ((info.l1_bytes, "LEVEL1_DCACHE_SIZE"), (info.l2_bytes, "LEVEL2_CACHE_SIZE")):
        asked = subprocess.run(["getconf", name], capture_output=True, text=True, check=False)
        reported = asked.stdout.strip()
        if reported in ("", "0", "undefined"):
            pytest.skip("the C library does not say")
        assert size == int(reported)


def test_this_machine_resolves_to_itself():
    triple, cpu, features = resolve(Target("llvm"))
    assert (triple, cpu) == (llvm.host_triple(), llvm.host_cpu())
    assert triple.split("-")[0].replace("arm64", "aarch64") == platform.machine().lower().replace("arm64", "aarch64")
    assert all(re.fullmatch(r"[+-].+", feature) for feature in features.split(","))
    assert resolve(Target("llvm -mattr=-foo"))[2] == f"{features},-foo"
    assert resolve(Target("c")) == resolve(Target("llvm"))


def test_named_machines_resolve_to_what_was_said():
    assert resolve(Target("llvm -mtriple=aarch64-linux-gnu")) == ("aarch64-linux-gnu", "generic", "")
    assert resolve(Target("llvm -mcpu=znver3 -mattr=+a,-b")) == (llvm.host_triple(), "znver3", "+a,-b")


def test_features_of_this_machine_are_those_that_the_kernel_reports():
    if not CPUINFO.exists() or platform.machine() != "x86_64":
        pytest.skip("the kernel reports no features of an x86 here")
    flags = set(next(line for line in CPUINFO.read_text().splitlines() if line.startswith("flags")).split())
    enabled = codegen.llvm_get_cpu_features(Target("llvm"))
    for ours, theirs in {"avx": "avx", "avx2": "avx2", "fma": "fma", "avx512f": "avx512f", "sse4.2": "sse4_2"}.items():
        assert (ours in enabled) == (theirs in flags), ours


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        (f"{X86} -mcpu=znver3", "avx2 fma bmi2 vaes sse4.2", "avx512f amx-tile fma4"),
        (f"{X86} -mcpu=znver4", "avx512f avx512bf16 avx512vnni", "avx512fp16 amx-tile"),
        (f"{X86} -mcpu=sapphirerapids", "amx-tile amx-int8 avx512fp16", "xop"),
        (f"{X86} -mcpu=znver4 -mattr=-avx512f", "avx2", "avx512f avx512bf16"),
        (f"{X86} -mattr=+avx2", "avx2 avx sse4.1", "fma"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "neon crc aes", "dotprod sve"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", "sve dotprod i8mm fullfp16 bf16", "sme"),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a7", "neon vfp4", "dotprod"),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=sifive-u74 -mabi=lp64d", "m a f d c", "v"),
        ("llvm -mtriple=riscv32-linux-gnu -mcpu=sifive-e31", "m a c", "f d"),
        ("llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128", "simd128", "relaxed-simd"),
    ],
)
def test_features_are_those_that_makers_publish(text, has, lacks):
    target = Target(text)
    enabled = codegen.llvm_get_cpu_features(target)
    assert set(has.split()) <= set(enabled) and not set(lacks.split()) & set(enabled)
    assert codegen.target_has_features(has.split(), target) and codegen.llvm_cpu_has_features(has.split()[0], target)
    assert not codegen.target_has_features(lacks.split()[0], target)
    assert not codegen.target_has_features([has.split()[0], lacks.split()[0]], target)


def test_features_under_their_published_names():
    assert isinstance(Target("llvm").features, TargetFeatures)
    assert Target(f"{X86} -mcpu=znver3").features.has_avx2 is True
    assert Target(f"{X86} -mcpu=znver3").features.has_sse4_1 is True
    assert Target(f"{X86} -mcpu=znver3").features.has_amx_tile is False
    arm = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1").features
    assert arm.has_asimd and arm.has_matmul_i8 and arm.has_fp16_simd and arm.has_sve and not arm.has_sme
    assert Target("cuda").features.has_avx2 is None
    assert arm.is_fast is None


def test_refusals():
    with pytest.raises(InvalidValue, match='describe a CPU that LLVM knows; found "cuda'):
        cpu_info(Target("cuda"))
    with pytest.raises(InvalidValue, match="LLVM has no target for the triple 'vax-linux'; it has aarch64"):
        codegen.llvm_get_cpu_features(Target("llvm -mtriple=vax-linux"))
    with pytest.raises(InvalidValue, match=r"-mtriple=nvptx64-nvidia-cuda of .* is a GPU; say the kind"):
        cpu_info(Target("llvm -mtriple=nvptx64-nvidia-cuda"))
