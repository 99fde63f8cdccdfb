"""RemoveNoOp: what does nothing goes, with what only surrounds it; effects stay."""

from __future__ import annotations

from pass_checks import apply, check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import RemoveNoOp


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
