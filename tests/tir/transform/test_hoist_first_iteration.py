"""HoistFirstIteration: what a loop begins its first iteration with moves before the loop."""

from __future__ import annotations

import numpy as np
from pass_checks import check, unchanged

import oneir
from oneir.script import tir as T
from oneir.tir.transform import HoistFirstIteration


def test_the_beginning_of_a_reduction_leaves_all_of_its_loops():
    @T.prim_func
    def before(A: T.Buffer((4, 6, 7), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            for j in range(6):
                for k in range(2, 7):
                    if j == 0 and k == 2:
                        C[i] = A[i, 0, k]
                    C[i] = C[i] + A[i, j, k]

    @T.prim_func
    def expected(A: T.Buffer((4, 6, 7), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            C[i] = A[i, 0, 2]
            for j in range(6):
                for k in range(2, 7):
                    C[i] = C[i] + A[i, j, k]

    check(HoistFirstIteration(), before, expected)


def test_a_loop_that_may_have_no_iteration_begins_only_if_it_has_one():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            for k in range(i):
                if k == 0:
                    C[i] = T.float32(0)
                C[i] = C[i] + A[k]

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            if i > 0:
                C[i] = T.float32(0)
            for k in range(i):
                C[i] = C[i] + A[k]

    check(HoistFirstIteration(), before, expected)


def test_what_other_iterations_run_as_well_stays():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        for k in range(8):
            for i in range(8):  # the condition is one of the loop outside, where it is not the first statement
                if k == 0:
                    C[i] = T.float32(0)
                C[i] = C[i] + A[i, k]
        for k in range(8):
            if k == 1:
                C[0] = T.float32(0)
            C[0] = C[0] + A[0, k]
        for k in range(8):
            if k == 0:
                C[1] = T.float32(0)
            else:
                C[1] = T.float32(1)
            C[1] = C[1] + A[1, k]
        for k in range(8):
            C[2] = C[2] + A[2, k]
            if k == 0:
                C[2] = T.float32(0)
        for k in T.parallel(8):
            if k == 0:
                C[3] = T.float32(0)
            A[3, k] = T.float32(0)

    unchanged(HoistFirstIteration(), func)


def test_a_reduction_that_nobody_has_decomposed_begins_with_its_init():
    @T.prim_func
    def product(
        A: T.Buffer((5, 9), "float32"),
        B: T.Buffer((9, 3), "float32"),
        C: T.Buffer((5, 3), "float32"),
    ):
        for i, j, k in T.grid(5, 3, 9):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(1)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    a = np.arange(45, dtype="float32").reshape(5, 9)
    b = np.arange(27, dtype="float32").reshape(9, 3)
    c = np.full((5, 3), np.nan, "float32")
    oneir.build(product)["product"](a, b, c)
    np.testing.assert_array_equal(c, a @ b + 1)
