"""ReduceBranchingThroughOvercompute: branches around what is overwritten or writes back what is there."""

from __future__ import annotations

import pytest
from pass_checks import check, unchanged

from oneir.ir.transform import PassContext
from oneir.runtime.error import TypeMismatch
from oneir.script import tir as T
from oneir.tir.transform import ReduceBranchingThroughOvercompute, ReduceBranchingThroughOvercomputeConfig

KEY = "tir.ReduceBranchingThroughOvercompute"
DATAFLOW = {KEY: ReduceBranchingThroughOvercomputeConfig(use_dataflow_analysis=True)}


def test_what_is_overwritten_later():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            if i < 14:
                B[i] = A[i] * T.float32(2)
        for i in range(16):
            if i >= 14:
                B[i] = T.float32(0)

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            B[i] = A[i] * T.float32(2)
        for i in range(16):
            if i >= 14:
                B[i] = T.float32(0)

    unchanged(ReduceBranchingThroughOvercompute(), before)
    with PassContext(config=DATAFLOW):
        check(ReduceBranchingThroughOvercompute(), before, expected)


def test_what_writes_back_what_is_there():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 14:
                A[i] = T.if_then_else(i < 14, 5, A[i])

    @T.prim_func
    def expected(A: T.Buffer((16,), "int32")):
        for i in range(16):
            A[i] = T.if_then_else(i < 14, 5, A[i])

    check(ReduceBranchingThroughOvercompute(), before, expected)


def test_accesses_out_of_bounds_reads_in_between_and_gaps_keep_their_branch():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((14,), "float32")):
        for i in range(16):
            if i < 14:
                B[i] = C[i]
        for i in range(16):
            if i < 13:
                B[i] = A[i]
        A[0] = B[15]
        for i in range(16):
            if i < 12:
                B[i] = A[i]
        for i in range(16):
            if i >= 13:
                B[i] = T.float32(0)

    with PassContext(config=DATAFLOW):
        unchanged(ReduceBranchingThroughOvercompute(), func)


def test_what_loops_of_another_shape_overwrite():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 14:
                A[i] = 1
        for io, ii in T.grid(4, 4):
            if io == 3 and ii >= 2:
                A[io * 4 + ii] = 2

    @T.prim_func
    def expected(A: T.Buffer((16,), "int32")):
        for i in range(16):
            A[i] = 1
        for io, ii in T.grid(4, 4):
            if io == 3 and ii >= 2:
                A[io * 4 + ii] = 2

    with PassContext(config=DATAFLOW):
        check(ReduceBranchingThroughOvercompute(), before, expected)


def test_loops_that_miss_an_element_or_whose_elements_memory_tells_overwrite_nothing():
    @T.prim_func
    def func(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32"), P: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 13:
                A[i] = 1
        for io, ii in T.grid(4, 4):
            if io == 3 and ii >= 2:
                A[io * 4 + ii] = 2
        for i in range(16):
            if i < 14:
                B[T.min(T.max(P[i], 0), 15)] = 1
        for i in range(16):
            P[i] = 0
        for i in range(16):
            if i >= 14:
                B[T.min(T.max(P[i], 0), 15)] = 2

    with PassContext(config=DATAFLOW):
        unchanged(ReduceBranchingThroughOvercompute(), func)


def test_a_condition_that_leaves_one_iteration_is_decided_with_its_value():
    @T.prim_func
    def before(A: T.Buffer((1,), "int32")):
        for i in range(16):
            if i > 0:
                A[0] = A[0] + i * i

    @T.prim_func
    def expected(A: T.Buffer((1,), "int32")):
        for i in range(16):
            A[0] = A[0] + i * i

    check(ReduceBranchingThroughOvercompute(), before, expected)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeMismatch, match="has no field 'dataflow'; it has use_dataflow_analysis"):
        PassContext(config={KEY: {"dataflow": True}})
