"""What a kernel launch costs the host, besides the device's driver: `python -m benchmarks.launch`.

A graph launches many kernels on a CUDA device whose driver returns at once and runs nothing, so no GPU is needed.
Printed are nanoseconds for a launch: the difference of a graph with many launches and one with a single launch.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from typing import Any, ClassVar

import numpy as np

import oneir
from benchmarks.measure import verdict
from oneir import relax
from oneir.relax import op
from oneir.runtime import cuda_driver
from oneir.runtime.driver import Driver, KernelRecord, drop_kept_memory, replace_driver
from oneir.runtime.llvm import compile_ir, link
from oneir.script import tir as T

BAR = 150.0
"""Nanoseconds that a launch may take."""
IDLE = "define i32 @idle() { ret i32 0 }"


class IdleDriver(Driver):
    """A CUDA device that does nothing: its memory is the host's, and a launch returns at once."""

    device_type: ClassVar[int] = 2
    name: ClassVar[str] = "cuda"
    requirement: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self._idle = link(compile_ir(IDLE, name="a driver that does nothing"))
        self._blocks: dict[int, np.ndarray] = {}

    def count(self) -> int:
        return 1

    def attribute(self, device_id: int, name: str) -> Any:
        return None

    def alloc(self, device_id: int, nbytes: int) -> int:
        block = np.zeros(nbytes + 1, "uint8")
        self._blocks[block.ctypes.data] = block
        return block.ctypes.data

    def free(self, device_id: int, address: int) -> None:
        del self._blocks[address]

    def copy(self, device_id: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def sync(self, device_id: int, stream: int | None = None) -> None:
        """Nothing is ever under way."""

    def prepare(self, device_id: int, kernel: KernelRecord) -> ctypes.Structure:
        idle = self._idle.symbol("idle")
        return cuda_driver.new_launch(kernel, 1, 1, (idle, idle, idle), [1 << 30] * 7, 1024, 2, device_id)

    def discard(self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure) -> None:
        """Nothing was compiled."""

    def explain_launch(
        self, device_id: int, kernel: KernelRecord, launch: ctypes.Structure, code: int, sizes: list[int]
    ) -> str:
        return f"code {code}"


@T.prim_func(private=True)
def plus_one(a: T.handle, b: T.handle):
    T.func_attr({"op_pattern": 8})
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("plus_one"):
            v = T.axis.spatial(n, i)
            B[v] = A[v] + T.float32(1)


def steps(count: int) -> Any:
    """A function that launches so many kernels of three arguments, one after the other."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(plus_one, "plus_one")
    value: Any = relax.Var("x", relax.TensorStructInfo((oneir.tir.Var("n", "int64"),), "float32"))
    info = value.struct_info
    with builder.function("main", [value]):
        with builder.dataflow():
            for _ in range(count):
                value = builder.emit(op.call_tir(kernel, (value,), info))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return relax.VirtualMachine(relax.build(builder.get(), "cuda"), oneir.cuda())["main"]


def fastest(function: Any, x: oneir.runtime.Tensor, calls: int) -> float:
    """The seconds of the fastest of some calls: what other programs do to this machine only adds."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        function(x)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launch", description=__doc__)
    parser.add_argument("--kernels", type=int, default=501, help="launches of the longer graph")
    parser.add_argument("--calls", type=int, default=3000)
    options = parser.parse_args()
    before = replace_driver(IdleDriver.device_type, IdleDriver())
    try:
        x = oneir.runtime.tensor(np.zeros(64, "float32"), oneir.cuda())
        one, many = steps(1), steps(options.kernels)
        single, all_of_them = (fastest(function, x, options.calls) for function in (one, many))
        each = (all_of_them - single) / (options.kernels - 1) * 1e9
        print(f"a graph of one launch: {single * 1e6:.2f} µs, most of which makes the result")
        print(f"each further launch: {each:.0f} ns  {verdict(each, BAR, at_least=False)}")
        del x, one, many
        drop_kept_memory(IdleDriver.device_type, 0)
    finally:
        replace_driver(IdleDriver.device_type, before)


if __name__ == "__main__":
    main()
