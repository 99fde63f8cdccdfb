"""UseAssumeToReduceBranches: conditions that assumptions about padding make needless, and those that stay."""

from __future__ import annotations

from pass_checks import apply, unchanged

from oneir.ir.structural import assert_structural_equal
from oneir.script import tir as T
from oneir.tir.transform import UseAssumeToReduceBranches


def test_a_chain_of_operators_over_a_padded_tensor():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in range(16):
            T.evaluate(T.assume(i < 14 or A[i] == T.float32(0)))
        for i in range(16):
            B[i] = T.if_then_else(i < 14, T.max(A[i], T.float32(0)), T.float32(0))
        for j in range(16):
            C[j] = T.if_then_else(j >= 14, T.float32(0), B[j] + T.float32(0) * A[j])

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in range(16):
            T.evaluate(T.assume(i < 14 or A[i] == T.float32(0)))
        for i in range(16):
            B[i] = T.max(A[i], T.float32(0))
        for j in range(16):
            C[j] = B[j] + T.float32(0) * A[j]

    after = apply(UseAssumeToReduceBranches(), before)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))
    unchanged(UseAssumeToReduceBranches(), after)


def test_two_statements_that_store_the_same():
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            T.evaluate(T.assume(i < 3 or j > 0 or A[i, j] == 2))
            if i < 3:
                B[i, j] = A[i, j] * 3
            else:
                if j > 0:
                    B[i, j] = A[i, j] * 3
                else:
                    B[i, j] = 6

    @T.prim_func
    def expected(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            T.evaluate(T.assume(i < 3 or j > 0 or A[i, j] == 2))
            B[i, j] = A[i, j] * 3

    after = apply(UseAssumeToReduceBranches(), before)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))


def test_another_value_another_place_and_written_memory_keep_the_condition():
    @T.prim_func
    def func(
        A: T.Buffer((16,), "float32"),
        B: T.Buffer((16,), "float32"),
        C: T.Buffer((16,), "float32"),
        D: T.Buffer((16,), "float32"),
    ):
        for i in range(16):
            T.evaluate(T.assume(i < 14 or A[i] == T.float32(0)))
            T.evaluate(T.assume(i < 14 or D[i] == T.float32(0)))
        for i in range(16):
            B[i] = T.if_then_else(i < 14, T.exp(A[i]), T.float32(0))
            C[i] = T.if_then_else(i < 12, A[i], T.float32(0))
            D[i] = T.if_then_else(i < 14, D[i], T.float32(0))

    unchanged(UseAssumeToReduceBranches(), func)


def test_a_load_out_of_bounds_keeps_its_condition():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((32,), "float32")):
        for i in range(16):
            T.evaluate(T.assume(i < 14 or A[i] == T.float32(0)))
        for i in range(32):
            B[i] = T.if_then_else(i < 14, A[i], T.float32(0))

    unchanged(UseAssumeToReduceBranches(), func)


def test_an_assumption_of_a_part_or_under_a_condition_keeps_the_condition():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32"), n: T.int32):
        for i in range(15):
            T.evaluate(T.assume(i < 14 or A[i] == T.float32(0)))
        for i in range(16):
            if n > 4:
                T.evaluate(T.assume(i < 14 or D[i] == T.float32(0)))
        for i in range(16):
            B[i] = T.if_then_else(i < 14, A[i], T.float32(0))
        for i in range(16):
            B[i] = T.if_then_else(i < 14, D[i], T.float32(0))

    unchanged(UseAssumeToReduceBranches(), func)
