"""CommonSubexprElimTIR: what is computed once, where, and what stays."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.ir.structural import assert_structural_equal
from oneir.script import tir as T
from oneir.tir import SeqStmt
from oneir.tir.transform import CommonSubexprElimTIR


def test_statements_share_an_index():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i, j in T.grid(8, 8):
            A[i * 8 + j] = B[i * 8 + j] + T.float32(1)
            B[i * 8 + j] = T.float32(0)

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(8):
            for j in range(8):
                cse_v1: T.int32 = i * 8 + j
                A[cse_v1] = B[cse_v1] + T.float32(1)
                B[cse_v1] = T.float32(0)

    after = check(CommonSubexprElimTIR(), before, expected)
    assert "cse_v1 = " in after.script() or "cse_v1: T.int32 = " in after.script()
    unchanged(CommonSubexprElimTIR(), after)


def test_an_operand_with_other_uses_has_a_variable_of_its_own_further_out():
    @T.prim_func
    def before(A: T.Buffer((64,), "int32"), n: T.int32, m: T.int32):
        A[0] = n * m
        for i in range(4):
            A[i] = (n * m + i) * (n * m + i)

    @T.prim_func
    def expected(A: T.Buffer((64,), "int32"), n: T.int32, m: T.int32):
        cse_v1: T.int32 = n * m
        A[0] = cse_v1
        for i in range(4):
            cse_v2: T.int32 = cse_v1 + i
            A[i] = cse_v2 * cse_v2

    check(CommonSubexprElimTIR(), before, expected, numbers=False)


def test_part_of_one_repeated_expression_has_no_variable():
    @T.prim_func
    def before(A: T.Buffer((64,), "int32"), n: T.int32, m: T.int32):
        A[(n * m + 3) % 64] = n * m + 3

    @T.prim_func
    def expected(A: T.Buffer((64,), "int32"), n: T.int32, m: T.int32):
        cse_v1: T.int32 = n * m + 3
        A[cse_v1 % 64] = cse_v1

    check(CommonSubexprElimTIR(), before, expected, numbers=False)


def test_both_branches_and_the_condition_share_a_value():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            if n * n + i > 4:
                A[i] = n * n + i
            else:
                A[i] = 1 // (n * n)

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            cse_v1: T.int32 = n * n
            cse_v2: T.int32 = cse_v1 + i
            if cse_v2 > 4:
                A[i] = cse_v2
            else:
                A[i] = 1 // cse_v1

    check(CommonSubexprElimTIR(), before, expected, numbers=False)


def test_inside_of_a_let_the_variable_is_bound_by_a_let():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), s: T.float32):
        x = T.float32()
        A[0] = T.Let(T.exp(x) + T.exp(x), where={x: s * s})

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), s: T.float32):
        x = T.float32()
        cse_v1 = T.float32()
        A[0] = T.Let(T.Let(cse_v1 + cse_v1, where={cse_v1: T.exp(x)}), where={x: s * s})

    check(CommonSubexprElimTIR(), before, expected, numbers=False)


def test_loads_calls_with_effects_and_vectors_of_indices_stay():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32):
        B[T.Ramp(n, 1, 4)] = A[T.Ramp(n, 1, 4)]
        B[0] = A[1] * T.float32(2)
        A[1] = A[1] * T.float32(2)
        T.evaluate(T.call_extern("int32", "next", n))
        T.evaluate(T.call_extern("int32", "next", n))
        T.evaluate(T.call_pure_extern("int32", "checked", n))
        T.evaluate(T.call_pure_extern("int32", "checked", n))

    unchanged(CommonSubexprElimTIR(), func)


def test_a_variable_that_is_bound_twice_keeps_both_values_apart():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32")):
        for i in range(4):
            A[i * 3 % 8] = 1

    twice = func.with_body(SeqStmt([func.body, func.body]))
    unchanged(CommonSubexprElimTIR(), twice)


def test_regions_of_blocks_stay_and_bodies_are_treated():
    @T.prim_func
    def before(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi * 8 + 1])
                T.writes(B[vi * 8 + 1])
                B[vi * 8 + 1] = A[vi * 8 + 1]

    @T.prim_func
    def expected(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi * 8 + 1])
                T.writes(B[vi * 8 + 1])
                cse_v1: T.int32 = vi * 8 + 1
                B[cse_v1] = A[cse_v1]

    check(CommonSubexprElimTIR(), before, expected)


def test_equivalent_terms_only_on_request():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), n: T.int32, m: T.int32):
        A[0] = (n + m) * 2
        A[1] = m * 2 + n * 2

    unchanged(CommonSubexprElimTIR(), before)
    after = apply(CommonSubexprElimTIR(identify_equiv_terms=True), before)
    first, second = after.body.body.seq
    assert str(after.body.value) == "(n + m) * 2"
    assert first.value is second.value is after.body.var
    unchanged(CommonSubexprElimTIR(enable_cse_tir=False), before)


@pytest.mark.parametrize("equivalent", [False, True])
def test_numbers_of_a_longer_function(equivalent):
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(8):
            for j in range(8):
                if i * 8 + j < 40:
                    B[(i * 8 + j) % 64] = T.exp(T.Cast("float32", i * 8)) * A[i * 8 + j]
                else:
                    B[j + 8 * i] = T.max(T.Cast("float32", i * 8), T.Cast("float32", j)) + A[8 * i + j]
            A[i * 8] = T.Cast("float32", i * 8)

    after = apply(CommonSubexprElimTIR(identify_equiv_terms=equivalent), func)
    same_numbers(func, after)
    again = apply(CommonSubexprElimTIR(identify_equiv_terms=equivalent), func)
    assert_structural_equal(after, again)
    assert after.script() == again.script()
