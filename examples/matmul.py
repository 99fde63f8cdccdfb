"""A matrix multiplication tiled by hand in TVMScript: registers, packed panels, vectors, threads.

    python examples/matmul.py [n]

Prints the function, checks it against NumPy, and prints how long both take.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import oneir
from oneir.script import tir as T
from oneir.target import Target
from oneir.target.cpu import cpu_info


def register_tile(vector_bytes: int, registers: int) -> tuple[int, int, int]:
    """Rows, vectors in a row, and lanes of the tile of C that stays in registers.

    The accumulators, the vectors of B that they are multiplied with and one broadcast element of A must fit at once:
    6 x 2 vectors of 8 in AVX2's 16 registers, 6 x 4 vectors of 16 in AVX-512's 32.
    """
    vectors = 4 if registers >= 32 else 2
    return 6, vectors, vector_bytes // 4


def tiled_matmul(n: int, threads: bool = False, target: str = "llvm"):
    """C = A @ B of n x n float32 matrices; `n` a multiple of the tile that suits the target's registers."""
    info = cpu_info(Target(target))
    MR, VECTORS, LANES = register_tile(info.vector_bytes, info.vector_registers)
    NR = VECTORS * LANES
    if n % MR or n % NR:
        raise ValueError(f"n must be a multiple of {MR} and {NR}, found {n}")
    panels = T.parallel if threads else T.serial

    @T.prim_func
    def matmul(A: T.Buffer((n, n), "float32"), B: T.Buffer((n, n), "float32"), C: T.Buffer((n, n), "float32")):
        T.func_attr({"tir.noalias": True})
        for jo in panels(n // NR):
            with T.block("panel"):
                vj = T.axis.spatial(n // NR, jo)
                # One panel of B, NR columns wide, laid out as the inner loop reads it.
                panel = T.alloc_buffer((n, NR), "float32")
                for k, c in T.grid(n, VECTORS):
                    for v in T.vectorized(LANES):
                        panel[k, c * LANES + v] = B[k, vj * NR + c * LANES + v]
                for io in range(n // MR):
                    with T.block("tile"):
                        vi = T.axis.spatial(n // MR, io)
                        tile = T.alloc_buffer((MR, NR), "float32", scope="local")
                        for i in T.unroll(MR):
                            for c in T.unroll(VECTORS):
                                for v in T.vectorized(LANES):
                                    tile[i, c * LANES + v] = T.float32(0)
                        for k in range(n):
                            for i in T.unroll(MR):
                                for c in T.unroll(VECTORS):
                                    for v in T.vectorized(LANES):
                                        tile[i, c * LANES + v] = (
                                            tile[i, c * LANES + v] + A[vi * MR + i, k] * panel[k, c * LANES + v]
                                        )
                        for i in T.unroll(MR):
                            for c in T.unroll(VECTORS):
                                for v in T.vectorized(LANES):
                                    C[vi * MR + i, vj * NR + c * LANES + v] = tile[i, c * LANES + v]

    return matmul


def median_seconds(call: Callable[[], object], repeats: int = 20) -> float:
    """The median time of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 768
    func = tiled_matmul(n)
    func.show()
    one, all_threads = oneir.build(func), oneir.build(tiled_matmul(n, threads=True))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    c = np.empty((n, n), "float32")
    one(a, b, c)
    print(f"\nlargest difference to NumPy: {np.abs(c - a @ b).max():.2e}")
    calls = {
        "OneIR, one thread": lambda: one(a, b, c),
        f"OneIR, {oneir.runtime.num_threads()} threads": lambda: all_threads(a, b, c),
        "NumPy, as many threads as it takes": lambda: np.matmul(a, b, out=c),
    }
    for name, call in calls.items():
        seconds = median_seconds(call)
        print(f"{name:36s} {seconds * 1e3:8.2f} ms  {2 * n**3 / seconds / 1e9:7.1f} GFLOP/s")


if __name__ == "__main__":
    main()
