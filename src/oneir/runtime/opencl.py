"""OpenCL devices: found through the system's ICD loader, with memory that host and device address alike (SVM).

A stream is an in-order queue: one that a device has, in which its kernels and copies run one after the other, and those
that are created beside it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .driver import AXES, Driver, KernelRecord, drop_kept_memory, register_driver
from .error import CompileError, DeviceError, InvalidValue
from .llvm import LoadedObject
from .once import new_lock, once
from .resident import resident

_SUCCESS = 0
_DEVICE_TYPE_ALL = 0xFFFFFFFF
_READ_WRITE = 1
_PROFILING = 2
_COMMAND_END = 0x1283
_BUILD_LOG = 0x1183
_KERNEL_WORK_GROUP_SIZE = 0x11B0
_MEMORY_LEFT_ERRORS = (-4, -5, -6, -61)

_ERRORS = {
    -4: "the device has not enough memory (CL_MEM_OBJECT_ALLOCATION_FAILURE)",
    -5: "the device has not enough resources (CL_OUT_OF_RESOURCES)",
    -6: "the host has not enough memory (CL_OUT_OF_HOST_MEMORY)",
    -38: "an argument's memory is not the device's (CL_INVALID_MEM_OBJECT)",
    -48: "the kernel is not valid (CL_INVALID_KERNEL)",
    -50: "an argument's memory is not the device's (CL_INVALID_ARG_VALUE)",
    -52: "an argument is missing (CL_INVALID_KERNEL_ARGS)",
    -54: "a block has more threads than the device allows (CL_INVALID_WORK_GROUP_SIZE)",
    -55: "a dimension of the block is larger than the device allows (CL_INVALID_WORK_ITEM_SIZE)",
    -63: "the grid is too large (CL_INVALID_GLOBAL_WORK_SIZE)",
}

# Properties of `Device`, the numbers by which OpenCL asks for them, and the types of what it answers.
_ATTRIBUTES: dict[str, tuple[int, Any]] = {
    "device_name": (0x102B, str),
    "compute_version": (0x102F, str),
    "vendor": (0x102C, str),
    "max_threads_per_block": (0x1004, ctypes.c_size_t),
    "max_shared_memory_per_block": (0x1023, ctypes.c_uint64),
    "max_clock_rate": (0x100C, ctypes.c_uint32),
    "multi_processor_count": (0x1002, ctypes.c_uint32),
    "max_thread_dimensions": (0x1005, list),
    "total_global_memory": (0x101F, ctypes.c_uint64),
    "l2_cache_size_bytes": (0x101E, ctypes.c_uint64),
    "extensions": (0x1030, str),
    "svm_capabilities": (0x1053, ctypes.c_uint64),
}


class _Launch(ctypes.Structure):
    """What `opencl.ll` launches with."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("queue", ctypes.c_void_p),
        ("set_argument", ctypes.c_void_p),
        ("set_pointer", ctypes.c_void_p),
        ("enqueue", ctypes.c_void_p),
        ("kinds", ctypes.c_char_p),
        ("arguments", ctypes.c_int32),
        ("lock", ctypes.c_int32),
        ("extents", ctypes.c_int32 * 6),
        ("device", ctypes.c_int32),
    )


_KINDS = {"p": 0, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "d": 8, "f": 68}


@dataclass(frozen=True, slots=True)
class _OpenDevice:
    """A device with its context, its default queue, and those that were created beside it."""

    handle: int
    context: int
    queue: int
    queues: set[int]


@dataclass(slots=True)
class _Program:
    """A compiled program, and how many launches have a kernel of it."""

    handle: int
    kernels: int = 0


@once
def _code() -> LoadedObject:
    text = Path(__file__).with_name("opencl.ll").read_text()
    return resident("launches on OpenCL devices", lambda: text, text)


