"""Vulkan devices, found through the system's loader (libvulkan): memory by addresses, and one queue in order.

Kernels get addresses of buffers, as in CUDA. What the runtime has as an address has bit 60 set, which no address has,
so that it is never taken for one of the host's; a launch (`vulkan.ll`) takes it off. Copies from and to the host go
through a buffer that both see.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from . import vulkan_api as vk
from .device import Device
from .driver import AXES, Driver, KernelRecord, register_driver
from .error import CompileError, DeviceError, UnsupportedError
from .llvm import LoadedObject
from .once import new_lock, once
from .registry import register_func
from .resident import resident
from .spirv import assemble
from .vulkan_memory import Heap, Piece

_TAG = 1 << 60
_STAGING_BYTES = 4 << 20
_EVENTS = 256
"""Events that a device has at the same time."""
_MOST_ARGUMENT_BYTES = 65536
"""What one command may write into memory: the arguments of a launch."""
_PUSHED_BYTES = 128
_OVER_A_LIMIT = 1
_REQUIRED = ("bufferDeviceAddress", "timelineSemaphore", "hostQueryReset")
"""Features without which a device is not offered; every one of Vulkan 1.3 has them."""
_CAPABILITIES: dict[str, tuple[tuple[str, ...], str]] = {
    "Int64": (("shaderInt64",), "int64"),
    "Float64": (("shaderFloat64",), "float64"),
    "StorageBuffer8BitAccess": (("storageBuffer8BitAccess", "shaderInt8"), "elements of 8 bits"),
    "StorageBuffer16BitAccess": (("storageBuffer16BitAccess", "shaderInt16"), "elements of 16 bits"),
}
"""What programs may need: features of Vulkan, and what they are for."""
SUPPORTS = {
    "supports_float16": "shaderFloat16",
    "supports_float64": "shaderFloat64",
    "supports_int8": "shaderInt8",
    "supports_int16": "shaderInt16",
    "supports_int64": "shaderInt64",
    "supports_8bit_buffer": "storageBuffer8BitAccess",
    "supports_16bit_buffer": "storageBuffer16BitAccess",
}
"""What targets say of a device, and the features of Vulkan that it stands for."""
_KINDS = {"p": 0, "f": 1}
_NATIVE = (
    *("vkBeginCommandBuffer", "vkEndCommandBuffer", "vkQueueSubmit", "vkWaitSemaphores", "vkCmdPipelineBarrier"),
    *("vkCmdBindPipeline", "vkCmdPushConstants", "vkCmdDispatch", "vkCmdCopyBuffer", "vkCmdUpdateBuffer"),
    "vkCmdWriteTimestamp",
)
"""The functions that `vulkan.ll` calls, in the order of its structure."""


class _Queue(ctypes.Structure):
    """What `vulkan.ll` gives work to."""

    _fields_ = (
        ("lock", ctypes.c_int32),
        ("recorded", ctypes.c_int32),
        ("submitted", ctypes.c_int64),
        ("device", ctypes.c_void_p),
        ("queue", ctypes.c_void_p),
        ("commands", ctypes.c_void_p * 4),
        ("values", ctypes.c_int64 * 4),
        ("timeline", ctypes.c_uint64),
        ("value", ctypes.c_int64),
        ("begin", ctypes.c_void_p),
        ("submit", ctypes.c_void_p),
        ("barrier", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * len(_NATIVE)),
        ("arguments", ctypes.c_uint64),
        ("address", ctypes.c_int64),
    )


class _Launch(ctypes.Structure):
    """What `vulkan.ll` launches with."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("queue", ctypes.c_void_p),
        ("pipeline", ctypes.c_uint64),
        ("layout", ctypes.c_uint64),
        ("kinds", ctypes.c_char_p),
        ("arguments", ctypes.c_int32),
        ("in_memory", ctypes.c_int32),
        ("extents", ctypes.c_int32 * 6),
        ("grid", ctypes.c_uint32 * 3),
    )


@dataclass
class _Program:
    """A module of kernels, and how many launches have one of them."""

    handle: int
    kernels: int = 0


@dataclass
class _OpenDevice:
    """A device that is in use, and what was made for it."""

    handle: int
    queue: _Queue
    heap: Heap
    staging: Piece
    staged: int
    """The host's address of the staging buffer."""
    events: int
    """A pool of queries, one for each event."""
    kept: list[Any]
    """What the queue points to."""
    free_events: list[int] = field(default_factory=lambda: list(range(_EVENTS)))
    programs: dict[bytes, _Program] = field(default_factory=dict)
    lost: bool = False


