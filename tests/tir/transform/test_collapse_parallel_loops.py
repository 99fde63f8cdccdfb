"""CollapseParallelLoops: parallel loops in each other become one, whose iterations threads share."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import check, unchanged

import oneir
from oneir import tir
from oneir.ir.visitor import Visitor
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.pipeline import DefaultTIRPipeline
from oneir.tir.transform import CollapseParallelLoops


class ParallelLoops(Visitor):
    """How many parallel loops there are in a function."""

    def __init__(self, func: tir.PrimFunc):
        super().__init__()
        self.count = 0
        self(func.body)

    def visit_For(self, loop: tir.For) -> None:
        self.count += loop.kind is tir.ForKind.PARALLEL
        self.generic_visit(loop)


def test_three_loops_of_variables_of_a_shorter_type():
    @T.prim_func
    def before(A: T.Buffer((2, 3, 4), "float32"), B: T.Buffer((2, 3, 4), "float32")):
        for i in T.parallel(2):
            for j in T.parallel(3):
                for k in T.parallel(4):
                    B[i, j, k] = A[i, j, k] + T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((2, 3, 4), "float32"), B: T.Buffer((2, 3, 4), "float32")):
        for i_j_k in T.parallel(T.int64(24)):
            i: T.int32 = T.Cast("int32", T.Div(T.Div(i_j_k, T.int64(4)), T.int64(3)))
            j: T.int32 = T.Cast("int32", T.truncmod(T.Div(i_j_k, T.int64(4)), T.int64(3)))
            k: T.int32 = T.Cast("int32", T.truncmod(i_j_k, T.int64(4)))
            B[i, j, k] = A[i, j, k] + T.float32(1)

    check(CollapseParallelLoops(), before, expected)


def test_what_is_no_nest_of_parallel_loops_stays():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), n: T.int32):
        for i in T.parallel(8):  # something stands beside the inner loop
            A[i, 0] = T.float32(1)
            for j in T.parallel(8):
                A[i, j] = T.float32(2)
        for i in T.parallel(8):  # the inner loop is longer in later iterations
            for j in T.parallel(i):
                A[i, j] = T.float32(3)
        for i in T.parallel(8):  # a loop of one thread is between them
            for r in range(n):
                for j in T.parallel(8):
                    A[i, j] = A[i, j] + T.float32(r)
        for i in T.parallel(8):  # one does not begin at 0
            for j in T.parallel(1, 7):
                A[i, j] = T.float32(4)
        for i in range(8):
            for j in T.parallel(8):
                A[i, j] = T.float32(5)

    unchanged(CollapseParallelLoops(), func)


@pytest.mark.parametrize("shape", [(5, 7), (1, 300), (300, 1), (0, 3), (3, 0)])
def test_compiled_loops_of_unknown_extents_are_one_and_write_every_element_once(shape: tuple[int, int]):
    @T.prim_func
    def func(x: T.handle, n: T.int64, m: T.int64):
        A = T.match_buffer(x, (n, m), "int32")
        for i in T.parallel(n):
            for j in T.parallel(m):
                A[i, j] = A[i, j] + T.Cast("int32", i * T.int64(1000) + j)

    with Target("llvm"):
        lowered = DefaultTIRPipeline()(oneir.IRModule({"func": func}))
    assert ParallelLoops(lowered["func"]).count == 1
    found = np.ones(shape, "int32")
    oneir.build(func, "llvm")["func"](found, *shape)
    np.testing.assert_array_equal(found, 1 + np.arange(shape[0])[:, None] * 1000 + np.arange(shape[1]))


def test_loops_of_negative_extents_have_no_iteration():
    @T.prim_func
    def func(A: T.Buffer((4,), "int32"), n: T.int64, m: T.int64):
        for i in T.parallel(n):
            for j in T.parallel(m):
                A[i + j] = 1

    found = np.zeros(4, "int32")
    oneir.build(func, "llvm")["func"](found, -1, -2)
    assert not found.any()
