"""What every kind of device can do, behind one interface: memory, copies, waiting, and kernels from text.

    class OpenCL(Driver): ...

    register_driver(OpenCL())
    driver_of(device("opencl", 0)).alloc(0, 1024)

The host's processor has no driver: its memory is Python's, and its functions are called, not launched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from .error import DeviceError


class Driver(ABC):
    """One kind of device. Devices are numbered from 0; addresses are what kernels see.

    A device runs what it is given (kernels, copies, frees) in that order: memory that earlier work reads is used again
    by later work, without waiting.
    """

    device_type: ClassVar[int]
    """The kind, as DLPack numbers it."""
    name: ClassVar[str]
    requirement: ClassVar[str]
    """What must be installed where there is no device of the kind, as the end of a message."""

    @abstractmethod
    def count(self) -> int:
        """How many devices of the kind this process can use; 0 where there is no driver."""

    @abstractmethod
    def attribute(self, device_id: int, name: str) -> Any:
        """A fact about a device, by the name of the property of `Device`; None where the device does not tell."""

    @abstractmethod
    def alloc(self, device_id: int, nbytes: int) -> int:
        """The address of new memory; `DeviceError` where there is none left."""

    @abstractmethod
    def free(self, device_id: int, address: int) -> None:
        """Gives memory back once all work that was given to the device before is done."""

    @abstractmethod
    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        """Copies bytes between two addresses, of which at least one is the device's; returns when that is done."""

    @abstractmethod
    def sync(self, device_id: int) -> None:
        """Waits until the device has done all its work; raises `DeviceError` if some of it failed."""

    @abstractmethod
    def prepare(self, device_id: int, kernel: KernelRecord) -> int:
        """The address of what `launch.ll` calls to launch a kernel on a device: a function, then its own data.

        Compiles the program if it is new. Raises `CompileError` for a text that the device's compiler does not take.
        """

    @abstractmethod
    def explain_launch(self, device_id: int, kernel: KernelRecord, code: int, sizes: list[int]) -> str:
        """Why a launch failed with an error code of the driver; `sizes` are three of the grid and three of a block."""


class KernelRecord:
    """A kernel as the host's code describes it; see `codegen/c_source/launch.py`."""

    def __init__(self, name: str, source: str, kinds: str, extents: list[str]):
        self.name, self.source, self.kinds, self.extents = name, source, kinds, extents


_drivers: dict[int, Driver] = {}


def register_driver(driver: Driver) -> None:
    """Makes a kind of device known."""
    _drivers[driver.device_type] = driver


def find_driver(device_type: int) -> Driver | None:
    """The driver for a kind of device; None where there is none."""
    return _drivers.get(device_type)


def driver_of(device_type: int, device_id: int, name: str) -> Driver:
    """The driver of a device that is there; `DeviceError`, which says what is missing, where it is not."""
    driver = _drivers.get(device_type)
    if driver is None:
        raise DeviceError(f"{name} cannot be used: there is no driver for devices of this kind")
    count = driver.count()
    if 0 <= device_id < count:
        return driver
    if count:
        raise DeviceError(f"there is no {name}: this machine has {count} such device{'s' if count > 1 else ''}")
    raise DeviceError(f"{name} cannot be used: {driver.requirement}")
