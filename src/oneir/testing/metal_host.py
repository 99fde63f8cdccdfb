"""Metal programs without a GPU of Apple's: their text, compiled as C++, runs on the host, thread by thread.

    with metal_on_host(order="backward"):
        ex = relax.build(mod, "metal")
        relax.VirtualMachine(ex, oneir.metal())["main"](tensor(a, oneir.metal()))

It shares its threads and barriers with CUDA's (`cuda_host.py`); `metal_host.h` has what differs in the language.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from .cuda_host import HostDriver, ProgramOnHost, on_host

_HEAD = re.compile(r"^(?:kernel|\[\[kernel, .*\]\]) void (\w+)\((.*)\) {$", re.MULTILINE)
_MEMORY = re.compile(r"^(\s*(?:alignas\(\d+\) )?)threadgroup (\w+ \w+\[)", re.MULTILINE)
_THREADS = 2
"""The parameters that stand after the arguments: the block and the thread."""


class MetalOnHost(ProgramOnHost):
    """A program of Metal kernels on the host."""

    options: tuple[str, ...] = ("-std=c++14", "-fsigned-char")
    types: ClassVar[dict[str, Any]] = {
        "char": ctypes.c_int8,
        "uchar": ctypes.c_uint8,
        "short": ctypes.c_int16,
        "ushort": ctypes.c_uint16,
        "int": ctypes.c_int32,
        "uint": ctypes.c_uint32,
        "long": ctypes.c_int64,
        "ulong": ctypes.c_uint64,
        "float": ctypes.c_float,
    }

    def heads(self, source: str) -> dict[str, list[str]]:
        return {
            name: [_type(param) for param in params.split(", ")[:-_THREADS]] for name, params in _HEAD.findall(source)
        }

    def as_cpp(self, source: str) -> str:
        source = source.replace("#include <metal_stdlib>", "")
        return _MEMORY.sub(r"\1oneir_threadgroup \2", source)

    def prelude(self) -> str:
        return super().prelude() + Path(__file__).with_name("metal_host.h").read_text()

    def call(self, name: str, values: Sequence[str]) -> str:
        return super().call(name, [*values, "blockIdx", "threadIdx"])


def _type(param: str) -> str:
    """The type of a parameter, of which a number comes by reference."""
    declared = param.partition(" [[")[0].rpartition(" ")[0]
    return declared.removeprefix("constant ").removesuffix("&")


class MetalHostDriver(HostDriver):
    """One Metal device that is the host."""

    device_type: ClassVar[int] = 8
    name: ClassVar[str] = "metal"
    program: ClassVar[type[ProgramOnHost]] = MetalOnHost
    _attributes: ClassVar[dict[str, Any]] = HostDriver._attributes | {"device_name": "Metal on the host"}


def metal_on_host(order: str = "forward") -> contextlib.AbstractContextManager[MetalHostDriver]:
    """Inside of it `metal(0)` is the host; `order` is that of the threads of a block. See `on_host`."""
    return on_host(MetalHostDriver(order))
