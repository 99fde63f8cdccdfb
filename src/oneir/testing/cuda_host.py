"""Programs for GPUs without one: their CUDA text, compiled as C++, runs on the host, thread by thread.

    program = CudaOnHost(ex.inspect_source("cuda"))
    program.launch("main_kernel", grid=(4,), block=(64,), arguments=[a, b, n])

    with cuda_on_host(order="backward"):
        ex = relax.build(mod, "cuda")
        relax.VirtualMachine(ex, oneir.cuda())["main"](tensor(a, oneir.cuda()))

HIP runs the same way (`HipOnHost`, `rocm_on_host`); Metal, with a prelude of its own, in `metal_host.py`.
It shares nothing with the code generator, and finds what a GPU shows only by chance: threads that do not all come to a
barrier, shared memory that is read before it is written, and, in one order of the threads or another, barriers that are
missing. `cuda_host.h` explains how. It needs g++.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..runtime import object_cache
from ..runtime.driver import AXES, Driver, KernelRecord, find_driver, replace_driver
from ..runtime.error import CompileError, DeviceError, InvalidValue, UnsupportedError
from ..runtime.launch import raise_launch
from ..runtime.once import new_lock
from ..runtime.packed import Value
from ..runtime.python_launch import forget_launch, launch_in_python
from ..runtime.tensor_map import TensorMap

ORDERS = {"forward": 0, "backward": 1, "shuffled": 2}
"""The orders in which threads of a block run between two barriers, as the compiled code numbers them."""
MAX_THREADS = 1024
MAX_SHARED_BYTES = 48 << 10
_MESSAGE_BYTES = 256
_PRELUDE = ("cuda_host.h", "cuda_host_warp.h", "cuda_host_hopper.h")
# GNU C++14, which has all that the programs use, and whose <math.h> takes a tenth of a second less than that of C++17.
_OPTIONS = ("-std=gnu++14", "-O1", "-w", "-fPIC", "-shared", "-fno-strict-aliasing", "-ffp-contract=off")
_OPTIONS += ("-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-x", "c++")
_HEAD = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\(([^)]*)\)')
_TYPES = {"bool": ctypes.c_uint8, "float": ctypes.c_float, "double": ctypes.c_double, "int": ctypes.c_int32}
_TYPES |= {"uint": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}
_TYPES |= {"int8_t": ctypes.c_int8, "int16_t": ctypes.c_int16, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16}
_TYPES |= {"const __grid_constant__ oneir_tensor_map": TensorMap}


class ProgramOnHost:
    """A program of kernels on the host.

    Raises `CompileError` with the compiler's messages for a text that is not C++, and `UnsupportedError` where there is
    no g++.
    """

    warp_size: ClassVar[int] = 32
    options: tuple[str, ...] = ()
    """Further options of the compiler."""
    types: ClassVar[dict[str, Any]] = _TYPES
    """The types of numbers that kernels take, by the language's names."""

    def __init__(self, source: str):
        self._lock = new_lock()
        heads = self.heads(source)
        self.kernels = {
            name: [None if "*" in kind else self.types[kind] for kind in kinds] for name, kinds in heads.items()
        }
        """By name, the types of the parameters: None for a pointer."""
        thunks = [self._thunk(name, kinds) for name, kinds in heads.items()]
        # Messages name the lines of the program's own text.
        text = "\n".join([self.prelude(), '#line 1 "program.cu"', self.as_cpp(source), *thunks])
        self._library = _compiled(text, f"-DONEIR_WARP={self.warp_size}", *self.options)

    def prelude(self) -> str:
        """What stands above the program's text."""
        return "".join(Path(__file__).with_name(name).read_text() for name in _PRELUDE)

    def call(self, name: str, values: Sequence[str]) -> str:
        """The call of a kernel by one thread, with the values of its arguments."""
        return f"{name}({', '.join(values)});"

    def _thunk(self, name: str, kinds: Sequence[str]) -> str:
        """A function that launches a kernel with arguments given by their addresses."""
        call = self.call(name, [f"*({kind}*)arguments[{place}]" for place, kind in enumerate(kinds)])
        return (
            f"static void {name}_thread(void** arguments) {{ {call} }}\n"
            f'extern "C" __attribute__((visibility("default"))) int {name}_on_host('
            "void** arguments, const int* sizes, unsigned order, char* message) "
            f"{{ return oneir_launch({name}_thread, arguments, sizes, order, message); }}"
        )

    def heads(self, source: str) -> dict[str, list[str]]:
        """The kernels of a text, by name, with the types of their parameters."""
        return {name: _parameter_types(params) for name, params in _HEAD.findall(source)}

    def as_cpp(self, source: str) -> str:
        """The text below the prelude: the program's, line by line."""
        return source.replace("extern __shared__", "extern")

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], order: str = "forward"
    ) -> None:
        """Runs a kernel; `arguments` are NumPy arrays, or addresses, for pointers, and numbers.

        Raises `DeviceError` for threads that do not come to the same barriers, and `InvalidValue` for what the kernel
        cannot be launched with.
        """
        if name not in self.kernels:
            raise InvalidValue(f"the program has no kernel `{name}`; it has {', '.join(self.kernels)}")
        if order not in ORDERS:
            raise InvalidValue(f"expected one of the orders {', '.join(ORDERS)}, found {order!r}")
        types = self.kernels[name]
        if len(types) != len(arguments):
            raise InvalidValue(f"`{name}` takes {len(types)} arguments, found {len(arguments)}")
        sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block))]
        threads = sizes[3] * sizes[4] * sizes[5]
        if not 0 < threads <= MAX_THREADS:
            raise InvalidValue(f"a block has 1 to {MAX_THREADS} threads, found {threads}")
        values = [_argument(kind, value) for kind, value in zip(types, arguments, strict=True)]
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        with self._lock:
            code = self._library[f"{name}_on_host"](places, (ctypes.c_int * 6)(*sizes), ORDERS[order], message)
        if code:
            raise DeviceError(f"`{name}`: {message.value.decode()}")


