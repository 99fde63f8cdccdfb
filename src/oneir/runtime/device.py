"""Devices: where tensors live and programs run.

cpu(0), cuda(1), device("cuda:1"), device("opencl", 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .driver import Driver, driver_of, find_driver
from .error import InvalidValue, UnsupportedError

_TYPES = {
    "cpu": 1,
    "cuda": 2,
    "cuda_host": 3,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "vpi": 9,
    "rocm": 10,
    "rocm_host": 11,
    "ext_dev": 12,
    "cuda_managed": 13,
    "oneapi": 14,
    "webgpu": 15,
    "hexagon": 16,
    "maia": 17,
    "trn": 18,
}
_ALIASES = {
    "llvm": "cpu",
    "c": "cpu",
    "stackvm": "cpu",
    "hybrid": "cpu",
    "test": "cpu",
    "nvptx": "cuda",
    "gpu": "cuda",
    "cl": "opencl",
}
REMOTE = 128
"""Types from here on are of devices of other processes: those of session `i` are `(i + 1) * REMOTE + type`."""

_NAMES = {number: name for name, number in _TYPES.items()}


class Device:
    """A device, as DLPack numbers them: its type and its index among those of that type. Immutable."""

    __slots__ = ("device_id", "device_type")

    # By kinds of targets, too: the published name of this table.
    _DEVICE_NAME_TO_TYPE: ClassVar[Mapping[str, int]] = {
        **_TYPES,
        **{alias: _TYPES[name] for alias, name in _ALIASES.items()},
    }
    device_type: int
    device_id: int

    def __init__(self, device_type: int | str, device_id: int = 0) -> None:
        if isinstance(device_type, str):
            name = _ALIASES.get(device_type, device_type)
            if name not in _TYPES:
                raise InvalidValue(f"{device_type!r} is no kind of device; expected one of {', '.join(_TYPES)}.")
            device_type = _TYPES[name]
        object.__setattr__(self, "device_type", int(device_type))
        object.__setattr__(self, "device_id", int(device_id))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A Device is immutable; {name!r} cannot be set.")

    @property
    def type(self) -> str:
        """The name of the kind of device, such as `cuda`."""
        session, kind = divmod(self.device_type, REMOTE)
        name = _NAMES.get(kind, f"device{kind}")
        return f"remote[{session - 1}]:{name}" if session else name

    @property
    def index(self) -> int:
        """The same as `device_id`."""
        return self.device_id

    @property
    def exist(self) -> bool:
        """Whether this process can allocate tensors on the device."""
        if self.device_type == _TYPES["cpu"]:
            return self.device_id == 0
        driver = find_driver(self.device_type)
        return driver is not None and 0 <= self.device_id < driver.count()

    def sync(self, stream: int | None = None) -> None:
        """Wait until the device has done all its work of `stream`; None is the stream that this thread works in.

        A CPU works synchronously: nothing to wait for. Raises `DeviceError` if work of the device failed.
        """
        if self.device_type != _TYPES["cpu"]:
            self._driver().sync(self.device_id, stream)

    def create_raw_stream(self) -> int:
        """A new stream, whose work runs beside that of other streams: the handle of the driver's own object.

        For CUDA that is a `CUstream`, which other libraries take as well; for OpenCL a command queue. Raises
        `UnsupportedError` for a kind of device without streams.
        """
        return self._driver().create_stream(self.device_id)

    def free_raw_stream(self, stream: int) -> None:
        """Gives a stream of `create_raw_stream` back, after its work is done. No thread may work in it any more."""
        self._driver().free_stream(self.device_id, stream)

    def set_raw_stream(self, stream: int | None) -> None:
        """Makes this thread work in `stream`: its launches, copies and frees go there. None or 0 is the default stream.

        What two streams share must be ordered: `sync(stream)` waits for the work of one.
        """
        self._driver().set_stream(self.device_id, stream or 0)

    def current_raw_stream(self) -> int:
        """The stream that this thread works in; 0 is the default one."""
        return self._driver().current_stream(self.device_id)

    def _driver(self) -> Driver:
        """The device's driver; `DeviceError` where the device is not there, `UnsupportedError` for a CPU."""
        if self.device_type == _TYPES["cpu"]:
            raise UnsupportedError(f"{self} has no streams: it works synchronously")
        return driver_of(self.device_type, self.device_id, str(self))

    def _attribute(self, name: str) -> Any:
        """A fact that the device's driver tells; None where it does not, or the device is not there."""
        driver = find_driver(self.device_type)
        return driver.attribute(self.device_id, name) if driver is not None and self.exist else None

    @property
    def max_threads_per_block(self) -> int | None:
        """How many threads a block may have."""
        return self._attribute("max_threads_per_block")

    @property
    def warp_size(self) -> int | None:
        """How many threads execute an instruction together."""
        return self._attribute("warp_size")

    @property
    def max_shared_memory_per_block(self) -> int | None:
        """The bytes of shared memory that a block may have."""
        return self._attribute("max_shared_memory_per_block")

    @property
    def compute_version(self) -> str | None:
        """The version of what the device can do: "9.0" for CUDA, "OpenCL 1.2 ..." for OpenCL."""
        return self._attribute("compute_version")

    @property
    def device_name(self) -> str | None:
        """The name that the manufacturer gave it."""
        return self._attribute("device_name")

    @property
    def max_clock_rate(self) -> int | None:
        """The highest clock frequency, as the driver tells it: kHz for CUDA, MHz for OpenCL."""
        return self._attribute("max_clock_rate")

    @property
    def multi_processor_count(self) -> int | None:
        """How many blocks run at the same time, each on a processor of its own."""
        return self._attribute("multi_processor_count")

    @property
    def max_thread_dimensions(self) -> list[int] | None:
        """How many threads a block may have along x, y and z."""
        return self._attribute("max_thread_dimensions")

    @property
    def api_version(self) -> int | None:
        """The version of the driver's interface."""
        return self._attribute("api_version")

    @property
    def driver_version(self) -> str | None:
        """The version of the driver."""
        return self._attribute("driver_version")

    @property
    def l2_cache_size_bytes(self) -> int | None:
        """The size of the second-level cache."""
        return self._attribute("l2_cache_size_bytes")

    @property
    def total_global_memory(self) -> int | None:
        """The bytes of memory that the device has."""
        return self._attribute("total_global_memory")

    @property
    def available_global_memory(self) -> int | None:
        """The bytes of memory that are free."""
        return self._attribute("available_global_memory")

    def dlpack_device_type(self) -> int:
        """The same as `device_type`."""
        return self.device_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self.device_type == other.device_type and self.device_id == other.device_id

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.type}:{self.device_id}"

    def __reduce__(self) -> tuple[object, ...]:
        return Device, (self.device_type, self.device_id)


