"""The sum of a softmax in several partial sums.

    python -m examples.schedules.softmax_rfactor

A sum over a row is one chain of additions, each waiting for the last. `rfactor` splits it by one of its loops: with the
inner loop of 8, a row has 8 sums, which do not wait for one another, and a second block adds those up.

    for i, k0: D_rf[k1, i] += E[i, k0 * 8 + k1]    for each k1, at once
    for i, k1: D[i] += D_rf[k1, i]

The order of the additions changes, so the last bits of the result may.
"""

from __future__ import annotations

import numpy as np

import oneir
from oneir import te, tir


def softmax(rows: int, columns: int) -> tir.PrimFunc:
    """S = softmax(A) along the rows of a float32 matrix: the blocks M, E, D and S."""
    a = te.placeholder((rows, columns), name="A")
    k, k_sum = te.reduce_axis((0, columns), name="k"), te.reduce_axis((0, columns), name="k_sum")
    m = te.compute((rows,), lambda i: te.max(a[i, k], axis=k), name="M")
    e = te.compute((rows, columns), lambda i, j: te.exp(a[i, j] - m[i]), name="E")
    d = te.compute((rows,), lambda i: te.sum(e[i, k_sum], axis=k_sum), name="D")
    s = te.compute((rows, columns), lambda i, j: e[i, j] / d[i], name="S")
    return te.create_prim_func([a, s]).with_attr("global_symbol", "main")


def schedule(rows: int, columns: int, lanes: int = 8) -> tir.Schedule:
    """The function with `lanes` partial sums a row; `lanes` divides `columns`."""
    sch = tir.Schedule(softmax(rows, columns))
    _, k = sch.get_loops(sch.get_block("D"))
    _, k1 = sch.split(k, [None, lanes])
    partial = sch.rfactor(k1, factor_axis=1)
    _, k0, lane = sch.get_loops(partial)
    sch.vectorize(lane)
    sch.decompose_reduction(partial, k0)
    return sch


def check(rows: int, columns: int) -> None:
    """Runs the function on a random matrix and compares with NumPy."""
    a = np.random.default_rng(0).standard_normal((rows, columns), dtype="float32")
    s = np.full_like(a, np.nan)
    oneir.build(schedule(rows, columns).mod)["main"](a, s)
    e = np.exp(a.astype("float64") - a.max(axis=1, keepdims=True))
    np.testing.assert_allclose(s, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


if __name__ == "__main__":
    schedule(64, 256).show()
    check(64, 256)
    print("The result is NumPy's.")
