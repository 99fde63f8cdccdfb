"""Launches of kernels: the native functions that host code calls, and what they ask Python for.

The designs are explained in `launch.ll` and, for temporary memory of devices, in `device_memory.ll`; a driver
(`driver.py`) says how its devices are launched on.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from . import callback as callback  # what the native code calls
from .device import Device
from .driver import Driver, KernelRecord, driver_of, find_driver
from .error import DeviceError
from .llvm import LoadedObject, add_symbol
from .once import new_lock, once
from .registry import register_func
from .resident import resident

MAX_DEVICES = 16
"""Devices of one kind that programs can run on."""


class _Kernel(ctypes.Structure):
    """The record that host code has of a kernel; see `codegen/c_source/launch.py`."""

    _fields_ = (
        ("launches", ctypes.c_void_p * MAX_DEVICES),
        ("device_type", ctypes.c_int32),
        ("arguments", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("source_size", ctypes.c_int64),
        ("kinds", ctypes.c_char_p),
        ("extents", ctypes.c_char_p),
    )


@once
def _code() -> LoadedObject:
    text = Path(__file__).with_name("launch.ll").read_text()
    return resident("the launch of kernels", lambda: text, text)


def launch_address() -> int:
    """The address of `oneir_launch_kernel`."""
    return _code().symbol("oneir_launch_kernel")


add_symbol("oneir_launch_kernel", launch_address)

_lock = new_lock()


def _record(kernel: _Kernel) -> KernelRecord:
    return KernelRecord(
        kernel.name.decode(), kernel.source.decode(), kernel.kinds.decode(), kernel.extents.decode().split()
    )


@register_func("oneir.runtime.prepare_kernel")
def prepare_kernel(address: ctypes.c_void_p, device_id: int) -> None:
    """Compiles a kernel for a device and tells the host's code how it is launched there."""
    assert address.value is not None
    kernel = _Kernel.from_address(address.value)
    device = Device(kernel.device_type, device_id)
    if device_id >= MAX_DEVICES:
        raise DeviceError(f"programs run on the first {MAX_DEVICES} devices of a kind, found {device}")
    driver = driver_of(kernel.device_type, device_id, str(device))
    with _lock:
        if not kernel.launches[device_id]:
            kernel.launches[device_id] = driver.prepare(device_id, _record(kernel))


_Alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)


@_Alloc
def _alloc(device_type: int, device_id: int, nbytes: int) -> int | None:
    """Memory of a device; null where there is none, which the caller reports."""
    try:
        return driver_of(device_type, device_id, str(Device(device_type, device_id))).alloc(device_id, nbytes)
    except DeviceError:
        return None


@_Free
def _free(device_type: int, device_id: int, address: int) -> None:
    driver = find_driver(device_type)
    if address and driver is not None:  # memory goes with its driver
        driver.free(device_id, address)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@once
def _memory_code() -> LoadedObject:
    add_symbol("oneir_make_device_memory", _address(_alloc))
    add_symbol("oneir_drop_device_memory", _address(_free))
    text = Path(__file__).with_name("device_memory.ll").read_text()
    return resident("temporary memory of devices", lambda: text, text)


def device_memory_address(name: str) -> int:
    """The address of `oneir_alloc_device_memory` or `oneir_free_device_memory`."""
    return _memory_code().symbol(name)


for _name in ("oneir_alloc_device_memory", "oneir_free_device_memory"):
    add_symbol(_name, functools.partial(device_memory_address, _name))


def launch_failed(driver: Driver, device_id: int, kernel: KernelRecord, code: int, sizes: list[int]) -> DeviceError:
    """The error of a launch that a driver refused with a code."""
    why = driver.explain_launch(device_id, kernel, code, sizes)
    device = Device(driver.device_type, device_id)
    grid, block = "×".join(map(str, sizes[:3])), "×".join(map(str, sizes[3:]))
    return DeviceError(f"`{kernel.name}` cannot be launched on {device} with {grid} blocks of {block} threads: {why}")
