"""The options that stand behind the names of boards and processors, as `arm_cpu`, `riscv_cpu` and others take them."""

from __future__ import annotations

_KIRIN_970 = "-model=kirin970 -mtriple=arm64-linux-android -mattr=+neon"

ARM = {
    "pixel2": "-model=snapdragon835 -mtriple=arm64-linux-android -mattr=+neon",
    "mate10": _KIRIN_970,
    "mate10pro": _KIRIN_970,
    "p20": _KIRIN_970,
    "p20pro": _KIRIN_970,
    "rasp3b": "-model=bcm2837 -mtriple=armv7l-linux-gnueabihf -mattr=+neon",
    "rasp4b": "-model=bcm2711 -mtriple=armv8l-linux-gnueabihf -mattr=+neon -mcpu=cortex-a72",
    "rasp4b64": "-model=bcm2711 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a72",
    "rk3399": "-model=rk3399 -mtriple=aarch64-linux-gnu -mattr=+neon",
    "pynq": "-model=pynq -mtriple=armv7a-linux-eabi -mattr=+neon",
    "ultra96": "-model=ultra96 -mtriple=aarch64-linux-gnu -mattr=+neon",
    "beagleai": "-model=beagleai -mtriple=armv7a-linux-gnueabihf -mattr=+neon,+vfp4 -mcpu=cortex-a15",
    "stm32mp1": "-model=stm32mp1 -mtriple=armv7a-linux-gnueabihf -mattr=+neon,+vfp4 -mcpu=cortex-a7",
    "thunderx": "-model=thunderx -mtriple=aarch64-linux-gnu -mattr=+neon,+crc,+lse -mcpu=thunderxt88",
}

RISCV = {
    "sifive-e31": "-model=sifive-e31 -mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e31 -mabi=ilp32",
    "sifive-e76": "-model=sifive-e76 -mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e76 -mabi=ilp32",
    "sifive-u54": "-model=sifive-u54 -mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u54 -mabi=lp64d",
    "sifive-u74": "-model=sifive-u74 -mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u74 -mabi=lp64d",
}

_M0, _M0_PLUS = "-mcpu=cortex-m0 -march=armv6-m", "-mcpu=cortex-m0+ -march=armv6-m"
_M3, _M4 = "-mcpu=cortex-m3 -march=armv7-m", "-mcpu=cortex-m4 -march=armv7e-m"
_M7, _M33 = "-mcpu=cortex-m7 -march=armv7e-m", "-mcpu=cortex-m33 -march=armv8-m.main"

STM32 = {
    "stm32H7xx": _M7,
    "stm32F7xx": _M7,
    "stm32F4xx": _M4,
    "stm32F2xx": _M3,
    "stm32G0xx": _M0_PLUS,
    "stm32F0xx": _M0,
    "stm32F1xx": _M3,
    "stm32G4xx": _M4,
    "stm32F3xx": _M4,
    "stm32U5xx": _M33,
    "stm32L5xx": _M33,
    "stm32L4xx": _M4,
    "stm32L1xx": _M3,
    "stm32L0xx": _M0_PLUS,
}

_MIB = 1 << 20
# Versions of Hexagon, with the bytes of tightly coupled memory that they have.
HEXAGON_VTCM = {
    "v65": _MIB // 4,
    "v66": _MIB // 4,
    "v67": 0,
    "v67t": 0,
    "v68": 4 * _MIB,
    "v69": 8 * _MIB,
    "v71": 8 * _MIB,
    "v73": 8 * _MIB,
    "v75": 8 * _MIB,
}
