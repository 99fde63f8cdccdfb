"""CUDA and ROCm devices on a machine without any: the runtime's own drivers, over what `cuda_stub.c` becomes.

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
from oneir.runtime.rocm import Rocm
from oneir.testing.cuda_host import CudaOnHost, HipOnHost, ProgramOnHost

needs_stub = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("g++") is None, reason="gcc and g++ make the CUDA driver that tests use"
)
KINDS = {"streams": 2, "events": 3, "programs": 4, "blocks": 7, "graphs": 8, "graph executables": 9}


def library_path(kind: str = "cuda") -> str:
    """The one library of a kind, made when it is first asked for."""
    return _made(kind)


@functools.cache
def _made(kind: str) -> str:
    folder = tempfile.mkdtemp(prefix="oneir-cuda-stub-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/libcuda.so.1" if kind == "cuda" else f"{folder}/libamdhip64.so"
    source = Path(__file__).with_name("cuda_stub.c")
    options = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Werror"]
    options += [] if kind == "cuda" else ["-DHIP"]
    subprocess.run(["gcc", *options, "-o", path, str(source)], check=True)
    return path


@functools.cache
def compiled(text: str, language: type[ProgramOnHost] = CudaOnHost) -> ProgramOnHost:
    """A program on the host, which tests share."""
    return language(text)


class Stub:
    """The tests' side of the library."""

    def __init__(self, kind: str = "cuda") -> None:
        self.library = ctypes.CDLL(library_path(kind))
        self._language = CudaOnHost if kind == "cuda" else HipOnHost
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
        program = compiled(text, self._language)
        self.compiled_for.append(target.arch if self._language is CudaOnHost else target.mcpu)
        lines = []
        for name, types in program.kernels.items():
            address = ctypes.cast(program._library[f"{name}_on_host"], ctypes.c_void_p).value
            bounds = re.search(rf"__launch_bounds__\((\d+)[, 1]*\) {name}\(", text)
            sizes = [8 if kind is None else ctypes.sizeof(kind) for kind in types]
            fields = [name, address, 0, bounds[1] if bounds else 1024, len(sizes), *sizes]
            lines.append(" ".join(map(str, fields)))
        return "\n".join(["stub", *lines, ""]).encode()


_drivers: list[Cuda] = []
"""The drivers of all stubs."""


@contextlib.contextmanager
def stubbed(kind: str = "cuda") -> Iterator[Stub]:
    """Inside of it, there are two devices of a kind, "cuda" or "rocm". Fails if one was used as no driver allows."""
    stub = Stub(kind)
    gc.collect()
    for driver in _drivers:  # tensors that outlived their test
        for number in range(2):
            driver.drop_kept(number)
    stub.library.stub_reset()
    name, make = ("tvm_callback_cuda_compile", Cuda) if kind == "cuda" else ("tvm_callback_hip_compile", Rocm)
    compile_before = get_global_func(name)
    register_func(name, stub.compile, override=True)
    _drivers.append(make((library_path(kind),)))
    before = replace_driver(make.device_type, _drivers[-1])
    try:
        yield stub
        stub.library.stub_drain()
        assert stub.wrong == ""
    finally:
        for number in range(2):
            drop_kept_memory(make.device_type, number)
        replace_driver(make.device_type, before)
        register_func(name, compile_before, override=True)
