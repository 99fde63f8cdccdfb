"""Rows of half precision are widened once, where each element meets many vectors: the copy, its numbers, and where there
is none.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.dlight.cpu import Contraction
from oneir.runtime.dtype import numpy_dtype
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir import PrimFunc

AVX2 = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
ROWS, DEPTH = 9, 8


def product(columns: int, dtype: str, rows: int = ROWS) -> PrimFunc:
    """A product whose sums are float32."""
    a, b = te.placeholder((rows, DEPTH), dtype, "A"), te.placeholder((DEPTH, columns), dtype, "B")
    k = te.reduce_axis((0, DEPTH), "k")

    def element(i, j):
        return te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), k)

    return te.create_prim_func([a, b, te.compute((rows, columns), element, "C")])


def square() -> PrimFunc:
    """The product of a matrix with itself."""
    a, k = te.placeholder((256, 256), "bfloat16", "A"), te.reduce_axis((0, 256), "k")
    c = te.compute((256, 256), lambda i, j: te.sum(a[i, k].astype("float32") * a[k, j].astype("float32"), k), "C")
    return te.create_prim_func([a, c])


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    sch = Contraction().schedule(func, target)
    assert sch is not None
    return sch.mod["main"]


def has_wide_rows(func: PrimFunc) -> bool:
    """Whether rows are read from a copy, without a cast; weights are always read as they are."""
    update = next(line for line in func.script().splitlines() if re.search(r"= C\w*\[v_i, v_j\] \+ ", line))
    return "* T.Cast" in update and "+ A_global[" in update


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", [AVX2, Target("llvm")], ids=["AVX2", "this machine"])
def test_rows_are_widened_once(dtype: str, target: Target) -> None:
    func = product(256, dtype)
    made = scheduled(func, target)
    assert has_wide_rows(made)
    assert f"A_global = T.alloc_buffer(({ROWS}, {DEPTH}))" in made.script()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, ROWS, 20])
def test_the_numbers(dtype: str, rows: int) -> None:
    rng, func = np.random.default_rng(1), product(256, dtype, rows)
    a, b = (rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in ((rows, DEPTH), (DEPTH, 256)))
    expected = a.astype("float64") @ b.astype("float64")
    found = np.zeros((rows, 256), "float32")
    interpret(scheduled(func, Target("llvm")), a, b, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    tensors = [oneir.nd.array(array) for array in (a, b, np.zeros((rows, 256), "float32"))]
    oneir.build(scheduled(func, Target("llvm")).with_attr("global_symbol", "f"), "llvm")["f"](*tensors)
    np.testing.assert_allclose(tensors[2].numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_a_function_computes_is_wide_from_the_start(dtype: str) -> None:
    # Each padded element meets one vector, but at the five places of a window.
    data, weight = te.placeholder((20, 12), dtype, "D"), te.placeholder((5, 12, 16), dtype, "W")
    r, c = te.reduce_axis((0, 5), "r"), te.reduce_axis((0, 12), "c")

    def inside(i, j):
        return te.if_then_else(te.all(i >= 2, i < 22), data[i - 2, j], tir.const(0, dtype))

    padded = te.compute((24, 12), inside, "padded")

    def element(i, o):
        return te.sum(padded[i + r, c].astype("float32") * weight[r, c, o].astype("float32"), [r, c])

    made = scheduled(te.create_prim_func([data, weight, te.compute((20, 16), element, "C")]), Target("llvm"))
    assert "padded = T.alloc_buffer((24, 12))" in made.script()
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in ((20, 12), (5, 12, 16)))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.astype("float64"), [(2, 2), (0, 0)]), 5, 0)
    found = np.zeros((20, 16), "float32")
    interpret(made, x, w, found)
    np.testing.assert_allclose(found, np.einsum("icr,rco->io", windows, w.astype("float64")), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "func",
    [
        pytest.param(product(16, "bfloat16"), id="one vector of columns"),
        pytest.param(product(256, "float32"), id="rows that are wide"),
        pytest.param(square(), id="a matrix with itself"),
    ],
)
def test_no_copy_is_made(func: PrimFunc) -> None:
    assert not has_wide_rows(scheduled(func, AVX2))
