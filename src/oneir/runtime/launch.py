"""Launches of kernels: the native functions that host code calls, and what they ask Python for.

The design is explained in `launch.ll`; a driver (`driver.py`) says how its devices are launched on. What a launch needs
on a device is made when a kernel is launched there first, and given back with the program that has the kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import callback as callback  # what the native code calls
from .device import Device
from .driver import Driver, KernelRecord, driver_of
from .error import DeviceError
from .llvm import LoadedObject, add_symbol
from .once import new_lock, once
from .registry import register_func
from .resident import resident

MAX_DEVICES = 16
"""Devices of one kind that programs can run on."""
RECORD_SUFFIX = ".kernel"
"""What the symbols of kernels' records in object code end with."""


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


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a driver made for launches of a kernel on a device."""

    driver: Driver
    device_id: int
    kernel: KernelRecord
    launch: ctypes.Structure


@once
def _code() -> LoadedObject:
    text = Path(__file__).with_name("launch.ll").read_text()
    return resident("the launch of kernels", lambda: text, text)


def launch_address() -> int:
    """The address of `oneir_launch_kernel`."""
    return _code().symbol("oneir_launch_kernel")


add_symbol("oneir_launch_kernel", launch_address)

_lock = new_lock()
_of_records: dict[int, list[_Prepared]] = {}
"""What was prepared, by the address of the kernel's record."""
_of_launches: dict[int, _Prepared] = {}
"""The same, by the address of the launch."""
_owners: dict[int, int] = {}
"""How many loaded libraries and objects have a kernel, by the address of its record."""


@register_func("oneir.runtime.prepare_kernel")
def prepare_kernel(address: ctypes.c_void_p, device_id: int) -> None:
    """Compiles a kernel for a device and tells the host's code how it is launched there."""
    assert address.value is not None
    record = _Kernel.from_address(address.value)
    device = Device(record.device_type, device_id)
    if device_id >= MAX_DEVICES:
        raise DeviceError(f"programs run on the first {MAX_DEVICES} devices of a kind, found {device}")
    driver = driver_of(record.device_type, device_id, str(device))
    with _lock:
        if record.launches[device_id]:
            return
        kernel = KernelRecord(
            record.name.decode(), record.source.decode(), record.kinds.decode(), record.extents.decode().split()
        )
        made = _Prepared(driver, device_id, kernel, driver.prepare(device_id, kernel))
        place = ctypes.addressof(made.launch)
        _of_launches[place] = made
        _of_records.setdefault(address.value, []).append(made)
        record.launches[device_id] = place


def is_record(symbol: str) -> bool:
    """Whether a symbol of object code is the record of a kernel."""
    return symbol.endswith(RECORD_SUFFIX)


def own_kernels(records: Iterable[int]) -> Callable[[], None]:
    """Takes note that kernels, by the addresses of their records, have been loaded.

    Returns what must be called before they are unloaded: it gives back what their launches need on devices. Code that
    is loaded twice is there once, and goes with its last owner.
    """
    places = tuple(records)
    with _lock:
        for place in places:
            _owners[place] = _owners.get(place, 0) + 1
    return partial(_disown_kernels, places)


def _disown_kernels(records: Sequence[int]) -> None:
    for record in records:
        with _lock:
            _owners[record] -= 1
            prepared = () if _owners[record] else _of_records.pop(record, ())
            if not _owners[record]:
                del _owners[record]
        for made in prepared:
            _of_launches.pop(ctypes.addressof(made.launch), None)
            made.driver.discard(made.device_id, made.kernel, made.launch)


@register_func("oneir.runtime.raise_launch")
def raise_launch(launch: ctypes.c_void_p, code: int, *sizes: int) -> None:
    """Raises the error of a launch that a driver refused with a code.

    `sizes` are three of the grid, three of a block, and the bytes of dynamic shared memory.
    """
    assert launch.value is not None
    made = _of_launches[launch.value]
    why = made.driver.explain_launch(made.device_id, made.kernel, made.launch, code, list(sizes))
    device = Device(made.driver.device_type, made.device_id)
    grid, block = "×".join(map(str, sizes[:3])), "×".join(map(str, sizes[3:6]))
    raise DeviceError(
        f"`{made.kernel.name}` cannot be launched on {device} with {grid} blocks of {block} threads: {why}"
    )
