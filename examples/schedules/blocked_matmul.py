"""A matrix product in tiles, with the ReLU that follows it done tile by tile.

    python -m examples.schedules.blocked_matmul

Three loops walk through all of B for each row of A. Split and reordered, they finish one tile of C after the other:

    for i0, j0:              which tile
        for k0:              the sum, a piece at a time
            for i1, k1, j1:  the products of a piece

`decompose_reduction` stores the zeros of a tile before its sum begins. `reverse_compute_at` moves the ReLU into the
loops over tiles: it takes each tile while it is still in the cache, and the whole of C is never read again.
"""

from __future__ import annotations

import numpy as np

import oneir
from oneir import te, tir


def matmul_relu(n: int) -> tir.PrimFunc:
    """D = max(A @ B, 0) of n x n float32 matrices: two blocks."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, n), lambda i, j: te.max(c[i, j], 0), name="D")
    return te.create_prim_func([a, b, d]).with_attr("global_symbol", "main")


def schedule(n: int, tile: int = 16) -> tir.Schedule:
    """The function in tiles of `tile` x `tile`, which divides `n`."""
    sch = tir.Schedule(matmul_relu(n))
    block, relu = sch.get_block("C"), sch.get_block("D")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, tile])
    j0, j1 = sch.split(j, [None, tile])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, i1, k1, j1)
    sch.reverse_compute_at(relu, j0)
    sch.decompose_reduction(block, k0)
    return sch


def check(n: int) -> None:
    """Runs the function on random matrices and compares with NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    d = np.full((n, n), np.nan, "float32")
    oneir.build(schedule(n).mod)["main"](a, b, d)
    np.testing.assert_allclose(d, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4 * n**0.5)


if __name__ == "__main__":
    schedule(128).show()
    check(128)
    print("The result is NumPy's.")