@dataclass(frozen=True)
class _Found:
    """A device as the system describes it."""

    handle: int
    properties: Any
    memory: Any
    features: frozenset[str]
    family: int
    """Of queues that run kernels."""
    timestamp_bits: int


@once
def _code() -> LoadedObject:
    text = Path(__file__).with_name("vulkan.ll").read_text()
    return resident("work for Vulkan devices", lambda: text, text)


@once
def _native() -> tuple[Any, Any, Any]:
    """`oneir_vulkan_wait`, `_copy` and `_timestamp`."""
    code, pointer, number = ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64
    return (
        ctypes.CFUNCTYPE(code, pointer)(_code().symbol("oneir_vulkan_wait")),
        ctypes.CFUNCTYPE(code, pointer, number, number, pointer)(_code().symbol("oneir_vulkan_copy")),
        ctypes.CFUNCTYPE(code, pointer, number, ctypes.c_uint32)(_code().symbol("oneir_vulkan_timestamp")),
    )


class Vulkan(Driver):
    """All devices of Vulkan 1.2 with addresses of buffers: GPUs of their own first, processors last."""

    device_type: ClassVar[int] = 7
    name: ClassVar[str] = "vulkan"
    not_shared: ClassVar[str] = "addresses of Vulkan's buffers mean nothing to other libraries"
    requirement: ClassVar[str] = (
        "no device of Vulkan 1.2 with addresses of buffers (bufferDeviceAddress) was found; install the driver of your "
        "GPU, or lavapipe to use the processor (Debian: apt-get install mesa-vulkan-drivers libvulkan1)"
    )

    def __init__(self) -> None:
        super().__init__()
        self._lock = new_lock()
        """Of what is open, of heaps, programs and events."""
        self._copying = new_lock()
        """Of staging buffers."""
        self._open: dict[int, _OpenDevice] = {}

    def count(self) -> int:
        return len(_devices())

    def attribute(self, device_id: int, name: str) -> Any:
        found = _devices()[device_id]
        properties, limits = found.properties, found.properties.limits
        if name in SUPPORTS:
            return SUPPORTS[name] in found.features
        match name:
            case "warp_size":
                return 1  # what a thread may exchange with its neighbours without a barrier is its own
            case "device_name":
                return properties.name.decode(errors="replace")
            case "compute_version" | "api_version":
                major, minor, patch = (
                    properties.api >> shift & mask for shift, mask in ((22, 127), (12, 1023), (0, 4095))
                )
                return properties.api if name == "api_version" else f"{major}.{minor}.{patch}"
            case "driver_version":
                return str(properties.driver)
            case "max_threads_per_block":
                return limits.threads
            case "max_thread_dimensions":
                return list(limits.block)
            case "max_shared_memory_per_block":
                return limits.shared_bytes
            case "total_global_memory":
                return _heap_of(found, vk.DEVICE_LOCAL).size
            case "available_global_memory":
                return _heap_of(found, vk.DEVICE_LOCAL).size - self.memory_in_use(device_id)
        return None

    # -- devices --

    def _device(self, device_id: int) -> _OpenDevice:
        """A device, opened when it is first used."""
        with self._lock:
            device = self._open.get(device_id)
            if device is None:
                device = self._open[device_id] = self._opened(device_id)
        if device.lost:
            raise DeviceError(
                f"vulkan:{device_id} is lost: work that it was given failed; use another, or a new process"
            )
        return device

    def _check(self, device_id: int, code: int, what: str) -> None:
        """Raises `DeviceError` for an error of the driver, and takes note of a device that is lost."""
        if code == vk.DEVICE_LOST and device_id in self._open:
            self._open[device_id].lost = True
            self.forget_memory(device_id)
        if code < 0:
            raise DeviceError(f"vulkan:{device_id}: {what}: {vk.ERRORS.get(code, f'Vulkan error {code}')}")

    def _made(self, device_id: int, function: str, device: int, info: Any) -> int:
        """The object that a function of the driver makes."""
        made = ctypes.c_uint64()
        code = getattr(_loaded(), function)(device, ctypes.byref(info), None, ctypes.byref(made))
        self._check(device_id, code, function)
        return made.value

    def _opened(self, device_id: int) -> _OpenDevice:
        found, library = _devices()[device_id], _loaded()
        priority = ctypes.c_float(1.0)
        queue_info = vk.QueueInfo(family=found.family, count=1, priorities=ctypes.addressof(priority))
        features = _features_chain(found.features)
        info = vk.DeviceInfo(next=ctypes.addressof(features[0]), queue_count=1, queues=ctypes.addressof(queue_info))
        made = ctypes.c_void_p()
        code = library.vkCreateDevice(found.handle, ctypes.byref(info), None, ctypes.byref(made))
        self._check(device_id, code, "it cannot be opened")
        handle = made.value
        assert handle is not None
        queue, vulkan_queue = _Queue(device=handle), ctypes.c_void_p()
        library.vkGetDeviceQueue(handle, found.family, 0, ctypes.byref(vulkan_queue))
        queue.queue = vulkan_queue.value
        timeline = vk.SemaphoreType(type=1)
        queue.timeline = self._made(
            device_id, "vkCreateSemaphore", handle, vk.SemaphoreInfo(next=ctypes.addressof(timeline))
        )
        pool = self._made(device_id, "vkCreateCommandPool", handle, vk.CommandPoolInfo(flags=2, family=found.family))
        commands = vk.CommandInfo(pool=pool, level=0, count=4)
        code = library.vkAllocateCommandBuffers(
            handle, ctypes.byref(commands), ctypes.byref(queue, _Queue.commands.offset)
        )
        self._check(device_id, code, "it has no command buffers")
        # Shaders and copies, reads and writes, and what the host reads.
        kept = [
            vk.BeginInfo(flags=1),
            vk.TimelineSubmit(signal_count=1, signals=ctypes.addressof(queue) + _Queue.value.offset),
            vk.SubmitInfo(command_count=1, signal_count=1, signals=ctypes.addressof(queue) + _Queue.timeline.offset),
            vk.MemoryBarrier(source=0x1860, target=0x3860),
        ]
        kept[2].next = ctypes.addressof(kept[1])
        queue.begin, queue.submit, queue.barrier = (ctypes.addressof(kept[i]) for i in (0, 2, 3))
        for place, name in enumerate(_NATIVE):
            queue.functions[place] = library.vkGetDeviceProcAddr(handle, name.encode())
        heap = Heap(
            lambda nbytes: self._piece(device_id, handle, nbytes, vk.DEVICE_LOCAL),
            lambda piece: _drop(handle, piece),
            lambda: queue.submitted + bool(queue.recorded),
        )
        staging = self._piece(device_id, handle, _STAGING_BYTES, vk.HOST_VISIBLE | vk.HOST_COHERENT)
        arguments = self._piece(device_id, handle, _MOST_ARGUMENT_BYTES, vk.DEVICE_LOCAL)
        if staging is None or arguments is None:
            raise DeviceError(f"vulkan:{device_id} has no memory for copies: {_STAGING_BYTES} bytes that the host sees")
        queue.arguments, queue.address = arguments.buffer, arguments.address & ~_TAG
        staged = ctypes.c_void_p()
        code = library.vkMapMemory(handle, staging.memory, 0, _STAGING_BYTES, 0, ctypes.byref(staged))
        self._check(device_id, code, "the host does not see its memory")
        assert staged.value is not None
        events = self._made(device_id, "vkCreateQueryPool", handle, vk.QueryPoolInfo(query_type=2, count=_EVENTS))
        return _OpenDevice(handle, queue, heap, staging, staged.value, events, kept)

    # -- memory --

    def _piece(self, device_id: int, device: int, nbytes: int, flags: int) -> Piece | None:
        """A buffer with memory of its own; None where there is none left."""
        library, found = _loaded(), _devices()[device_id]
        if nbytes > _heap_of(found, flags).size:
            return None
        made = ctypes.c_uint64()
        info = vk.BufferInfo(size=nbytes, usage=vk.BUFFER_USAGE)
        code = library.vkCreateBuffer(device, ctypes.byref(info), None, ctypes.byref(made))
        if code in vk.OUT_OF_MEMORY:
            return None
        self._check(device_id, code, f"a buffer of {nbytes} bytes cannot be made")
        buffer, needs, memory = made.value, vk.Requirements(), ctypes.c_uint64()
        library.vkGetBufferMemoryRequirements(device, buffer, ctypes.byref(needs))
        with_address = vk.AllocateFlags(flags=2)
        allocate = vk.AllocateInfo(
            next=ctypes.addressof(with_address), size=needs.size, memory_type=_memory_type(found, needs.types, flags)
        )
        code = library.vkAllocateMemory(device, ctypes.byref(allocate), None, ctypes.byref(memory))
        if code < 0:
            library.vkDestroyBuffer(device, buffer, None)
        if code in (*vk.OUT_OF_MEMORY, -10):
            return None
        self._check(device_id, code, f"{nbytes} bytes cannot be allocated")
        self._check(device_id, library.vkBindBufferMemory(device, buffer, memory, 0), "a buffer takes no memory")
        place = vk.AddressInfo(buffer=buffer)
        address = library.vkGetBufferDeviceAddress(device, ctypes.byref(place))
        return Piece(buffer, memory.value, address | _TAG, nbytes)

    def alloc(self, device_id: int, nbytes: int) -> int | None:
        device = self._device(device_id)

        def done() -> int:
            value = ctypes.c_uint64()
            code = _loaded().vkGetSemaphoreCounterValue(device.handle, device.queue.timeline, ctypes.byref(value))
            self._check(device_id, code, "asking how much is done")
            return value.value

        with self._lock:
            return device.heap.alloc(nbytes, done, lambda: self._wait(device_id, device))

    def free(self, device_id: int, address: int) -> None:
        device = self._open[device_id]
        with self._lock:
            if not device.lost:
                device.heap.free(address)

    def _find(self, device: _OpenDevice, device_id: int, address: int) -> tuple[Piece, int]:
        with self._lock:
            try:
                return device.heap.find(address)
            except KeyError:
                message = f"memory of vulkan:{device_id} is used that was given back, or that is none of it"
                raise DeviceError(message) from None

    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        if not nbytes:
            return
        device = self._device(device_id)
        from_host, to_host = not source & _TAG, not target & _TAG
        if not from_host and not to_host:
            self._move(
                device_id, device, self._find(device, device_id, source), self._find(device, device_id, target), nbytes
            )
            self._wait(device_id, device)
            return
        with self._copying:
            for done in range(0, nbytes, _STAGING_BYTES):
                size = min(_STAGING_BYTES, nbytes - done)
                if from_host:
                    ctypes.memmove(device.staged, source + done, size)
                    place = self._find(device, device_id, target + done)
                    self._move(device_id, device, (device.staging, 0), place, size)
                    self._wait(device_id, device)
                else:
                    place = self._find(device, device_id, source + done)
                    self._move(device_id, device, place, (device.staging, 0), size)
                    self._wait(device_id, device)
                    ctypes.memmove(target + done, device.staged, size)

    def _move(
        self, device_id: int, device: _OpenDevice, source: tuple[Piece, int], target: tuple[Piece, int], nbytes: int
    ) -> None:
        """Has the device copy bytes between two places of buffers."""
        region = vk.CopyRegion(source=source[1], target=target[1], size=nbytes)
        _, copy, _ = _native()
        code = copy(ctypes.addressof(device.queue), source[0].buffer, target[0].buffer, ctypes.addressof(region))
        self._check(device_id, code, f"copying {nbytes} bytes")

    # -- waiting and events --

    def _wait(self, device_id: int, device: _OpenDevice) -> None:
        wait, _, _ = _native()
        self._check(device_id, wait(ctypes.addressof(device.queue)), "waiting for it")

    def sync(self, device_id: int, stream: int | None = None) -> None:
        self._wait(device_id, self._device(device_id))

    def set_stream(self, device_id: int, stream: int) -> None:
        if stream:
            raise UnsupportedError(f"vulkan:{device_id} has no streams besides the default one")
        super().set_stream(device_id, stream)

    def record_event(self, device_id: int) -> int:
        device = self._device(device_id)
        if not _devices()[device_id].timestamp_bits:
            raise UnsupportedError(f"vulkan:{device_id} measures no times")
        with self._lock:
            if not device.free_events:
                raise DeviceError(f"vulkan:{device_id} has {_EVENTS} events, which are all in use; give some back")
            event = device.free_events.pop()
        _loaded().vkResetQueryPool(device.handle, device.events, event, 1)
        _, _, timestamp = _native()
        self._check(device_id, timestamp(ctypes.addressof(device.queue), device.events, event), "recording an event")
        return event + 1

    def elapsed(self, device_id: int, begin: int, end: int) -> float:
        device, times = self._device(device_id), (ctypes.c_uint64 * 2)()
        self._wait(device_id, device)
        for place, event in enumerate((begin, end)):
            where = ctypes.byref(times, 8 * place)
            code = _loaded().vkGetQueryPoolResults(device.handle, device.events, event - 1, 1, 8, where, 8, 3)
            self._check(device_id, code, "asking for the time of an event")
        found = _devices()[device_id]
        ticks = (times[1] - times[0]) & ((1 << found.timestamp_bits) - 1)
        return ticks * found.properties.limits.timestamp_period / 1e9

    def free_event(self, device_id: int, event: int) -> None:
        device = self._open[device_id]
        with self._lock:
            device.free_events.append(event - 1)

    # -- kernels --

    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        device = self._device(device_id)
        self._check_needs(device_id, kernel)
        with self._lock:
            program = device.programs.get(kernel.digest)
            if program is None:
                words = assemble(kernel.source)
                data = ctypes.create_string_buffer(words, len(words))
                info = vk.ShaderInfo(size=len(words), words=ctypes.addressof(data))
                handle = self._made(device_id, "vkCreateShaderModule", device.handle, info)
                program = device.programs[kernel.digest] = _Program(handle)
            program.kernels += 1
        nbytes = 8 * len(kernel.kinds)
        in_memory = nbytes > _PUSHED_BYTES
        pushed = vk.PushRange(stages=0x20, size=8 if in_memory else nbytes)
        layout_info = vk.LayoutInfo(range_count=bool(nbytes), ranges=ctypes.addressof(pushed))
        layout = self._made(device_id, "vkCreatePipelineLayout", device.handle, layout_info)
        stage = vk.StageInfo(stage=0x20, module=program.handle, name=kernel.name.encode())
        info = vk.PipelineInfo(stage=stage, layout=layout, base_index=-1)
        pipeline = ctypes.c_uint64()
        code = _loaded().vkCreateComputePipelines(device.handle, 0, 1, ctypes.byref(info), None, ctypes.byref(pipeline))
        self._check(device_id, code, f"the kernel `{kernel.name}` cannot be made")
        return _Launch(
            _code().symbol("oneir_vulkan_launch"),
            ctypes.addressof(device.queue),
            pipeline.value,
            layout,
            bytes(_KINDS.get(letter, 2) for letter in kernel.kinds) + b"\3",
            len(kernel.kinds),
            in_memory,
            (ctypes.c_int32 * 6)(*map(kernel.place_of, AXES)),
            (ctypes.c_uint32 * 3)(*_devices()[device_id].properties.limits.grid),
        )

    def _check_needs(self, device_id: int, kernel: KernelRecord) -> None:
        """Raises an error for a kernel that needs what the device does not have."""
        found = _devices()[device_id]
        limits, device = found.properties.limits, f"vulkan:{device_id} ({self.attribute(device_id, 'device_name')})"
        for capability in re.findall(r"(?m)^OpCapability (\w+)", kernel.source):
            features, what = _CAPABILITIES.get(capability, ((), ""))
            missing = [name for name in features if name not in found.features]
            if missing:
                raise CompileError(
                    f"the program of `{kernel.name}` needs {what}, which {device} does not have "
                    f"({', '.join(missing)}); use another dtype, or another device"
                )
        needs = re.search(
            rf"(?m)^; {re.escape(kernel.name)}: (.*) threads, (\d+) bytes of shared memory$", kernel.source
        )
        assert needs is not None
        size, shared = [int(extent) for extent in needs[1].split("×")], int(needs[2])
        threads = size[0] * size[1] * size[2]
        if threads > limits.threads or any(map(int.__gt__, size, limits.block)):
            raise DeviceError(
                f"`{kernel.name}` has blocks of {needs[1]} threads; a block has at most {limits.threads} on {device}, "
                f"and at most {'×'.join(map(str, limits.block))} in its dimensions"
            )
        if shared > limits.shared_bytes:
            raise DeviceError(
                f"a block of `{kernel.name}` needs {shared} bytes of shared memory; it has at most "
                f"{limits.shared_bytes} on {device}"
            )

    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        assert isinstance(launch, _Launch)
        device, library = self._open[device_id], _loaded()
        wait, _, _ = _native()
        wait(ctypes.addressof(device.queue))
        library.vkDestroyPipeline(device.handle, launch.pipeline, None)
        library.vkDestroyPipelineLayout(device.handle, launch.layout, None)
        with self._lock:
            program = device.programs[kernel.digest]
            program.kernels -= 1
            if not program.kernels:
                library.vkDestroyShaderModule(device.handle, device.programs.pop(kernel.digest).handle, None)

    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        if code == _OVER_A_LIMIT:
            most = "×".join(map(str, _devices()[device_id].properties.limits.grid))
            return f"a grid has at most {most} blocks; give each block more to do"
        try:
            self._check(device_id, code, "launching")  # which notes that the device is lost
        except DeviceError as error:
            return str(error)
        return f"Vulkan error {code}"


