"""CUDA devices, through the driver's own library (`cuda_api.py`): GPUs of NVIDIA's.

The context of a device is its primary one, which other libraries in the process share, and the default stream is
CUDA's, in which they work as well unless told otherwise. So what they and compiled programs do is in order.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from .cuda_api import (
    LOST,
    NON_BLOCKING,
    OUT_OF_MEMORY,
    POOL_RELEASE_THRESHOLD,
    SUCCESS,
    Attribute,
    CudaApi,
    FunctionAttribute,
)
from .driver import AXES, Driver, KernelRecord, drop_kept_memory, register_driver
from .error import CompileError, DeviceError, InvalidValue
from .hook import Hook
from .llvm import LoadedObject
from .once import new_lock, once
from .resident import resident

compile_for: Hook[[str, str], bytes] = Hook("compile_for", "oneir.contrib.nvcc")
"""The machine code (or PTX) of a CUDA program, by its text, for a device of a compute capability such as "9.0"."""

_DYNAMIC_SHARED = "tir.use_dyn_shared_memory"
_OVER_A_LIMIT = -1
"""The code of a launch that `cuda.ll` refused."""
_SIZES = [f"{what} along {axis}" for what in ("blocks", "threads") for axis in "xyz"]
_SIZES += ["bytes of dynamic shared memory"]
_NOT_FOR_DEVICE = (200, 209, 218, 222)
"""Errors of loading a program that is not for the device, or damaged."""
_SIMPLE = {
    "warp_size": Attribute.WARP,
    "max_threads_per_block": Attribute.THREADS,
    "max_shared_memory_per_block": Attribute.SHARED,
    "max_clock_rate": Attribute.CLOCK,
    "multi_processor_count": Attribute.PROCESSORS,
    "l2_cache_size_bytes": Attribute.L2_CACHE,
}


class _Launch(ctypes.Structure):
    """What `cuda.ll` launches with."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
        ("get_context", ctypes.c_void_p),
        ("set_context", ctypes.c_void_p),
        ("floats", ctypes.c_void_p),
        ("arguments", ctypes.c_int32),
        ("float_count", ctypes.c_int32),
        ("places", ctypes.c_int32 * 7),
        ("limits", ctypes.c_int32 * 7),
        ("threads", ctypes.c_int32),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("map_count", ctypes.c_int32),
        ("maps", ctypes.c_void_p),
        ("encode", ctypes.c_void_p),
    )
    keep_alive: object


@dataclass(slots=True)
class _Program:
    """A loaded program, and how many launches have a kernel of it."""

    handle: int
    kernels: int = 0


@dataclass(slots=True)
class _OpenDevice:
    """A device with its context, and its pool of memory; 0 where it has none."""

    handle: int
    context: int
    pool: int
    streams: dict[int, int] = field(default_factory=dict)
    """All streams but the default one, which may be other libraries': how many threads work in each; one more for those
    that were created here."""
    lost: str = ""
    """Why nothing more can be done with the device."""


class _Capturing(threading.local):
    """What a thread has allocated while it captures a graph; None while it does not."""

    addresses: list[int] | None = None


@once
def _code() -> LoadedObject:
    text = Path(__file__).with_name("cuda.ll").read_text()
    return resident("launches on CUDA devices", lambda: text, text)


def new_launch(
    kernel: KernelRecord,
    function: int,
    context: int,
    functions: Sequence[int],
    limits: Sequence[int],
    threads: int,
    device_id: int,
    encode: int = 0,
) -> ctypes.Structure:
    """What `cuda.ll` launches a kernel with: the driver's handle of it, and its context.

    `functions` are the addresses of cuLaunchKernel, cuCtxGetCurrent and cuCtxSetCurrent; `limits` the most blocks and
    threads along each axis and bytes of dynamic shared memory, `threads` the most in a block.
    """
    floats, maps = ([place for place, kind in enumerate(kernel.kinds) if kind == letter] for letter in "ft")
    places = (ctypes.c_int32 * max(1, len(floats)))(*floats)
    map_places = (ctypes.c_int32 * max(1, len(maps)))(*maps)
    launch = _Launch(
        _code().symbol("oneir_cuda_launch"),
        function,
        context,
        *functions,
        ctypes.addressof(places),
        len(kernel.kinds),
        len(floats),
        (ctypes.c_int32 * 7)(*map(kernel.place_of, (*AXES, _DYNAMIC_SHARED))),
        (ctypes.c_int32 * 7)(*limits),
        threads,
        Cuda.device_type,
        device_id,
        len(maps),
        ctypes.addressof(map_places),
        encode,
    )
    launch.keep_alive = places, map_places
    return launch


