"""A weight laid out as the loops read it, and the block that reads it with loops to match.

    python -m examples.schedules.weight_layout

    Y[i, o] += X[i, k] * W[o, k]

For neighbouring outputs o, the weights W[o, k] of one k are a row apart. `transform_layout` changes where elements are:
with `(o, k) -> (o // 8, k, o % 8)`, eight outputs' weights are neighbours, a vector. W is a parameter, so the function
wants it in the new layout: whoever calls it lays the weight out once. `transform_block_layout` changes what the block's
variables are, and with them its loops: here to the same eight outputs, as the innermost ones.
"""

from __future__ import annotations

import numpy as np

import oneir
from oneir import te, tir

LANES = 8


def dense(n: int, inputs: int, outputs: int) -> tir.PrimFunc:
    """Y = X @ W.T in float32, with W of outputs x inputs."""
    x, w = te.placeholder((n, inputs), name="X"), te.placeholder((outputs, inputs), name="W")
    k = te.reduce_axis((0, inputs), name="k")
    y = te.compute((n, outputs), lambda i, o: te.sum(x[i, k] * w[o, k], axis=k), name="Y")
    return te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")


def schedule(n: int, inputs: int, outputs: int) -> tir.Schedule:
    """The function with W of (outputs / 8) x inputs x 8; `outputs` is a multiple of 8."""
    sch = tir.Schedule(dense(n, inputs, outputs))
    block = sch.get_block("Y")
    sch.transform_layout(block, "W", lambda o, k: (o // LANES, k, o % LANES))
    sch.transform_block_layout(block, lambda i, o, k: (i, o // LANES, k, o % LANES))
    _, _, k, lane = sch.get_loops(block)
    sch.vectorize(lane)
    sch.decompose_reduction(block, k)
    return sch


def laid_out(w: np.ndarray) -> np.ndarray:
    """A weight in the layout that the scheduled function takes."""
    outputs, inputs = w.shape
    return np.ascontiguousarray(w.reshape(outputs // LANES, LANES, inputs).transpose(0, 2, 1))


def check(n: int, inputs: int, outputs: int) -> None:
    """Runs the function on random matrices and compares with NumPy."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((n, inputs), dtype="float32"), rng.standard_normal((outputs, inputs), dtype="float32")
    y = np.full((n, outputs), np.nan, "float32")
    oneir.build(schedule(n, inputs, outputs).mod)["main"](x, laid_out(w), y)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-4 * inputs**0.5)


if __name__ == "__main__":
    schedule(32, 64, 128).show()
    check(32, 64, 128)
    print("The result is NumPy's.")
