"""What every kind of device can do, behind one interface: memory, copies, waiting, and kernels from text.

    class OpenCL(Driver): ...

    register_driver(OpenCL())
    driver_of(device("opencl", 0)).alloc(0, 1024)

The host's processor has no driver: its memory is Python's, and its functions are called, not launched.
"""

from __future__ import annotations

import ctypes
import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from .error import DeviceError, UnsupportedError
from .hook import Hook
from .once import new_lock
from .stream import choose_stream, current_stream

drop_kept_memory: Hook[[int, int], int] = Hook("drop_kept_memory", "oneir.runtime.device_memory")
"""Gives back what the runtime keeps of a device's memory (its type, its number) for later; returns how many bytes."""


class Driver(ABC):
    """One kind of device. Devices are numbered from 0; addresses are what kernels see.

    A device has streams: what one of them is given (kernels, copies, frees) runs in that order, so memory that earlier
    work reads is used again by later work, without waiting. Each thread works in the stream that it has chosen, or in
    the default one. Streams and events are handles, numbers other than 0; stream 0 is the default one.
    """

    device_type: ClassVar[int]
    """The kind, as DLPack numbers it."""
    name: ClassVar[str]
    not_shared: ClassVar[str] = ""
    """Why memory of the devices cannot be shared through DLPack, as the end of a message; empty where it can be."""
    default_stream: ClassVar[int] = 0
    """The number that DLPack has for the default stream."""
    requirement: ClassVar[str]
    """What must be installed where there is no device of the kind, as the end of a message."""

    @abstractmethod
    def count(self) -> int:
        """How many devices of the kind this process can use; 0 where there is no driver."""

    @abstractmethod
    def attribute(self, device_id: int, name: str) -> Any:
        """A fact about a device, by the name of the property of `Device`; None where the device does not tell."""

    # -- memory --

    def __init__(self) -> None:
        self._sizes: dict[int, dict[int, int]] = {}
        """By device, the bytes of what is allocated, by address."""
        self._sizes_lock = new_lock()

    def allocate(self, device_id: int, nbytes: int) -> int:
        """The address of new memory.

        Where the device has none left, what the runtime keeps for later is given back first. Raises `DeviceError`, with
        what was asked for and what is in use, if that was not enough.
        """
        address = self.alloc(device_id, nbytes)
        if address is None:
            kept = drop_kept_memory(self.device_type, device_id)
            address = self.alloc(device_id, nbytes) if kept else None
        if address is None:
            total = self.attribute(device_id, "total_global_memory")
            raise DeviceError(
                f"{self.name}:{device_id} has no memory for {nbytes} bytes: {self.memory_in_use(device_id)} of its "
                f"{total} bytes are in use here; free tensors on it, or use smaller ones"
            )
        with self._sizes_lock:
            self._sizes.setdefault(device_id, {})[address] = nbytes
        return address

    def release(self, device_id: int, address: int) -> None:
        """Gives memory back once all work that was given to the device before is done.

        Never raises: it is called when tensors die. Memory of a device that is lost is only forgotten.
        """
        if self.take_note_of_release(device_id, address) is not None:
            self.free(device_id, address)

    def take_note_of_release(self, device_id: int, address: int) -> int | None:
        """The bytes of memory that is not in use any more; None for memory that is not known."""
        with self._sizes_lock:
            return self._sizes.get(device_id, {}).pop(address, None)

    def drop_kept(self, device_id: int) -> int:
        """Gives the device back what this driver keeps of released memory for later; returns how many bytes."""
        return 0

    def forget_memory(self, device_id: int) -> None:
        """Takes note that all memory of a device is gone."""
        with self._sizes_lock:
            self._sizes.pop(device_id, None)
        drop_kept_memory(self.device_type, device_id)

    def memory_in_use(self, device_id: int) -> int:
        """The bytes of a device that this process has allocated here."""
        with self._sizes_lock:
            return sum(self._sizes.get(device_id, {}).values())

    @abstractmethod
    def alloc(self, device_id: int, nbytes: int) -> int | None:
        """The address of new memory; None where there is none left."""

    @abstractmethod
    def free(self, device_id: int, address: int) -> None:
        """Gives memory back, as `release` does."""

    @abstractmethod
    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        """Copies bytes between two addresses, of which at least one is the device's; returns when that is done."""

    # -- streams and events --

    @abstractmethod
    def sync(self, device_id: int, stream: int | None = None) -> None:
        """Waits until a stream (None: the one that the thread has chosen) has done all its work.

        Raises `DeviceError` if some of it failed.
        """

    def create_stream(self, device_id: int) -> int:
        """A new stream, which runs beside all others."""
        raise UnsupportedError(f"{self.name} has no streams besides the default one")

    def free_stream(self, device_id: int, stream: int) -> None:
        """Gives a stream back, whose work is done first."""
        raise UnsupportedError(f"{self.name} has no streams besides the default one")

    def set_stream(self, device_id: int, stream: int) -> None:
        """Makes the calling thread work in a stream, from now on."""
        choose_stream(self.device_type, device_id, stream)

    def current_stream(self, device_id: int) -> int:
        """The stream that the calling thread has chosen; 0 is the default one."""
        return current_stream(self.device_type, device_id)

    def sync_streams(self, device_id: int, source: int, target: int) -> None:
        """Makes what `target` is given from now on wait for what `source` has been given, without waiting here."""
        self.sync(device_id, source)

    def record_event(self, device_id: int) -> int:
        """A new event: the moment at which the thread's stream has done what it has been given."""
        raise UnsupportedError(f"{self.name} measures no times")

    def elapsed(self, device_id: int, begin: int, end: int) -> float:
        """The seconds between two events; waits for the later one."""
        raise UnsupportedError(f"{self.name} measures no times")

    def free_event(self, device_id: int, event: int) -> None:
        """Gives an event back."""
        raise UnsupportedError(f"{self.name} measures no times")

    @property
    def has_events(self) -> bool:
        """Whether `record_event` and `elapsed` measure times."""
        return type(self).record_event is not Driver.record_event

    # -- kernels --

    @abstractmethod
    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        """What `launch.ll` launches a kernel with on a device: the address of a function, then that function's data.

        Compiles the program if it is new. Raises `CompileError` for a text that the device's compiler does not take.
        """

    @abstractmethod
    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        """Gives back what `prepare` made; the program goes with its last kernel. Never raises."""

    @abstractmethod
    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        """Why a launch failed with an error code of the driver.

        `sizes` are three of the grid, three of a block, and the bytes of dynamic shared memory.
        """


AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
"""The axes of a launch, grid then block."""


class KernelRecord:
    """A kernel as the host's code describes it; see `codegen/c_source/launch.py`."""

    def __init__(self, name: str, source: str, kinds: str, extents: list[str]):
        self.name, self.source, self.kinds, self.extents = name, source, kinds, extents
        self.digest = hashlib.blake2b(source.encode(), digest_size=16).digest()
        """Of the text of the program that the kernel is in."""

    def place_of(self, extent: str) -> int:
        """Where among the values of a launch an extent is; -1 where the kernel has no such."""
        return len(self.kinds) + self.extents.index(extent) if extent in self.extents else -1


_drivers: dict[int, Driver] = {}


def register_driver(driver: Driver) -> None:
    """Makes a kind of device known."""
    _drivers[driver.device_type] = driver


def replace_driver(device_type: int, driver: Driver | None) -> Driver | None:
    """Makes another driver, or none, that of a kind of device; returns the one before."""
    before = _drivers.pop(device_type, None)
    if driver is not None:
        _drivers[device_type] = driver
    return before


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
