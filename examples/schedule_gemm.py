"""From three loops to a fast matrix multiplication, with schedule primitives alone.

    python -m examples.schedule_gemm [n] [--plot build/schedule_gemm.png]

Prints, after each step, the time of one call on one thread, next to that of NumPy on one thread, and saves the journey
as a plot. The result of each step is compared with NumPy's. `n` is 1024 unless given, and a multiple of 64.

A is not packed: its elements are broadcast one by one, so a copy costs more than neighbours gain.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import oneir
from oneir import te, tir
from oneir.target import Target
from oneir.target.cpu import CPUInfo, cpu_info

LIMITS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that make NumPy's library take another processor's kernels or blocks than this one's."""


def matmul(n: int) -> tir.PrimFunc:
    """C = A @ B of n x n float32 matrices: one block under three loops."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c]).with_attr({"global_symbol": "main", "tir.noalias": True})


def register_tile(n: int, info: CPUInfo) -> tuple[int, int]:
    """Rows and columns of the tile of C that stays in registers; both divide `n`.

    Its accumulators, one row of vectors of B and a broadcast element of A must fit at once: 4 x 64 into AVX-512's 32
    registers of 16 lanes, 4 x 16 into AVX2's 16 registers of 8.
    """
    vectors = 4 if info.vector_registers >= 32 else 2
    fitting = (info.vector_registers - 1 - vectors) // vectors
    return max(d for d in range(1, fitting + 1) if n % d == 0), vectors * max(1, info.vector_bytes // 4)


def journey(n: int, info: CPUInfo) -> Iterator[tuple[str, tir.Schedule]]:
    """The schedule after each step, with the step's name. It is one schedule, which the next step changes."""
    rows, columns = register_tile(n, info)
    sch = tir.Schedule(matmul(n))
    block = sch.get_block("C")
    yield "three loops", sch

    # The sum over k runs once for a tile of C, so each element of A and B that is loaded serves more than one product.
    i, j, k = sch.get_loops(block)
    i_outer, i_inner = sch.split(i, [None, rows])
    j_outer, j_inner = sch.split(j, [None, columns])
    sch.reorder(j_outer, i_outer, k, i_inner, j_inner)
    yield f"tiles of {rows} x {columns}", sch

    # Neighbours in a row of C need neighbours in a row of B: vectors.
    sch.vectorize(j_inner)
    sch.unroll(i_inner)
    yield "vectors", sch

    # The columns of B that a column of tiles reads are copied once, to where one follows the other in memory.
    panel = sch.cache_read(block, "B", "global")
    sch.compute_at(panel, j_outer)
    sch.vectorize(sch.get_loops(panel)[-1])
    yield "packed panels of B", sch

    # A tile in a small buffer of its own, whose indices are all constants once its loops are unrolled.
    store = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(store, i_outer)
    *_, store_rows, store_columns = sch.get_loops(store)
    sch.unroll(store_rows)
    sch.vectorize(store_columns)
    yield "a buffer for a tile", sch

    # Zeros before the sum, instead of a question in each of its steps: the tile stays in registers because of what the
    # program says, and not because LLVM finds out, which it does here.
    sch.decompose_reduction(block, k)
    yield "sums in registers", sch


@dataclass(slots=True)
class Measured:
    """One call after a step, in seconds, and one of NumPy's, measured in turns with it."""

    step: str
    seconds: float
    numpy: float


def measure(n: int, rounds: int = 7) -> list[Measured]:
    """Builds each step, compares its result with NumPy's, and measures both."""
    # The package sets the variables that `main` looks at, so it is imported after that.
    from benchmarks.measure import interleaved

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    c, d = np.empty((n, n), "float32"), np.empty((n, n), "float32")
    expected = a @ b
    found = []
    print(f"{'':22s} {'ms':>9s} {'GFLOP/s':>9s} {'NumPy':>9s} {'of NumPy':>9s}")
    for step, sch in journey(n, cpu_info(Target("llvm"))):
        function = oneir.build(sch.mod)["main"]
        c.fill(np.nan)
        function(a, b, c)
        np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4 * n**0.5)
        contestants = {"oneir": lambda f=function: f(a, b, c), "numpy": lambda: np.matmul(a, b, out=d)}
        times = interleaved(contestants, rounds)
        found.append(Measured(step, times["oneir"], times["numpy"]))
        rate, library = (2 * n**3 / t / 1e9 for t in times.values())
        print(f"{step:22s} {times['oneir'] * 1e3:9.2f} {rate:9.1f} {library:9.1f} {rate / library:9.2f}", flush=True)
    return found


def plot(n: int, found: list[Measured], path: Path) -> None:
    """One bar for each step: its speed as a part of NumPy's, which is measured with it in turns."""
    from matplotlib.figure import Figure

    parts = [m.numpy / m.seconds for m in found]
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([m.step for m in found], parts, color="tab:blue")
    labels = [f"{part:.1%}, {2 * n**3 / m.seconds / 1e9:.3g} GFLOP/s" for part, m in zip(parts, found, strict=True)]
    axes.bar_label(bars, labels, padding=4, bbox={"color": "white", "pad": 1})
    axes.axvline(1, color="tab:orange", lw=2, label="NumPy", zorder=0)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35 * max(1, *parts))
    axes.set_xlabel("speed on one thread, as a part of NumPy's")
    axes.set_title(f"A matrix multiplication of {n} x {n} x {n} in float32, step by step")
    axes.legend(loc="upper right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    # NumPy's library reads these when it is loaded, so it takes a fresh process to change them: one thread, and the
    # kernels that it chooses for this processor, not those of one that the environment names.
    fair = {name: value for name, value in os.environ.items() if name not in LIMITS}
    fair["OPENBLAS_NUM_THREADS"] = "1"
    if fair != dict(os.environ):
        os.execve(sys.executable, sys.orig_argv, fair)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="?", default=1024)
    parser.add_argument("--plot", type=Path, default=Path("build/schedule_gemm.png"))
    arguments = parser.parse_args()
    if arguments.n < 64 or arguments.n % 64:
        parser.error(f"n must be a multiple of 64, found {arguments.n}")
    plot(arguments.n, measure(arguments.n), arguments.plot)
    print(f"saved {arguments.plot}")


if __name__ == "__main__":
    main()
