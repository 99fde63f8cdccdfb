"""Memory of devices that the runtime keeps for later: temporary memory of host code, arenas of graphs, pools.

`device_memory.ll` is the native side, which host code calls. What is kept is given back when a device has no memory
left, and when it is lost.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from .device import Device
from .driver import driver_of, drop_kept_memory, find_driver
from .error import DeviceError
from .llvm import LoadedObject, add_symbol
from .once import once
from .registry import register_func
from .resident import resident


class Keeper(Protocol):
    """What keeps memory of devices that nobody uses."""

    def drop_kept(self, device: Device) -> int:
        """Gives back all that is kept of a device; returns how many bytes."""
        ...


_keepers: weakref.WeakSet[Any] = weakref.WeakSet()


def add_keeper(keeper: Keeper) -> None:
    """Has `keeper` asked for memory, as long as it lives, when a device has none left."""
    _keepers.add(keeper)


@drop_kept_memory.provide
def _drop_kept_memory(device_type: int, device_id: int) -> int:
    device = Device(device_type, device_id)
    dropped = sum(keeper.drop_kept(device) for keeper in list(_keepers))
    dropped += drop_idle_blocks(device_type, device_id)
    driver = find_driver(device_type)  # the others give their memory back to it
    return dropped + (driver.drop_kept(device_id) if driver is not None else 0)


def drop_idle_blocks(device_type: int, device_id: int) -> int:
    """Gives back the temporary memory of a device that nobody uses; returns how many bytes."""
    return _drop_blocks()(device_type, device_id) if _code.made() else 0


_Alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
_Drop = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32, ctypes.c_int32)


class _Failure(threading.local):
    """Why a thread got no memory."""

    error: DeviceError | None = None


_failure = _Failure()
NO_DEVICE_MEMORY = "oneir.runtime.no_device_memory"
"""The function that host code calls when it got no memory of a device: with a name for it, and its bytes."""


@_Alloc
def _alloc(device_type: int, device_id: int, nbytes: int) -> int | None:
    """Memory of a device; null where there is none, which the caller reports by `NO_DEVICE_MEMORY`."""
    try:
        return driver_of(device_type, device_id, str(Device(device_type, device_id))).allocate(device_id, nbytes)
    except DeviceError as error:
        _failure.error = error
        return None


@register_func(NO_DEVICE_MEMORY)
def _no_device_memory(name: str, nbytes: int) -> None:
    error, _failure.error = _failure.error, None
    raise DeviceError(f"no temporary memory for `{name}`, {nbytes} bytes: {error}")


@_Free
def _free(device_type: int, device_id: int, address: int) -> None:
    driver = find_driver(device_type)
    if address and driver is not None:  # memory goes with its driver
        driver.release(device_id, address)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@once
def _code() -> LoadedObject:
    add_symbol("oneir_make_device_memory", _address(_alloc))
    add_symbol("oneir_drop_device_memory", _address(_free))
    text = Path(__file__).with_name("device_memory.ll").read_text()
    return resident("temporary memory of devices", lambda: text, text)


@once
def _drop_blocks() -> Any:
    return _Drop(_code().symbol("oneir_drop_kept_memory"))


def device_memory_address(name: str) -> int:
    """The address of `oneir_alloc_device_memory` or `oneir_free_device_memory`."""
    return _code().symbol(name)


for _name in ("oneir_alloc_device_memory", "oneir_free_device_memory"):
    add_symbol(_name, partial(device_memory_address, _name))