class CudaOnHost(ProgramOnHost):
    """A program of CUDA kernels on the host."""


class HipOnHost(ProgramOnHost):
    """A program of HIP kernels on the host, with the warps of AMD's larger GPUs."""

    warp_size: ClassVar[int] = 64


def _parameter_types(params: str) -> list[str]:
    """The types of a kernel's parameters, from its text."""
    return [p.strip().rpartition(" ")[0].replace("__restrict__", "") for p in params.split(",") if p.strip()]


def _argument(kind: Any, value: Any) -> Any:
    """An argument as memory that can be pointed to."""
    if kind is TensorMap and isinstance(value, int):
        return TensorMap.from_address(value)
    if kind is not None:
        return value if isinstance(value, TensorMap) else kind(value)
    return ctypes.c_void_p(value.ctypes.data if isinstance(value, np.ndarray) else value)


def compiler_exists() -> bool:
    """Whether this machine can run programs of devices on the host."""
    return shutil.which("g++") is not None


def _compiler() -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        raise UnsupportedError("kernels run on the host through g++, which is not installed (Debian: g++)")
    return compiler


def _compiled(text: str, *options: str) -> ctypes.CDLL:
    """The library of a text, which the cache of compiled code may have."""
    compiler = os.path.realpath(_compiler())
    command, status = [compiler, *_OPTIONS, *options], os.stat(compiler)
    key = object_cache.cache_key("on host", text, *command, f"{status.st_size} {status.st_mtime_ns}")
    data = object_cache.get(key)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "program.so"
        if data is None:
            command += ["-o", str(library), "-"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileError(f"g++ does not take the program:\n{done.stderr}")
            object_cache.put(key, library.read_bytes())
        else:
            library.write_bytes(data)
        return ctypes.CDLL(str(library))


# -- as a device --


class HostDriver(Driver):
    """One device of a kind that is the host; see `on_host`."""

    requirement: ClassVar[str] = "g++ is missing"
    program: ClassVar[type[ProgramOnHost]]
    _attributes: ClassVar[dict[str, Any]] = {
        "max_threads_per_block": MAX_THREADS,
        "max_shared_memory_per_block": MAX_SHARED_BYTES,
        "max_thread_dimensions": [1024, 1024, 64],
        "multi_processor_count": 1,
    }

    def __init__(self, order: str = "forward"):
        if order not in ORDERS:
            raise InvalidValue(f"expected one of the orders {', '.join(ORDERS)}, found {order!r}")
        super().__init__()
        self.order = order
        self.launched: list[str] = []
        """The names of the kernels that were launched, in order."""
        self._programs: dict[bytes, ProgramOnHost] = {}

    def count(self) -> int:
        return int(compiler_exists())

    def attribute(self, device_id: int, name: str) -> Any:
        if name == "warp_size":
            return self.program.warp_size
        return self._attributes.get(name)

    def alloc(self, device_id: int, nbytes: int) -> int:
        block = np.full(nbytes + 128, 0xFF, np.uint8)
        address = -(-block.ctypes.data // 128) * 128
        _memory[address] = block
        return address

    def free(self, device_id: int, address: int) -> None:
        del _memory[address]

    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def sync(self, device_id: int, stream: int | None = None) -> None:
        """Launches return when they are done."""

    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        if kernel.digest not in self._programs:
            self._programs[kernel.digest] = self.program(kernel.source)
        program, count = self._programs[kernel.digest], len(kernel.kinds) + len(kernel.extents)

        def launch(address: int, values: int) -> None:
            driver = find_driver(self.device_type)
            if not isinstance(driver, HostDriver):
                name = self.name
                raise DeviceError(f"the program was loaded for {name} on the host; run it in `with {name}_on_host():`")
            driver.launch(address, program, kernel, (Value * count).from_address(values))

        return launch_in_python(launch)

    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        forget_launch(launch)

    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        return f"a block has at most {MAX_THREADS} threads, and {MAX_SHARED_BYTES} bytes of shared memory"

    def launch(self, address: int, program: ProgramOnHost, kernel: KernelRecord, values: Any) -> None:
        """Runs the kernel of a launch, by its address, with the values that host code passes."""
        count = len(kernel.kinds)
        arguments = [
            values[i].p or 0 if kind in "pt" else values[i].f if kind in "fd" else values[i].i
            for i, kind in enumerate(kernel.kinds)
        ]
        extents = {name: values[count + i].i for i, name in enumerate(kernel.extents)}
        sizes = [extents.get(axis, 1) for axis in AXES]
        if 0 in sizes:
            return
        if sizes[3] * sizes[4] * sizes[5] > MAX_THREADS:
            raise_launch(ctypes.c_void_p(address), 1, *sizes, 0)
        self.launched.append(kernel.name)
        program.launch(kernel.name, sizes[:3], sizes[3:], arguments, self.order)


class CudaHostDriver(HostDriver):
    """One CUDA device that is the host."""

    device_type: ClassVar[int] = 2
    name: ClassVar[str] = "cuda"
    program: ClassVar[type[ProgramOnHost]] = CudaOnHost
    _attributes: ClassVar[dict[str, Any]] = HostDriver._attributes | {
        "device_name": "CUDA on the host",
        "compute_version": "8.0",
    }


class RocmHostDriver(HostDriver):
    """One device of ROCm that is the host."""

    device_type: ClassVar[int] = 10
    name: ClassVar[str] = "rocm"
    program: ClassVar[type[ProgramOnHost]] = HipOnHost
    _attributes: ClassVar[dict[str, Any]] = HostDriver._attributes | {"device_name": "ROCm on the host"}


_memory: dict[int, np.ndarray] = {}
"""What is allocated, by address. Temporary memory is kept for later programs, which another driver may run."""


D = TypeVar("D", bound=HostDriver)


@contextlib.contextmanager
def on_host(driver: D) -> Iterator[D]:
    """Inside of it the one device of a driver's kind is the host, for the whole process.

    Tensors that were made on it cannot be used afterwards. Raises `UnsupportedError` where there is no g++.
    """
    _compiler()
    before = replace_driver(driver.device_type, driver)
    try:
        yield driver
    finally:
        replace_driver(driver.device_type, before)


def cuda_on_host(order: str = "forward") -> contextlib.AbstractContextManager[CudaHostDriver]:
    """Inside of it `cuda(0)` is the host; `order` is that of the threads of a block. See `on_host`."""
    return on_host(CudaHostDriver(order))


def rocm_on_host(order: str = "forward") -> contextlib.AbstractContextManager[RocmHostDriver]:
    """Inside of it `rocm(0)` is the host; `order` is that of the threads of a block. See `on_host`."""
    return on_host(RocmHostDriver(order))
