"""Short names of boards and devices."""

from __future__ import annotations

import pytest

from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.target import (
    Target,
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


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: cuda("v100", arch="sm_70"), "cuda -model=v100 -arch=sm_70"),
        (lambda: cuda(options=["-arch=sm_80"]), "cuda -model=unknown -arch=sm_80"),
        (lambda: rocm(options="-mcpu=gfx906"), "rocm -model=unknown -mcpu=gfx906"),
        (lambda: mali("g76"), "opencl -device=mali -model=g76"),
        (lambda: bifrost("g76"), "opencl -device=bifrost -model=g76"),
        (lambda: intel_graphics(), "opencl -device=intel_graphics -model=unknown -thread_warp_size=16"),
        (lambda: adreno("640", backend="vulkan"), "vulkan -device=adreno -keys=adreno,vulkan,gpu -model=640"),
        (lambda: adreno(cfg="texture"), "opencl -device=adreno -keys=adreno,opencl,gpu,texture -model=unknown"),
        (
            lambda: arm_cpu("rasp4b64"),
            "llvm -device=arm_cpu -model=bcm2711 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a72",
        ),
        (lambda: arm_cpu("mine", "-num-cores=2"), "llvm -device=arm_cpu -model=mine -num-cores=2"),
        (
            lambda: riscv_cpu(),
            "llvm -device=riscv_cpu -model=sifive-u54 -mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u54 -mabi=lp64d",
        ),
        (lambda: stm32("stm32F7xx"), "c -device=arm_cpu -mcpu=cortex-m7 -march=armv7e-m"),
        (
            lambda: hexagon("v68"),
            "hexagon -mtriple=hexagon -mcpu=hexagonv68 -mattr=+hvxv68,+hvx-length128b,+hvx-qfloat,-hvx-ieee-fp "
            "-num-cores=4 -vtcm-capacity=4194304",
        ),
        (
            lambda: hexagon("v66", hvx=0, num_cores=1, llvm_options="-a -b"),
            "hexagon -mtriple=hexagon -mcpu=hexagonv66 -mattr=-hvx -num-cores=1 -vtcm-capacity=262144 "
            "-llvm-options=-a,-b",
        ),
    ],
)
def test_short_names(made, text):
    assert made() == Target(text)


def test_deprecated_names_say_so():
    with pytest.warns(DeprecationWarning, match=r'use arm_cpu\("rasp3b"\)'):
        assert rasp() == arm_cpu("rasp3b")
    with pytest.warns(DeprecationWarning, match=r"use Target\(\)"):
        assert create("llvm") == Target("llvm")


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (lambda: stm32("stm32F7x"), NotRegistered, 'no STM32 series "stm32F7x". Did you mean "stm32F7xx"'),
        (lambda: hexagon("v10"), NotRegistered, 'no Hexagon version "v10". Versions: v65'),
        (lambda: hexagon(hvx=32), InvalidValue, "0, 64 or 128 bytes; found 32"),
        (lambda: adreno(backend="cuda"), InvalidValue, '"opencl" or "vulkan"; found "cuda"'),
        (lambda: adreno(cfg="clay"), InvalidValue, 'None or "texture"; found "clay"'),
    ],
)
def test_refusals(made, error, message):
    with pytest.raises(error) as raised:
        made()
    assert message in str(raised.value)
