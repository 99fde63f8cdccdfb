"""What the machine can do at most, measured: float32 operations a second, and bytes a second from memory.

    machine_speed()   # MachineSpeed(flops=4.1e11, bandwidth=3.9e10)

With as many threads as programs use (`oneir.runtime.num_threads`), in about a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..driver.build import build
from ..runtime.pool import num_threads
from ..runtime.tensor import Tensor, empty, tensor
from ..script import from_source
from ..target.cpu import cpu_info
from ..target.target import Target

SUMS = 12
"""Vectors that are added to in turn: enough to hide how long a product and sum takes, few enough for registers."""
STEPS = 1 << 15
WORDS = 1 << 26
"""Of the array that is read: 256 MiB, more than caches hold."""

SCRIPT = """
# from tvm.script import tir as T
@T.prim_func
def main(X: T.Buffer({shape}, "float32"), Y: T.Buffer(({threads}, {sums}, {lanes}), "float32")):
    for thread in T.parallel({threads}):
        sums = T.alloc_buffer(({sums}, {lanes}), "float32")
        for i in T.unroll({sums}):
            for lane in T.vectorized({lanes}):
                sums[i, lane] = T.float32(0)
        for step in range({steps}):
            for i in T.unroll({sums}):
                for lane in T.vectorized({lanes}):
                    sums[i, lane] = {update}
        for i in T.unroll({sums}):
            for lane in T.vectorized({lanes}):
                Y[thread, i, lane] = sums[i, lane]
"""
PRODUCT, READ = "sums[i, lane] * X[0, lane] + X[1, lane]", "sums[i, lane] + X[thread, step, i, lane]"


class MachineSpeed(NamedTuple):
    """The highest speeds measured on this machine."""

    flops: float
    """float32 operations a second, a product and a sum counting two."""
    bandwidth: float
    """Bytes a second, read from memory one after the other."""

    def share(self, flops: float, moved: float, seconds: float) -> float:
        """The time that a kernel must take, for its operations or for its bytes if these take longer, divided by the
        time that it took.

        More than 1 is possible: bytes that come from a cache are faster than memory.
        """
        return max(flops / self.flops, moved / self.bandwidth) / seconds


def machine_speed(seconds: float = 0.3) -> MachineSpeed:
    """Measures the machine, for about so many seconds each."""
    threads, lanes = num_threads(), cpu_info(Target("llvm")).vector_bytes // 4
    reads = WORDS // (threads * SUMS * lanes)
    factors = tensor(np.array([[0.5] * lanes, [1.0] * lanes], "float32"))
    shape = (threads, reads, SUMS, lanes)
    words = empty(shape, "float32").copyfrom(np.broadcast_to(np.float32(1), shape))  # no other array as large
    products = 2.0 * threads * STEPS * SUMS * lanes
    return MachineSpeed(
        products / _shortest(_compiled(PRODUCT, factors, threads, lanes, STEPS), seconds),
        4.0 * threads * reads * SUMS * lanes / _shortest(_compiled(READ, words, threads, lanes, reads), seconds),
    )


def _compiled(update: str, x: Tensor, threads: int, lanes: int, steps: int) -> Callable[[], object]:
    """The loops in which all threads do one thing over and over, ready to run."""
    text = SCRIPT.format(shape=tuple(x.shape), threads=threads, lanes=lanes, sums=SUMS, steps=steps, update=update)
    function = build(from_source(text), "llvm")["main"]
    y = tensor(np.zeros((threads, SUMS, lanes), "float32"))
    return lambda: function(x, y)


def _shortest(call: Callable[[], object], seconds: float) -> float:
    """The shortest time of a call, over about so many seconds of calls."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