def device(dev: str | int | Device, index: int | None = None) -> Device:
    """The device `dev`, which may be a `Device`, a DLPack number, or a name with or without an index (`"cuda:1"`).

    Raises `InvalidValue` for a name that is no device's, and for an index given twice.
    """
    if isinstance(dev, Device):
        return dev
    if isinstance(dev, str):
        name, colon, suffix = dev.partition(":")
        if colon:
            if index is not None or not suffix.isdecimal():
                raise InvalidValue(f"{dev!r} is no device; expected a name and one index, such as 'cuda:1'.")
            return Device(name, int(suffix))
        dev = name.split()[0] if name.split() else name
    return Device(dev, index or 0)


def cpu(dev_id: int = 0) -> Device:
    """The host's processor."""
    return Device("cpu", dev_id)


def cuda(dev_id: int = 0) -> Device:
    """A GPU of NVIDIA's."""
    return Device("cuda", dev_id)


def rocm(dev_id: int = 0) -> Device:
    """A GPU of AMD's."""
    return Device("rocm", dev_id)


def opencl(dev_id: int = 0) -> Device:
    """An OpenCL device."""
    return Device("opencl", dev_id)


def metal(dev_id: int = 0) -> Device:
    """A GPU of Apple's."""
    return Device("metal", dev_id)


def vpi(dev_id: int = 0) -> Device:
    """A hardware simulator."""
    return Device("vpi", dev_id)


def vulkan(dev_id: int = 0) -> Device:
    """A Vulkan device."""
    return Device("vulkan", dev_id)


def ext_dev(dev_id: int = 0) -> Device:
    """An extension device."""
    return Device("ext_dev", dev_id)


def hexagon(dev_id: int = 0) -> Device:
    """A DSP of Qualcomm's."""
    return Device("hexagon", dev_id)


def webgpu(dev_id: int = 0) -> Device:
    """A WebGPU device."""
    return Device("webgpu", dev_id)