class Cuda(Driver):
    """All GPUs that a driver's library shows, in its order (CUDA_VISIBLE_DEVICES chooses)."""

    device_type: ClassVar[int] = 2
    name: ClassVar[str] = "cuda"
    default_stream: ClassVar[int] = 1
    requirement: ClassVar[str] = (
        "no GPU of NVIDIA's was found; install its driver, whose library is libcuda.so.1, and see that nvidia-smi "
        "lists the GPU"
    )

    def __init__(self, libraries: tuple[str, ...] = ("libcuda.so.1", "nvcuda.dll")) -> None:
        super().__init__()
        self._libraries = libraries
        self._lock = new_lock()
        self._loaded: tuple[CudaApi | None, int, int] | None = None
        """The library, the number of devices, and the process that asked."""
        self._open: dict[int, _OpenDevice] = {}
        self._programs: dict[tuple[int, bytes], _Program] = {}
        """By device and text."""
        self._capturing = _Capturing()
        self._in_graphs: dict[tuple[int, int], bool] = {}
        """Memory that kernels of a graph use, by device and address: whether it has been given back meanwhile."""

    # -- devices --

    def count(self) -> int:
        with self._lock:
            if self._loaded is None:
                self._loaded = (*self._found(), os.getpid())
            return self._loaded[1]

    def _found(self) -> tuple[CudaApi | None, int]:
        for name in self._libraries:
            try:
                api = CudaApi(name)
            except OSError:
                continue
            count = ctypes.c_int32()
            if api.cuInit(0) == SUCCESS and api.cuDeviceGetCount(ctypes.byref(count)) == SUCCESS:
                return api, count.value
        return None, 0

    @property
    def api(self) -> CudaApi:
        self.count()
        assert self._loaded is not None
        api, _, process = self._loaded
        if api is None:
            raise DeviceError(f"{self.name} cannot be used: {self.requirement}")
        if process != os.getpid():
            raise DeviceError(
                f"{self.name} cannot be used in a child of `fork` if its parent has used it; start the process by "
                'multiprocessing.get_context("spawn")'
            )
        return api

    def _is_forked(self) -> bool:
        """Whether this process is a child of the one that opened the devices, in which nothing of them works."""
        return self._loaded is not None and self._loaded[2] != os.getpid()

    def attribute(self, device_id: int, name: str) -> Any:
        api, handle = self.api, self._handle(device_id)
        if name in _SIMPLE:
            return self._fact(handle, _SIMPLE[name])
        if name == "max_thread_dimensions":
            return [self._fact(handle, number) for number in Attribute.BLOCK]
        if name == "compute_version":
            return f"{self._fact(handle, Attribute.MAJOR)}.{self._fact(handle, Attribute.MINOR)}"
        if name == "device_name":
            text = ctypes.create_string_buffer(256)
            return text.value.decode() if api.cuDeviceGetName(text, 256, handle) == SUCCESS else None
        if name in ("api_version", "driver_version"):
            version = ctypes.c_int32()
            api.cuDriverGetVersion(ctypes.byref(version))
            return version.value if name == "api_version" else f"{version.value // 1000}.{version.value % 1000 // 10}"
        size = ctypes.c_size_t()
        if name == "total_global_memory":
            return size.value if api.cuDeviceTotalMem_v2(ctypes.byref(size), handle) == SUCCESS else None
        if name == "available_global_memory":
            with self.inside(device_id):
                code = api.cuMemGetInfo_v2(ctypes.byref(size), ctypes.byref(ctypes.c_size_t()))
                self.check(device_id, code, "asking for its free memory")
            return size.value
        return None

    @property
    def has_graphs(self) -> bool:
        """Whether launches can be captured."""
        return self.api.has_graphs

    def _handle(self, device_id: int) -> int:
        handle = ctypes.c_int32()
        self.check(device_id, self.api.cuDeviceGet(ctypes.byref(handle), device_id), "looking for it")
        return handle.value

    def _fact(self, handle: int, number: int) -> int | None:
        value = ctypes.c_int32()
        return value.value if self.api.cuDeviceGetAttribute(ctypes.byref(value), number, handle) == SUCCESS else None

    def _device(self, device_id: int) -> _OpenDevice:
        """A device, opened when it is first used; `DeviceError` once it is lost."""
        api = self.api
        with self._lock:
            found = self._open.get(device_id)
            if found is None:
                handle, context = self._handle(device_id), ctypes.c_void_p()
                code = api.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle)
                self.check(device_id, code, "opening it")
                found = _OpenDevice(handle, context.value or 0, self._pool(handle))
                self._open[device_id] = found
        if found.lost:
            raise DeviceError(
                f"{self.name}:{device_id} cannot be used any more: {found.lost}. Its tensors are gone; "
                "start the process anew"
            )
        return found

    def _pool(self, handle: int) -> int:
        """The pool of a device's memory, told to keep what is given back; 0 for a device or driver without pools."""
        if not self.api.has_pools or not self._fact(handle, Attribute.POOLS):
            return 0
        pool, everything = ctypes.c_void_p(), ctypes.c_uint64(2**64 - 1)
        if self.api.cuDeviceGetDefaultMemPool(ctypes.byref(pool), handle) != SUCCESS:
            return 0
        self.api.cuMemPoolSetAttribute(pool, POOL_RELEASE_THRESHOLD, ctypes.byref(everything))
        return pool.value or 0

    @contextlib.contextmanager
    def inside(self, device_id: int) -> Iterator[_OpenDevice]:
        """A device, whose context is the thread's meanwhile. A thread that has none keeps it."""
        api, device, before = self.api, self._device(device_id), ctypes.c_void_p()
        api.cuCtxGetCurrent(ctypes.byref(before))
        if before.value != device.context:
            self.check(device_id, api.cuCtxSetCurrent(device.context), "entering its context")
        try:
            yield device
        finally:
            if before.value is not None and before.value != device.context:
                api.cuCtxSetCurrent(before.value)

    def check(self, device_id: int, code: int, what: str) -> None:
        """Raises the error of a code; after some of them, nothing of the device works any more."""
        if code == SUCCESS:
            return
        text = self.api.describe(code)
        device = self._open.get(device_id)
        if code in LOST and device is not None and not device.lost:
            device.lost = text
            self.forget_memory(device_id)
        if code in LOST:
            text += "; what was launched before may have failed, and the device's tensors are gone"
        raise DeviceError(f"{self.name}:{device_id}, {what}: {text}")

    # -- memory --

    def allocate(self, device_id: int, nbytes: int) -> int:
        address, capturing = super().allocate(device_id, nbytes), self._capturing.addresses
        if capturing is not None:
            capturing.append(address)
            self._in_graphs[device_id, address] = False
        return address

    def release(self, device_id: int, address: int) -> None:
        with self._lock:
            if (device_id, address) in self._in_graphs:
                self._in_graphs[device_id, address] = True
                return
        super().release(device_id, address)

    @contextlib.contextmanager
    def holding(self) -> Iterator[list[int]]:
        """Collects what the thread allocates meanwhile, which stays until `let_go`, whoever gives it back."""
        self._capturing.addresses = found = list[int]()
        try:
            yield found
        finally:
            self._capturing.addresses = None

    def let_go(self, device_id: int, addresses: Sequence[int]) -> None:
        """Ends what `holding` began: what has been given back meanwhile is given back now."""
        for address in addresses:
            if self._in_graphs.pop((device_id, address)):
                self.release(device_id, address)

    def alloc(self, device_id: int, nbytes: int) -> int | None:
        api, address, size = self.api, ctypes.c_uint64(), max(1, nbytes)
        with self.inside(device_id) as device:
            if device.pool:
                # What a graph uses is allocated beside it, not as a part of it.
                stream = 0 if self._capturing.addresses is not None else self.current_stream(device_id)
                code = api.cuMemAllocAsync(ctypes.byref(address), size, stream)
                if code == OUT_OF_MEMORY:  # what was given back may not be done yet, or be in pieces
                    self.check(device_id, api.cuCtxSynchronize(), "waiting for it")
                    api.cuMemPoolTrimTo(device.pool, 0)
                    code = api.cuMemAllocAsync(ctypes.byref(address), size, stream)
            else:
                code = api.cuMemAlloc_v2(ctypes.byref(address), size)
            if code == OUT_OF_MEMORY:
                return None
            self.check(device_id, code, f"allocating {nbytes} bytes")
        return address.value

    def free(self, device_id: int, address: int) -> None:
        if self._is_forked() or self._open[device_id].lost:
            return
        with contextlib.suppress(DeviceError), self.inside(device_id) as device:
            if not device.pool:
                self.check(device_id, self.api.cuMemFree_v2(address), "freeing memory")
                return
            for stream in list(device.streams):  # any of them may use it
                self.sync_streams(device_id, stream, 0)
            self.check(device_id, self.api.cuMemFreeAsync(address, None), "freeing memory")

    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        if nbytes:
            with self.inside(device_id):
                stream, what = self.current_stream(device_id), f"copying {nbytes} bytes"
                self.check(device_id, self.api.cuMemcpyAsync(target, source, nbytes, stream), what)
                self.check(device_id, self.api.cuStreamSynchronize(stream), what)

    # -- streams and events --

    def sync(self, device_id: int, stream: int | None = None) -> None:
        with self.inside(device_id):
            which = self.current_stream(device_id) if stream is None else stream
            self.check(device_id, self.api.cuStreamSynchronize(which), "waiting for it")

    def create_stream(self, device_id: int) -> int:
        stream = ctypes.c_void_p()
        with self.inside(device_id) as device:
            self.check(device_id, self.api.cuStreamCreate(ctypes.byref(stream), NON_BLOCKING), "creating a stream")
            assert stream.value is not None
            device.streams[stream.value] = 1
        return stream.value

    def free_stream(self, device_id: int, stream: int) -> None:
        with self.inside(device_id) as device:
            if stream not in device.streams:
                raise InvalidValue(f"{stream:#x} is no stream of cuda:{device_id} that create_raw_stream made")
            self.sync(device_id, stream)
            del device.streams[stream]
            drop_kept_memory(self.device_type, device_id)  # some may be the stream's
            self.check(device_id, self.api.cuStreamDestroy_v2(stream), "giving a stream back")

    def set_stream(self, device_id: int, stream: int) -> None:
        streams, before = self._device(device_id).streams, self.current_stream(device_id)
        super().set_stream(device_id, stream)
        with self._lock:
            if stream:
                streams[stream] = streams.get(stream, 0) + 1
            if before in streams:
                streams[before] -= 1
        if streams.get(before) == 0:  # another library's, which may destroy it now
            self.sync_streams(device_id, before, 0)
            del streams[before]

    def sync_streams(self, device_id: int, source: int, target: int) -> None:
        with self.inside(device_id):
            event = self._recorded(device_id, source)
            try:
                self.check(device_id, self.api.cuStreamWaitEvent(target, event, 0), "making a stream wait")
            finally:
                self.api.cuEventDestroy_v2(event)

    def _recorded(self, device_id: int, stream: int) -> int:
        event = ctypes.c_void_p()
        self.check(device_id, self.api.cuEventCreate(ctypes.byref(event), 0), "making an event")
        try:
            self.check(device_id, self.api.cuEventRecord(event, stream), "recording an event")
        except DeviceError:
            self.api.cuEventDestroy_v2(event)
            raise
        assert event.value is not None
        return event.value

    def record_event(self, device_id: int) -> int:
        with self.inside(device_id):
            return self._recorded(device_id, self.current_stream(device_id))

    def elapsed(self, device_id: int, begin: int, end: int) -> float:
        milliseconds = ctypes.c_float()
        with self.inside(device_id):
            self.check(device_id, self.api.cuEventSynchronize(end), "waiting for an event")
            code = self.api.cuEventElapsedTime(ctypes.byref(milliseconds), begin, end)
            self.check(device_id, code, "asking for the time between events")
        return milliseconds.value / 1e3

    def free_event(self, device_id: int, event: int) -> None:
        with self.inside(device_id):
            self.check(device_id, self.api.cuEventDestroy_v2(event), "giving an event back")

    # -- kernels --

    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        key = (device_id, kernel.digest)
        if "t" in kernel.kinds and not self.api.has_tensor_maps:
            raise DeviceError(
                f"`{kernel.name}` copies tiles of tensors, for which the driver of {self.name}:{device_id} is too old; "
                "install one for CUDA 12.0 or newer"
            )
        with self.inside(device_id) as device:
            with self._lock:
                program = self._programs.get(key)
                if program is None:
                    program = self._programs[key] = _Program(self._program(device_id, kernel.source))
                program.kernels += 1
            try:
                return self._launch(device_id, device, program, kernel)
            except DeviceError:
                self._leave(device_id, kernel)
                raise

    def _launch(self, device_id: int, device: _OpenDevice, program: _Program, kernel: KernelRecord) -> ctypes.Structure:
        api, function = self.api, ctypes.c_void_p()
        code = api.cuModuleGetFunction(ctypes.byref(function), program.handle, kernel.name.encode())
        self.check(device_id, code, f"looking for the kernel `{kernel.name}`")
        shared = self._fact(device.handle, Attribute.SHARED_OPTIN) or self._fact(device.handle, Attribute.SHARED) or 0
        shared -= self._fact_of(function, FunctionAttribute.STATIC_SHARED)
        if _DYNAMIC_SHARED in kernel.extents:  # without this, a block gets 48 KiB
            code = api.cuFuncSetAttribute(function, FunctionAttribute.MOST_DYNAMIC_SHARED, shared)
            self.check(device_id, code, f"giving `{kernel.name}` {shared} bytes of shared memory")
        threads = self._fact_of(function, FunctionAttribute.THREADS)
        sizes = [self._fact(device.handle, number) or 1 for number in (*Attribute.GRID, *Attribute.BLOCK)]
        functions = [api.address(name) for name in ("cuLaunchKernel", "cuCtxGetCurrent", "cuCtxSetCurrent")]
        encode = api.address("cuTensorMapEncodeTiled") if "t" in kernel.kinds else 0
        return new_launch(
            kernel, function.value or 0, device.context, functions, [*sizes, shared], threads, device_id, encode
        )

    def _fact_of(self, function: ctypes.c_void_p, number: int) -> int:
        value = ctypes.c_int32()
        self.api.cuFuncGetAttribute(ctypes.byref(value), number, function)
        return value.value

    def _program(self, device_id: int, source: str) -> int:
        image, module = compile_for(source, self.attribute(device_id, "compute_version")), ctypes.c_void_p()
        code = self.api.cuModuleLoadData(ctypes.byref(module), image + b"\0")
        if code in _NOT_FOR_DEVICE:
            raise CompileError(
                f"cuda:{device_id} ({self.attribute(device_id, 'device_name')}, compute capability "
                f"{self.attribute(device_id, 'compute_version')}) does not take the compiled program: "
                f"{self.api.describe(code)}"
            )
        self.check(device_id, code, "loading a program")
        assert module.value is not None
        return module.value

    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        self._leave(device_id, kernel)

    def _leave(self, device_id: int, kernel: KernelRecord) -> None:
        """Takes note that a kernel of a program is not launched any more; the program goes with the last one."""
        key = (device_id, kernel.digest)
        with self._lock:
            program = self._programs[key]
            program.kernels -= 1
            if program.kernels:
                return
            del self._programs[key]
        if self._is_forked() or self._open[device_id].lost:
            return
        with contextlib.suppress(DeviceError), self.inside(device_id):
            self.check(device_id, self.api.cuCtxSynchronize(), "waiting for it")  # a kernel may still run
            self.check(device_id, self.api.cuModuleUnload(program.handle), "unloading a program")

    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        assert isinstance(launch, _Launch)
        if code != _OVER_A_LIMIT:
            with contextlib.suppress(DeviceError):
                self.check(device_id, code, "launching")  # which notes that the device is lost
            return self.api.describe(code)
        for name, size, limit in zip(_SIZES, sizes, launch.limits, strict=True):
            if not 0 <= size <= limit:
                return f"{size} {name} are over the limit of {limit}"
        threads = math.prod(sizes[3:6])
        limit = self.attribute(device_id, "max_threads_per_block")
        return f"{threads} threads of a block are over the limit of {launch.threads} for this kernel (any: {limit})"


register_driver(Cuda())
