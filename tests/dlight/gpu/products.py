"""Products of matrices as tensor cores take them, what they are to give, and how exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import oneir
from oneir import te
from oneir.target import Target


def target(arch: str = "sm_80") -> Target:
    """A GPU of NVIDIA's."""
    return Target({"kind": "cuda", "arch": arch}, host="llvm")


def product(m, n, k, dtype="float16", out="float32", trans=(False, False), batch=(), before=None, after=None):
    """C[b, i, j] = after(sum over r of before(A[b, i, r]) * B[b, r, j], bias[j]); a size of None is a variable."""
    index = "int64" if None in (m, n, k) else "int32"
    sizes = zip("mnk", (m, n, k), strict=True)
    m, n, k = (te.var(name, index) if size is None else oneir.tir.const(size, index) for name, size in sizes)
    a = te.placeholder((*batch, k, m) if trans[0] else (*batch, m, k), dtype, name="A")
    b = te.placeholder((*batch, n, k) if trans[1] else (*batch, k, n), dtype, name="B")
    bias = te.placeholder((n,), out, name="bias")
    left = a if before is None else te.compute(a.shape, lambda *at: before(a(*at)), name="left")
    r = te.reduce_axis((0, k), "r")

    def element(*at):
        *outer, i, j = at
        x = left(*outer, r, i) if trans[0] else left(*outer, i, r)
        y = b(*outer, j, r) if trans[1] else b(*outer, r, j)
        return te.sum(x.astype(out) * y.astype(out), axis=r)

    c = te.compute((*batch, m, n), element, name="C")
    if after is None:
        return te.create_prim_func([a, b, c])
    d = te.compute(c.shape, lambda *at: after(c(*at), bias(at[-1])), name="D")
    return te.create_prim_func([a, b, bias, d])


def half(x: Any) -> Any:
    """What is positive of a number."""
    return oneir.tir.max(x, oneir.tir.const(0, x.dtype))


def rectified(x: Any, bias: Any) -> Any:
    """A layer of half precision."""
    return half(x + bias).astype("float16")


def inputs_and_result(case: dict[str, Any], size: Sequence[int] = (0, 0, 0)) -> tuple[Any, Any, Any, str]:
    """Inputs of a case, the result as float64 computes it, the error that it may have, and its dtype.

    `size` has the rows, the columns and the length of the sum where the case leaves them open.
    """
    m, n, k = (given if case[axis] is None else case[axis] for axis, given in zip("mnk", size, strict=True))
    dtype, out, trans = case.get("dtype", "float16"), case.get("out", "float32"), case.get("trans", (False, False))
    batch = case.get("batch", ())
    rng = np.random.default_rng(0)
    shapes = [(*batch, k, m) if trans[0] else (*batch, m, k), (*batch, n, k) if trans[1] else (*batch, k, n)]
    draw = (lambda s: rng.integers(-128, 128, s)) if dtype == "int8" else rng.standard_normal
    a, b = (draw(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for shape in shapes)
    x, y = (np.swapaxes(v, -1, -2) if t else v for v, t in zip((a.astype("f8"), b.astype("f8")), trans, strict=True))
    if "before" in case:
        x = np.maximum(x, 0)
    sums, bound = x @ y, np.abs(x) @ np.abs(y)
    # Each of the k + 1 roundings is at most half a unit of the sum of magnitudes.
    unit = {"float32": 2.0**-24, "float16": 2.0**-11, "int32": 0}[out]
    error = bound * (k + 1) * unit
    if "after" not in case:
        return [a, b], sums, error, out
    bias = rng.standard_normal(n).astype(out)
    result = np.maximum(sums + bias, 0)
    return [a, b, bias], result, error + np.abs(result) * 2.0**-10 + 2.0**-24, "float16"