@once
def _library() -> ctypes.CDLL | None:
    """The ICD loader; None where the system has none."""
    for name in ("libOpenCL.so.1", ctypes.util.find_library("OpenCL"), "OpenCL.dll"):
        if name:
            try:
                return _declared(ctypes.CDLL(name))
            except OSError:
                continue
    return None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions."""
    pointer, uint, size, number = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_int32
    wide = ctypes.c_uint64
    functions: dict[str, tuple[Any, list[Any]]] = {
        "clGetPlatformIDs": (number, [uint, pointer, pointer]),
        "clGetDeviceIDs": (number, [pointer, wide, uint, pointer, pointer]),
        "clGetDeviceInfo": (number, [pointer, uint, size, pointer, pointer]),
        "clCreateContext": (pointer, [pointer, uint, pointer, pointer, pointer, pointer]),
        "clCreateCommandQueue": (pointer, [pointer, pointer, wide, pointer]),
        "clSVMAlloc": (pointer, [pointer, wide, size, uint]),
        "clReleaseCommandQueue": (number, [pointer]),
        "clEnqueueMarkerWithWaitList": (number, [pointer, uint, pointer, pointer]),
        "clEnqueueBarrierWithWaitList": (number, [pointer, uint, pointer, pointer]),
        "clWaitForEvents": (number, [uint, pointer]),
        "clGetEventProfilingInfo": (number, [pointer, uint, size, pointer, pointer]),
        "clReleaseEvent": (number, [pointer]),
        "clEnqueueSVMFree": (number, [pointer, uint, pointer, pointer, pointer, uint, pointer, pointer]),
        "clEnqueueSVMMemcpy": (number, [pointer, uint, pointer, pointer, size, uint, pointer, pointer]),
        "clFlush": (number, [pointer]),
        "clFinish": (number, [pointer]),
        "clCreateProgramWithSource": (pointer, [pointer, uint, pointer, pointer, pointer]),
        "clBuildProgram": (number, [pointer, uint, pointer, ctypes.c_char_p, pointer, pointer]),
        "clGetProgramBuildInfo": (number, [pointer, pointer, uint, size, pointer, pointer]),
        "clReleaseProgram": (number, [pointer]),
        "clCreateKernel": (pointer, [pointer, ctypes.c_char_p, pointer]),
        "clReleaseKernel": (number, [pointer]),
        "clGetKernelWorkGroupInfo": (number, [pointer, pointer, uint, size, pointer, pointer]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _checked(code: int, what: str) -> None:
    if code != _SUCCESS:
        raise DeviceError(f"{what}: {_ERRORS.get(code, f'OpenCL error {code}')}")


class OpenCL(Driver):
    """All OpenCL devices with shared virtual memory: GPUs first, then others, in the order of the platforms."""

    device_type: ClassVar[int] = 4
    name: ClassVar[str] = "opencl"
    not_shared: ClassVar[str] = "DLPack means cl_mem objects there, and memory here is shared virtual memory (SVM)"
    requirement: ClassVar[str] = (
        "no OpenCL device with shared virtual memory was found; install the driver of your GPU, or PoCL to use the "
        "processor (Debian: apt-get install pocl-opencl-icd ocl-icd-libopencl1)"
    )

    def __init__(self) -> None:
        super().__init__()
        self._lock = new_lock()
        self._open: dict[int, _OpenDevice] = {}
        self._programs: dict[tuple[int, bytes], _Program] = {}
        """By device and text."""

    def count(self) -> int:
        return len(_devices())

    def attribute(self, device_id: int, name: str) -> Any:
        if name == "warp_size":
            return 1  # what a thread may exchange with its neighbours without a barrier is its own
        if name == "available_global_memory":
            total = self.attribute(device_id, "total_global_memory")
            return total - self.memory_in_use(device_id)
        if name not in _ATTRIBUTES:
            return None
        number, kind = _ATTRIBUTES[name]
        return _device_info(_devices()[device_id], number, kind)

    # -- memory --

    def _device(self, device_id: int) -> _OpenDevice:
        """A device, with its context and queue made when it is first used."""
        with self._lock:
            found = self._open.get(device_id)
            if found is None:
                library, handle, code = _loaded(), _devices()[device_id], ctypes.c_int32()
                handles = (ctypes.c_void_p * 1)(handle)
                context = library.clCreateContext(None, 1, handles, None, None, ctypes.byref(code))
                _checked(code.value, f"opencl:{device_id} cannot be opened")
                queue = _new_queue(context, handle, device_id)
                found = self._open[device_id] = _OpenDevice(handle, context, queue, set())
            return found

    def _queue(self, device_id: int, stream: int | None = None) -> int:
        """The queue of a stream; None is the one that this thread has chosen."""
        stream = self.current_stream(device_id) if stream is None else stream
        return stream or self._device(device_id).queue

    def alloc(self, device_id: int, nbytes: int) -> int | None:
        return _loaded().clSVMAlloc(self._device(device_id).context, _READ_WRITE, max(1, nbytes), 0)

    def free(self, device_id: int, address: int) -> None:
        pointers, device = (ctypes.c_void_p * 1)(address), self._device(device_id)
        for queue in list(device.queues):  # other streams may use it
            self.sync_streams(device_id, queue, 0)
        _loaded().clEnqueueSVMFree(device.queue, 1, pointers, None, None, 0, None, None)

    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        if nbytes:
            code = _loaded().clEnqueueSVMMemcpy(self._queue(device_id), 1, target, source, nbytes, 0, None, None)
            _checked(code, f"{nbytes} bytes cannot be copied by opencl:{device_id}")

    # -- streams and events --

    def sync(self, device_id: int, stream: int | None = None) -> None:
        _checked(_loaded().clFinish(self._queue(device_id, stream)), f"waiting for opencl:{device_id}")

    def create_stream(self, device_id: int) -> int:
        device = self._device(device_id)
        queue = _new_queue(device.context, device.handle, device_id)
        device.queues.add(queue)
        return queue

    def free_stream(self, device_id: int, stream: int) -> None:
        queues = self._device(device_id).queues
        if stream not in queues:
            raise InvalidValue(f"{stream:#x} is no stream of opencl:{device_id} that create_raw_stream made")
        self.sync(device_id, stream)
        queues.discard(stream)
        drop_kept_memory(self.device_type, device_id)  # some may be the stream's
        _loaded().clReleaseCommandQueue(stream)

    def set_stream(self, device_id: int, stream: int) -> None:
        if stream and stream not in self._device(device_id).queues:
            raise InvalidValue(f"{stream:#x} is no stream of opencl:{device_id} that create_raw_stream made")
        super().set_stream(device_id, stream)

    def sync_streams(self, device_id: int, source: int, target: int) -> None:
        event = ctypes.c_void_p(self._marker(device_id, source))
        queue = self._queue(device_id, target)
        code = _loaded().clEnqueueBarrierWithWaitList(queue, 1, ctypes.byref(event), None)
        _loaded().clReleaseEvent(event)
        _checked(code, f"a stream of opencl:{device_id} cannot wait for another")

    def _marker(self, device_id: int, stream: int | None) -> int:
        """An event that is complete when a stream has done what it has been given."""
        event, queue = ctypes.c_void_p(), self._queue(device_id, stream)
        _checked(
            _loaded().clEnqueueMarkerWithWaitList(queue, 0, None, ctypes.byref(event)),
            f"opencl:{device_id} records no event",
        )
        _loaded().clFlush(queue)
        assert event.value is not None
        return event.value

    def record_event(self, device_id: int) -> int:
        return self._marker(device_id, None)

    def elapsed(self, device_id: int, begin: int, end: int) -> float:
        library, times = _loaded(), (ctypes.c_uint64 * 2)()
        _checked(library.clWaitForEvents(2, (ctypes.c_void_p * 2)(begin, end)), f"waiting for opencl:{device_id}")
        for place, event in enumerate((begin, end)):
            where = ctypes.byref(times, 8 * place)
            code = library.clGetEventProfilingInfo(event, _COMMAND_END, 8, where, None)
            _checked(code, f"opencl:{device_id} does not tell the time of an event")
        return (times[1] - times[0]) / 1e9

    def free_event(self, device_id: int, event: int) -> None:
        _loaded().clReleaseEvent(event)

    # -- kernels --

    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        library, device, code = _loaded(), self._device(device_id), ctypes.c_int32()
        key = (device_id, kernel.digest)
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                program = self._programs[key] = _Program(self._compiled(device_id, kernel.source))
            program.kernels += 1
        handle = library.clCreateKernel(program.handle, kernel.name.encode(), ctypes.byref(code))
        _checked(code.value, f"the kernel `{kernel.name}` cannot be made for opencl:{device_id}")
        return _Launch(
            _code().symbol("oneir_opencl_launch"),
            handle,
            device.queue,
            *(ctypes.cast(getattr(library, f), ctypes.c_void_p).value for f in _LAUNCH_FUNCTIONS),
            bytes(_KINDS[letter] for letter in kernel.kinds) + b"\0",
            len(kernel.kinds),
            0,
            (ctypes.c_int32 * 6)(*map(kernel.place_of, AXES)),
            device_id,
        )

    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        assert isinstance(launch, _Launch)
        library, key = _loaded(), (device_id, kernel.digest)
        library.clReleaseKernel(launch.kernel)
        with self._lock:
            program = self._programs[key]
            program.kernels -= 1
            if not program.kernels:
                library.clReleaseProgram(self._programs.pop(key).handle)

    def _compiled(self, device_id: int, source: str) -> int:
        library, device, code = _loaded(), self._device(device_id), ctypes.c_int32()
        text = ctypes.c_char_p(source.encode())
        program = library.clCreateProgramWithSource(device.context, 1, ctypes.byref(text), None, ctypes.byref(code))
        _checked(code.value, f"opencl:{device_id} takes no program")
        handles = (ctypes.c_void_p * 1)(device.handle)
        if library.clBuildProgram(program, 1, handles, b"-cl-std=CL1.2", None, None) != _SUCCESS:
            size = ctypes.c_size_t()
            library.clGetProgramBuildInfo(program, device.handle, _BUILD_LOG, 0, None, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            library.clGetProgramBuildInfo(program, device.handle, _BUILD_LOG, size.value, log, None)
            raise CompileError(f"the compiler of opencl:{device_id} does not take the program:\n{log.value.decode()}")
        return program

    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        text = _ERRORS.get(code, f"OpenCL error {code}")
        if code in (-54, -55):
            limit = self.attribute(device_id, "max_threads_per_block")
            shape = "×".join(map(str, self.attribute(device_id, "max_thread_dimensions")))
            text += f"; a block has at most {limit} threads, and at most {shape} of them in its dimensions"
        if code in _MEMORY_LEFT_ERRORS:
            limit = self.attribute(device_id, "max_shared_memory_per_block")
            text += f"; a block has at most {limit} bytes of shared memory"
        return text


_LAUNCH_FUNCTIONS = ("clSetKernelArg", "clSetKernelArgSVMPointer", "clEnqueueNDRangeKernel")


def _new_queue(context: int, handle: int, device_id: int) -> int:
    """An in-order queue whose events tell times."""
    code = ctypes.c_int32()
    queue = _loaded().clCreateCommandQueue(context, handle, _PROFILING, ctypes.byref(code))
    _checked(code.value, f"opencl:{device_id} has no command queue")
    return queue


def _loaded() -> ctypes.CDLL:
    library = _library()
    if library is None:
        raise DeviceError(OpenCL.requirement)
    return library


@once
def _devices() -> list[int]:
    """The handles of all devices that can be used, GPUs first."""
    library = _library()
    if library is None:
        return []
    number = ctypes.c_uint32()
    if library.clGetPlatformIDs(0, None, ctypes.byref(number)) != _SUCCESS or not number.value:
        return []
    platforms = (ctypes.c_void_p * number.value)()
    library.clGetPlatformIDs(number.value, platforms, None)
    found: list[int] = []
    for platform in platforms:
        if library.clGetDeviceIDs(platform, _DEVICE_TYPE_ALL, 0, None, ctypes.byref(number)) == _SUCCESS:
            handles = (ctypes.c_void_p * number.value)()
            library.clGetDeviceIDs(platform, _DEVICE_TYPE_ALL, number.value, handles, None)
            found += [handle for handle in handles if handle is not None]
    usable = [h for h in found if _device_info(h, *_ATTRIBUTES["svm_capabilities"])]
    is_gpu = {h: bool((_device_info(h, 0x1000, ctypes.c_uint64) or 0) & 4) for h in usable}
    return sorted(usable, key=lambda handle: not is_gpu[handle])


def _device_info(handle: int, number: int, kind: Any) -> Any:
    """What a device answers to a question; None for one that it does not know."""
    library, size = _loaded(), ctypes.c_size_t()
    if library.clGetDeviceInfo(handle, number, 0, None, ctypes.byref(size)) != _SUCCESS:
        return None
    data = ctypes.create_string_buffer(max(1, size.value))
    if library.clGetDeviceInfo(handle, number, size.value, data, None) != _SUCCESS:
        return None
    if kind is str:
        return data.value.decode(errors="replace").strip()
    if kind is list:
        return list((ctypes.c_size_t * (size.value // 8)).from_buffer(data))
    return kind.from_buffer(data).value


register_driver(OpenCL())
