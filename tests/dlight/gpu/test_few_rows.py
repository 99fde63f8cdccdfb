"""Products with an unknown number of rows: the interpreter has the same sums from both kernels, and counts reads."""

from __future__ import annotations

import numpy as np
import pytest
from check_rule import CUDA, results, scopes

from oneir import te, tir
from oneir.dlight.gpu import FewRows, LowBatchGEMV, Matmul
from oneir.target import Target
from oneir.testing.interpreter.memory import Memory
from oneir.tir.transform import LowerCrossThreadReduction

N, K = tir.const(4, "int64"), tir.const(32, "int64")
RULE = FewRows((Matmul(),))


def product(rows: object) -> tir.PrimFunc:
    """x @ weight.T for `rows` rows of bytes that a block before it makes floats, plus 1."""
    x = te.placeholder((rows, K), "float32", name="x")
    packed = te.placeholder((N, K // 4), "uint32", name="packed")

    def digit(i, j):
        return ((packed[i, j // 4] >> ((j % 4) * 8).astype("uint32")) & tir.const(255, "uint32")).astype("float32")

    wide = te.compute((N, K), digit, name="dequantize")
    k = te.reduce_axis((0, K), "k")
    sums = te.compute((rows, N), lambda r, i: te.sum(x[r, k] * wide[i, k], axis=k), name="sums")
    return te.create_prim_func([x, packed, te.compute((rows, N), lambda r, i: sums[r, i] + 1.0, name="y")])


@pytest.mark.parametrize("target", [CUDA, "metal", "vulkan"])
def test_no_kernel_has_a_wide_copy_of_the_matrix(target: str) -> None:
    schedule = RULE.apply(product(te.var("m", "int64")), Target(target))
    assert schedule is not None
    assert scopes(schedule.mod["main"]) <= {"local", "shared"}


def test_few_and_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 8 rows, the matrix is read once for each 4 of them, as it lies."""
    func = product(te.var("m", "int64"))
    schedule = RULE.apply(func, Target("opencl"))
    assert schedule is not None
    assert scopes(schedule.mod["main"]) <= {"local", "shared"}
    new = LowerCrossThreadReduction()(schedule.mod)["main"]
    read, reads = Memory.read, []

    def counted(memory: Memory, dtype: tir.DataType, offset: int) -> object:
        if memory.name == "packed":
            reads.append(offset)
        return read(memory, dtype, offset)

    monkeypatch.setattr(Memory, "read", counted)
    for m, times in ((3, 1), (9, None)):
        reads.clear()
        found = results(new, {"m": m})
        if times is not None:
            # A thread has the four bytes of a word one after the other.
            assert len(reads) == times * N.value * K.value
        np.testing.assert_allclose(found, results(func, {"m": m}), rtol=1e-5)


def test_functions_of_other_kinds() -> None:
    """Known numbers of rows, and functions that are no such product, are for other rules."""
    target, m, n = Target(CUDA), te.var("m", "int64"), te.var("n", "int64")
    assert RULE.apply(product(4), target) is None
    x = te.placeholder((m, K), "float32", name="x")
    assert RULE.apply(te.create_prim_func([x, te.compute((m, K), lambda i, j: x[i, j] + 1.0)]), target) is None
    y, k = te.placeholder((n, K), "float32", name="y"), te.reduce_axis((0, K), "k")
    both = te.compute((m, n), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k))
    assert RULE.apply(te.create_prim_func([x, y, both]), target) is None
    assert FewRows((LowBatchGEMV(),)).apply(product(m), Target("llvm")) is None
    assert FewRows(()).apply(product(m), target) is None