def _loaded() -> ctypes.CDLL:
    library = vk.library()
    if library is None:
        raise DeviceError(Vulkan.requirement)
    return library


def _drop(device: int, piece: Piece) -> None:
    library = _loaded()
    library.vkDestroyBuffer(device, piece.buffer, None)
    library.vkFreeMemory(device, piece.memory, None)


def _memory_type(found: _Found, allowed: int, flags: int) -> int:
    """The first kind of memory, among those that a buffer may have, with some properties."""
    for place in range(found.memory.type_count):
        if allowed >> place & 1 and found.memory.types[place].flags & flags == flags:
            return place
    raise DeviceError(f"{found.properties.name.decode()} has no memory of the kind {flags:#x} for buffers")


def _heap_of(found: _Found, flags: int) -> Any:
    """Where memory with some properties is taken from."""
    return found.memory.heaps[found.memory.types[_memory_type(found, -1, flags)].heap]


def _features_chain(names: frozenset[str]) -> tuple[Any, Any, Any]:
    """The structures of features, each of which points to the next one, in which those of some names are set."""
    features = vk.Features(), vk.Features11(), vk.Features12()
    features[0].next, features[1].next = ctypes.addressof(features[1]), ctypes.addressof(features[2])
    for name in names:
        kind, place = vk.FEATURES[name]
        next(chain for chain in features if isinstance(chain, kind)).flags[place] = 1
    return features


