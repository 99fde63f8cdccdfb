"""WebGPU devices, through the `wgpu` package (wgpu-py) over the system's drivers of Vulkan, Metal or Direct3D.

WebGPU has buffers and no addresses. What the runtime takes for addresses are numbers, far from any address of the host,
out of which each buffer has a range; a launch finds the buffer, and passes to the kernel at which element of the array
that it binds the tensor begins.

A launch is Python, and costs as much (about 0.3 ms): this is where programs for browsers are tried.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import re
import struct
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from .driver import AXES, Driver, KernelRecord, register_driver
from .error import CompileError, DeviceError
from .launch import raise_launch
from .once import new_lock, once
from .packed import Value
from .python_launch import forget_launch, launch_in_python

_FIRST_ADDRESS = 1 << 60
_GAP = 256
"""What lies between the ranges of two buffers, at least; buffers begin at multiples of it."""
_COMPUTE = 4
"""The stage of shaders that bindings are visible in."""
_UNIFORM = 0x40
"""The usage of a buffer of numbers."""
_MEMORY = 0x80 | 0x4 | 0x8
"""The usage of memory: storage, and copies from and to it."""
_BINDING = re.compile(r"@group\(0\) @binding\(\d+\) var<storage, (read|read_write)> \w+: array<.*>; // (\w+)\n")
"""How a tensor is declared, with its dtype; see `codegen/c_source/wgsl_emitter.py`."""
_LIMITS = {
    "max_threads_per_block": "max-compute-invocations-per-workgroup",
    "max_shared_memory_per_block": "max-compute-workgroup-storage-size",
}
_TOO_MANY_BLOCKS, _TOO_LONG = 1, 2


@dataclass
class _OpenDevice:
    """A device, and what was made for it."""

    handle: Any
    word: Any
    """A buffer that is read to wait for all work that was given before."""
    modules: MutableMapping[bytes, Any] = field(default_factory=WeakValueDictionary)
    """By digest of the text: compiled programs, which go with their last kernel."""


@dataclass(frozen=True)
class _Buffer:
    """Memory of a device."""

    address: int
    nbytes: int
    device_id: int
    handle: Any


class WebGPU(Driver):
    """All adapters that wgpu finds, but for those that are reached through OpenGL."""

    device_type: ClassVar[int] = 15
    name: ClassVar[str] = "webgpu"
    requirement: ClassVar[str] = (
        "no WebGPU device was found; install wgpu (pip install 'oneir[webgpu]') and the driver of your GPU, "
        "or lavapipe to use the processor (Debian: apt-get install mesa-vulkan-drivers libvulkan1)"
    )

    def __init__(self) -> None:
        super().__init__()
        self._lock = new_lock()
        self._open: dict[int, _OpenDevice] = {}
        self._addresses: list[int] = []
        """The addresses of all buffers, in order."""
        self._buffers: list[_Buffer] = []
        self._next = _FIRST_ADDRESS

    def count(self) -> int:
        return len(_adapters())

    def attribute(self, device_id: int, name: str) -> Any:
        adapter = _adapters()[device_id]
        match name:
            case "warp_size":
                return 1  # subgroups are no part of what programs rely on
            case "device_name":
                return adapter.info["device"]
            case "compute_version":
                return f"{adapter.info['backend_type']} {adapter.info['description']}"
            case "max_thread_dimensions":
                return [adapter.limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz"]
        return adapter.limits[_LIMITS[name]] if name in _LIMITS else None

    def _device(self, device_id: int) -> _OpenDevice:
        """A device, opened when it is first used."""
        with self._lock:
            found = self._open.get(device_id)
            if found is None:
                adapter = _adapters()[device_id]
                features = [name for name in ("shader-f16",) if name in adapter.features]
                names = ("max-storage-buffer-binding-size", "max-buffer-size", *_LIMITS.values())
                limits = {name: adapter.limits[name] for name in names}
                handle = adapter.request_device_sync(required_features=features, required_limits=limits)
                word = handle.create_buffer(size=4, usage=_MEMORY)
                found = self._open[device_id] = _OpenDevice(handle, word)
            return found

    # -- memory --

    def alloc(self, device_id: int, nbytes: int) -> int | None:
        import wgpu

        device, size = self._device(device_id).handle, max(4, -(-nbytes // 4) * 4)
        most = min(device.limits["max-storage-buffer-binding-size"], device.limits["max-buffer-size"])
        if size > most:
            raise DeviceError(
                f"webgpu:{device_id} has no memory for {nbytes} bytes: a buffer has at most {most} bytes there; "
                "use smaller tensors"
            )
        try:
            handle = device.create_buffer(size=size, usage=_MEMORY)
        except wgpu.GPUError:
            return None
        with self._lock:
            address = self._next
            self._next += -(-size // _GAP) * _GAP + _GAP
            self._addresses.append(address)
            self._buffers.append(_Buffer(address, size, device_id, handle))
        return address

    def free(self, device_id: int, address: int) -> None:
        with self._lock:
            place = bisect.bisect_left(self._addresses, address)
            del self._addresses[place], self._buffers[place]

    def _find(self, address: int) -> tuple[_Buffer, int] | None:
        """The buffer that an address is in, and the offset there; None for an address of the host."""
        if address < _FIRST_ADDRESS:
            return None
        with self._lock:
            place = bisect.bisect_right(self._addresses, address) - 1
            buffer = self._buffers[place] if place >= 0 else None
        if buffer is None or address > buffer.address + buffer.nbytes:
            raise DeviceError("memory of a WebGPU device is used that was given back, or that is none of it")
        return buffer, address - buffer.address

    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        if not nbytes:
            return
        data = self._read(source, nbytes)
        found = self._find(target)
        if found is None:
            ctypes.memmove(target, data, nbytes)
        else:
            self._write(*found, data)

    def _read(self, address: int, nbytes: int) -> bytes:
        """The bytes at an address, once all that was launched is done."""
        found = self._find(address)
        if found is None:
            return ctypes.string_at(address, nbytes)
        buffer, offset = found
        queue, skipped = self._device(buffer.device_id).handle.queue, offset % 4
        size = -(-(skipped + nbytes) // 4) * 4
        return bytes(queue.read_buffer(buffer.handle, offset - skipped, size)[skipped : skipped + nbytes])

    def _write(self, buffer: _Buffer, offset: int, data: bytes) -> None:
        """Writes bytes at an offset; of words that are not written whole, the rest is kept."""
        head, tail = offset % 4, -(offset + len(data)) % 4
        if head:
            data = self._read(buffer.address + offset - head, head) + data
        if tail:
            data = data + self._read(buffer.address + offset + len(data) - head, tail)
        self._device(buffer.device_id).handle.queue.write_buffer(buffer.handle, offset - head, data)

    def sync(self, device_id: int, stream: int | None = None) -> None:
        device = self._device(device_id)
        device.handle.queue.read_buffer(device.word)

    # -- kernels --

    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        pipeline = _Pipeline(self._device(device_id).handle, kernel, self._module(device_id, kernel))
        count = len(kernel.kinds) + len(kernel.extents)

        def launch(address: int, values: int) -> None:
            self._launch(device_id, address, kernel, pipeline, (Value * count).from_address(values))

        return launch_in_python(launch)

    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        forget_launch(launch)

    def _module(self, device_id: int, kernel: KernelRecord) -> Any:
        """A compiled program, which its kernels share."""
        import wgpu

        device = self._device(device_id)
        found = device.modules.get(kernel.digest)
        if found is None:
            try:
                found = device.handle.create_shader_module(code=kernel.source)
            except wgpu.GPUError as error:
                raise CompileError(f"the compiler of webgpu:{device_id} does not take the program:\n{error}") from None
            device.modules[kernel.digest] = found
        return found

    def _launch(self, device_id: int, address: int, kernel: KernelRecord, pipeline: _Pipeline, values: Any) -> None:
        """Gives a kernel to the device, with the values that host code passes."""
        count = len(kernel.kinds)
        extents = {name: values[count + i].i for i, name in enumerate(kernel.extents)}
        sizes = [extents.get(axis, 1) for axis in AXES]
        if 0 in sizes:
            return
        limits = self._device(device_id).handle.limits
        if max(sizes[:3]) > limits["max-compute-workgroups-per-dimension"]:
            raise_launch(ctypes.c_void_p(address), _TOO_MANY_BLOCKS, *sizes, 0)
        tensors: list[tuple[_Buffer, int]] = []
        numbers: list[bytes] = []
        for kind, value in zip(kernel.kinds, values, strict=False):
            if kind == "p":
                found = self._find(value.p or 0)
                if found is None:
                    raise DeviceError(f"`{kernel.name}` is passed memory that is not that of webgpu:{device_id}")
                tensors.append(found)
            elif kind == "f":
                numbers.append(struct.pack("<f", value.f))
            else:
                number = value.i
                if not -(1 << 31) <= number < 1 << 32 or (kind == "q" and number >= 1 << 31):
                    raise_launch(ctypes.c_void_p(address), _TOO_LONG, *sizes, 0)
                numbers.append(struct.pack("<I", number & 0xFFFFFFFF))
        pipeline.launch(tensors, numbers, sizes[:3])

    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        limits = self._device(device_id).handle.limits
        if code == _TOO_MANY_BLOCKS:
            most = limits["max-compute-workgroups-per-dimension"]
            return f"a grid has at most {most} blocks in each dimension; give each block more to do"
        return "a number that it takes needs more than the 32 bits that WebGPU's integers have"


class _Pipeline:
    """A kernel that is ready to be launched.

    No launch may bind a buffer once to read and once to write, as it has to for tensors of one arena. Where it would,
    a variant of the kernel is used to which all of its tensors are writable.
    """

    def __init__(self, device: Any, kernel: KernelRecord, module: Any):
        self.device, self.kernel = device, kernel
        self.module = module  # which lives as long as one of its kernels
        above = kernel.source[: kernel.source.index(f"fn {kernel.name}(")]
        tensors = kernel.kinds.count("p")
        bindings = _BINDING.findall(above)[-tensors:] if tensors else []
        self.accesses = [access for access, _ in bindings]
        self.item_bytes = [int(dtype.strip("boluintfa") or 8) // 8 for _, dtype in bindings]
        self.alignment = device.limits["min-storage-buffer-offset-alignment"]
        self.plain = self._made(module, self.accesses)
        self._writing: tuple[Any, Any] | None = None

    def _made(self, module: Any, accesses: list[str]) -> tuple[Any, Any]:
        """The layout of the bindings, and the pipeline."""
        kinds = ["storage" if access == "read_write" else "read-only-storage" for access in accesses]
        entries = [
            {"binding": i, "visibility": _COMPUTE, "buffer": {"type": kind}}
            for i, kind in enumerate([*kinds, "uniform"])
        ]
        layout = self.device.create_bind_group_layout(entries=entries)
        pipeline = self.device.create_compute_pipeline(
            layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": self.kernel.name},
        )
        return layout, pipeline

    def _all_writable(self) -> tuple[Any, Any]:
        """The variant to which all tensors are writable."""
        if self._writing is None:
            source = self.kernel.source.replace("var<storage, read>", "var<storage, read_write>")
            module = self.device.create_shader_module(code=source)
            self._writing = self._made(module, ["read_write"] * len(self.accesses))
        return self._writing

    def launch(self, tensors: list[tuple[_Buffer, int]], numbers: list[bytes], grid: list[int]) -> None:
        """Gives the kernel to the device."""
        access_of: dict[int, set[str]] = {}
        for (buffer, _), access in zip(tensors, self.accesses, strict=True):
            access_of.setdefault(buffer.address, set()).add(access)
        one_access = all(len(accesses) == 1 for accesses in access_of.values())
        layout, pipeline = self.plain if one_access else self._all_writable()
        entries: list[dict[str, Any]] = []
        starts: list[bytes] = []
        for (buffer, offset), item_bytes in zip(tensors, self.item_bytes, strict=True):
            # A tensor without elements may begin where its buffer ends.
            begin = min(offset, buffer.nbytes - 4) // self.alignment * self.alignment
            elements, rest = divmod(offset - begin, item_bytes)
            if rest:
                raise DeviceError(
                    f"`{self.kernel.name}` takes a tensor that begins at byte {offset} of its memory, which is no "
                    f"multiple of the {item_bytes} bytes of an element; copy the tensor"
                )
            starts.append(struct.pack("<i", elements))
            resource = {"buffer": buffer.handle, "offset": begin, "size": buffer.nbytes - begin}
            entries.append({"binding": len(entries), "resource": resource})
        data = b"".join([*starts, *numbers])
        data += bytes(-len(data) % 16 or (0 if data else 16))
        uniform = self.device.create_buffer_with_data(data=data, usage=_UNIFORM)
        resource = {"buffer": uniform, "offset": 0, "size": len(data)}
        entries.append({"binding": len(entries), "resource": resource})
        group = self.device.create_bind_group(layout=layout, entries=entries)
        encoder = self.device.create_command_encoder()
        work = encoder.begin_compute_pass()
        work.set_pipeline(pipeline)
        work.set_bind_group(0, group)
        work.dispatch_workgroups(*grid)
        work.end()
        self.device.queue.submit([encoder.finish()])


@once
def _adapters() -> list[Any]:
    """The adapters that can be used, in wgpu's order."""
    try:
        import wgpu
    except ImportError:
        return []
    try:
        with _without_desktop():
            found = wgpu.gpu.enumerate_adapters_sync()
    except (RuntimeError, wgpu.GPUError):
        return []
    return [adapter for adapter in found if adapter.info["backend_type"] != "OpenGL"]


@contextmanager
def _without_desktop() -> Iterator[None]:
    """Keeps Mesa from asking the desktop which GPU it runs on, where there is none: that prints errors."""
    if "XDG_RUNTIME_DIR" in os.environ or "NODEVICE_SELECT" in os.environ:
        yield
        return
    os.environ["NODEVICE_SELECT"] = "1"
    try:
        yield
    finally:
        del os.environ["NODEVICE_SELECT"]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


register_driver(WebGPU())
