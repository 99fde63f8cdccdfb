"""CUDA devices on a machine without any: the runtime's own driver, over the library that `cuda_stub.c` becomes.

Kernels are compiled as C++ (`oneir.testing.cuda_host`) and run when somebody waits for them.

    with stubbed() as stub:
        x = oneir.runtime.tensor(array, oneir.cuda())
        stub.fail("cuLaunchKernel", 719)
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oneir.runtime.cuda import Cuda
from oneir.runtime.driver import drop_kept_memory, replace_driver
from oneir.runtime.registry import get_global_func, register_func
from oneir.testing.cuda_host import CudaOnHost

needs_stub = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("g++") is None, reason="gcc and g++ make the CUDA driver that tests use"
)
KINDS = {"streams": 2, "events": 3, "programs": 4, "blocks": 7, "graphs": 8, "graph executables": 9}


@functools.cache
def library_path() -> str:
    folder = tempfile.mkdtemp(prefix="oneir-cuda-stub-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/libcuda.so.1"
    source = Path(__file__).with_name("cuda_stub.c")
    options = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Werror"]
    subprocess.run(["gcc", *options, "-o", path, str(source)], check=True)
    return path


@functools.cache
def compiled(text: str) -> CudaOnHost:
    """A program on the host, which tests share."""
    return CudaOnHost(text)


class Stub:
    """The tests' side of the library."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(library_path())
        self.library.stub_wrong.restype = self.library.stub_message.restype = ctypes.c_char_p
        self.library.stub_in_use.restype = ctypes.c_long
        self.library.stub_capacity.argtypes = [ctypes.c_size_t]
        self.compiled_for: list[str] = []

    @property
    def wrong(self) -> str:
        """The uses of what is not there, a line for each."""
        return self.library.stub_wrong().decode()

    def live(self) -> dict[str, int]:
        """How many things there are, of each kind."""
        return {name: self.library.stub_live(number) for name, number in KINDS.items()}

    def fail(self, function: str, code: int, after: int = 0) -> None:
        """Makes a later call of a function return an error."""
        self.library.stub_fail(function.encode(), code, after)

    def compile(self, text: str, target: Any) -> bytes:
        """A program as the stub loads it."""
        program = compiled(text)
        self.compiled_for.append(target.arch)
        lines = []
        for name, types in program.kernels.items():
            address = ctypes.cast(program._library[f"{name}_on_host"], ctypes.c_void_p).value
            bounds = re.search(rf"__launch_bounds__\((\d+)[, 1]*\) {name}\(", text)
            sizes = [8 if kind is None else ctypes.sizeof(kind) for kind in types]
            fields = [name, address, 0, bounds[1] if bounds else 1024, len(sizes), *sizes]
            lines.append(" ".join(map(str, fields)))
        return "\n".join(["stub", *lines, ""]).encode()


@contextlib.contextmanager
def stubbed() -> Iterator[Stub]:
    """Inside of it, there are two CUDA devices. Fails if one was used as no driver allows."""
    stub = Stub()
    stub.library.stub_reset()
    gc.collect()
    compile_before = get_global_func("tvm_callback_cuda_compile")
    register_func("tvm_callback_cuda_compile", stub.compile, override=True)
    driver = Cuda((library_path(),))
    before = replace_driver(Cuda.device_type, driver)
    try:
        yield stub
        stub.library.stub_drain()
        assert stub.wrong == ""
    finally:
        for number in range(2):
            drop_kept_memory(Cuda.device_type, number)
        replace_driver(Cuda.device_type, before)
        register_func("tvm_callback_cuda_compile", compile_before, override=True)