@once
def _devices() -> list[_Found]:
    """All devices that can be used."""
    library = vk.library()
    if library is None:
        return []
    application = vk.ApplicationInfo(api=vk.VULKAN_1_2)
    info, instance, number = (
        vk.InstanceInfo(application=ctypes.addressof(application)),
        ctypes.c_void_p(),
        ctypes.c_uint32(),
    )
    if library.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)):
        return []
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(number), None)
    handles = (ctypes.c_void_p * number.value)()
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(number), handles)
    found = [_described(handle) for handle in handles if handle is not None]
    usable = [device for device in found if device is not None]
    order = {2: 0, 1: 1, 3: 2}  # GPUs of their own, those beside the processor, virtual ones
    return sorted(usable, key=lambda device: order.get(device.properties.type, 3))


def _described(handle: int) -> _Found | None:
    """A device, if it can be used."""
    library = _loaded()
    floats = vk.FloatControls()
    properties = vk.DeviceProperties2(next=ctypes.addressof(floats))
    library.vkGetPhysicalDeviceProperties(handle, ctypes.byref(properties.properties))
    if properties.properties.api < vk.VULKAN_1_2:
        return None
    library.vkGetPhysicalDeviceProperties2(handle, ctypes.byref(properties))
    asked = _features_chain(frozenset())
    library.vkGetPhysicalDeviceFeatures2(handle, ctypes.byref(asked[0]))
    features = frozenset(
        name
        for name, (kind, place) in vk.FEATURES.items()
        if next(chain for chain in asked if isinstance(chain, kind)).flags[place]
    )
    memory, number = vk.MemoryProperties(), ctypes.c_uint32()
    library.vkGetPhysicalDeviceMemoryProperties(handle, ctypes.byref(memory))
    library.vkGetPhysicalDeviceQueueFamilyProperties(handle, ctypes.byref(number), None)
    families = (vk.QueueFamily * number.value)()
    library.vkGetPhysicalDeviceQueueFamilyProperties(handle, ctypes.byref(number), families)
    family = next((i for i, known in enumerate(families) if known.flags & vk.COMPUTE_BIT), None)
    if family is None or not floats.preserve_32 or not features.issuperset(_REQUIRED):
        return None
    return _Found(handle, properties.properties, memory, features, family, families[family].timestamp_bits)


register_driver(_VULKAN := Vulkan())


@register_func("device_api.vulkan.get_target_property")
def _target_property(device: Device, name: str) -> Any:
    """What a device has for a property of targets, for instance `supports_float16`; None for one that is not known."""
    return _VULKAN.attribute(device.device_id, name)
