"""RemoveNoOp: what does nothing goes, with what only surrounds it; effects stay."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, unchanged

from oneir.ir.transform import PassContext
from oneir.runtime.error import TypeMismatch
from oneir.script import tir as T
from oneir.tir.transform import RemoveNoOp, RemoveNoOpConfig


def test_loops_branches_and_definitions_around_nothing():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            if n > i:
                T.evaluate(0)
            else:
                x: T.float32 = A[i]
                T.evaluate(T.exp(x))
        A[0] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), n: T.int32):
        A[0] = T.float32(1)

    check(RemoveNoOp(), before, expected, numbers=False)


def test_stores_of_what_is_there():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = A[i]
            B[i] = A[i]

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i]

    check(RemoveNoOp(), before, expected)


def test_an_effect_in_a_condition_stays():
    @T.prim_func
    def before(n: T.int32):
        if T.call_extern("int32", "next") > n:
            T.evaluate(0)

    after = apply(RemoveNoOp(), before)
    assert type(after.body).__name__ == "Evaluate"
    assert "next" in str(after.body)


def test_calls_with_effects_stay():
    @T.prim_func
    def func(n: T.int32):
        for i in range(n):
            T.evaluate(T.call_extern("int32", "touch", i))

    unchanged(RemoveNoOp(), func)


def test_overwritten_stores_only_with_dataflow_analysis():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            if i < 14:
                B[i] = A[i]
        for i in range(16):
            A[i] = T.float32(3)
        for j in range(16):
            if j < 15:
                B[j] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.float32(3)
        for j in range(16):
            if j < 15:
                B[j] = T.float32(1)

    unchanged(RemoveNoOp(), before)
    with PassContext(config={"tir.RemoveNoOp": RemoveNoOpConfig(use_dataflow_analysis=True)}):
        check(RemoveNoOp(), before, expected)
    with PassContext(config={"tir.RemoveNoOp": {"use_dataflow_analysis": True, "max_simplification_steps": 1}}):
        unchanged(RemoveNoOp(), before)


def test_stores_that_are_read_or_overwritten_in_part_stay():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            B[i] = A[i]
        A[0] = B[3]
        for i in range(15):
            B[i] = T.float32(1)
        for i in range(16):
            if i < 14:
                B[i] = B[i] + T.float32(1)

    with PassContext(config={"tir.RemoveNoOp": RemoveNoOpConfig(use_dataflow_analysis=True)}):
        unchanged(RemoveNoOp(), func)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeMismatch, match=r"'tir\.RemoveNoOp' has no field 'dataflow'; it has use_dataflow_analysis"):
        PassContext(config={"tir.RemoveNoOp": {"dataflow": True}})


def test_stores_of_the_element_that_they_load_by_other_indices_are_removed():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        for i, j in T.grid(4, 4):
            A[i * 4 + j] = A[(i * 8 + j * 2) // 2]
        for i in range(16):
            if i < 8:
                A[i // 8] = A[0]

    @T.prim_func
    def expected(A: T.Buffer((16,), "int32")):
        T.evaluate(0)

    check(RemoveNoOp(), before, expected)


def test_stores_of_elements_that_may_be_others_stay():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 9:
                A[i // 8] = A[0]
            if A[0] == i:
                A[A[0]] = A[i]  # the store may change what the condition read

    unchanged(RemoveNoOp(), before)
