"""Part of a matrix copied to where the loops read it one element after the other.

    python -m examples.schedules.packed_panel

A tile of C needs a few columns of B, whose rows lie far apart: each is in another page of memory. `cache_read` makes
the block read a copy of B, `compute_at` makes that copy inside of the loop over panels, where only one panel of it is
needed, and lowering allocates no more than that. The copy costs n elements a column, and serves all n rows of C.
"""

from __future__ import annotations

import numpy as np

import oneir
from oneir import te, tir


def matmul(n: int) -> tir.PrimFunc:
    """C = A @ B of n x n float32 matrices."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")


def schedule(n: int, width: int = 16) -> tir.Schedule:
    """The function with panels of `width` columns, which divides `n`."""
    sch = tir.Schedule(matmul(n))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, width])
    sch.reorder(j0, i, k, j1)
    panel = sch.cache_read(block, "B", "global")
    sch.compute_at(panel, j0)
    sch.vectorize(sch.get_loops(panel)[-1])
    sch.vectorize(j1)
    sch.decompose_reduction(block, k)
    return sch


def check(n: int) -> None:
    """Runs the function on random matrices and compares with NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    c = np.full((n, n), np.nan, "float32")
    oneir.build(schedule(n).mod)["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4 * n**0.5)


if __name__ == "__main__":
    schedule(128).show()
    check(128)
    print("The result is NumPy's.")
