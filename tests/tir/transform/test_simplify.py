"""Simplify: expressions with what surrounds them, and statements that become trivial."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, check, unchanged

import oneir
from oneir import tir
from oneir.arith import Analyzer
from oneir.ir.transform import PassContext
from oneir.runtime.error import TypeMismatch
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir.transform import LowerOpaqueBlock, Simplify


def test_ranges_of_loops_decide_conditions_and_quotients():
    @T.prim_func
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        for i in range(8):
            for j in range(16):
                if i * 16 + j < 128:
                    B[i * 16 + j] = A[(i * 16 + j) // 16 * 16 + (i * 16 + j) % 16]

    @T.prim_func
    def expected(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        for i in range(8):
            for j in range(16):
                B[i * 16 + j] = A[i * 16 + j]

    check(Simplify(), before, expected)


def test_loops_of_one_iteration_and_of_none():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32")):
        for i in range(1):
            for j in range(3, 4):
                A[i + j] = T.float32(1)
        for k in range(0):
            A[k] = T.float32(2)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32")):
        A[3] = T.float32(1)

    check(Simplify(), before, expected)


def test_a_branch_knows_its_condition():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32")):
        for i in range(8):
            if i < 4:
                if i < 6:
                    A[i] = T.float32(1)
            else:
                if i < 4:
                    A[i] = T.float32(2)
                else:
                    A[i] = T.float32(3)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32")):
        for i in range(8):
            if i < 4:
                A[i] = T.float32(1)
            else:
                A[i] = T.float32(3)

    check(Simplify(), before, expected)


def test_a_condition_on_memory_is_not_remembered():
    @T.prim_func
    def func(A: T.Buffer((1,), "int32"), B: T.Buffer((1,), "int32")):
        if A[0] < 5:
            A[0] = 9
            if A[0] < 5:
                B[0] = 1

    unchanged(Simplify(), func)


def test_stores_of_what_is_there_and_empty_branches_go():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            if n > i:
                A[i] = A[i]
            A[i] = T.float32(0)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            A[i] = T.float32(0)

    check(Simplify(), before, expected, numbers=False)


def test_names_of_variables_and_constants_go():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        for i in range(8):
            k: T.int32 = i + 0
            A[k] = k * 2 - i

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = i

    check(Simplify(), before, expected)


def test_loops_around_blocks_stay():
    @T.prim_func
    def func(A: T.Buffer((1,), "float32")):
        for i in range(1):
            with T.block("fill"):
                v = T.axis.spatial(1, i)
                T.reads()
                T.writes(A[v])
                A[v] = T.float32(1)

    after = apply(Simplify(), func)
    assert type(after.body.block.body).__name__ == "For"


def test_transitive_comparisons_only_when_asked():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), a: T.int32, b: T.int32, c: T.int32):
        if a < b and b < c:
            for i in range(8):
                if a < c:
                    A[i] = T.float32(1)

    with PassContext(config={"tir.Simplify": {"transitively_prove_inequalities": True}}):
        after = apply(Simplify(), func)
    assert type(after.body.then_case.body).__name__ == "BufferStore"


def test_nothing_to_do():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            B[i, j] = T.exp(A[j, i]) * T.float32(2)

    unchanged(Simplify(), func)


def test_unknown_options_are_refused():
    with pytest.raises(TypeMismatch, match=r"'tir\.Simplify' has no field 'prove_all'"):
        PassContext(config={"tir.Simplify": {"prove_all": True}})


def test_definitions_that_nothing_uses_disappear():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32")):
        for i in range(16):
            bits: T.int32 = T.Cast("int32", T.ceil(T.log2(T.Cast("float64", i + 1025))))
            if bits == 11:
                A[i] = T.float32(0)

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.float32(0)

    check(Simplify(), before, expected)


def test_choices_of_loaded_integers_know_their_conditions():
    @T.prim_func
    def before(A: T.Buffer((2, 8), "int32"), B: T.Buffer((2, 8), "int32")):
        for i, j in T.grid(2, 8):
            B[i, j] = T.if_then_else(i == 1 and j < 2, 0, T.max(7, T.if_then_else(i == 1 and j < 2, 0, A[i, j])))

    @T.prim_func
    def expected(A: T.Buffer((2, 8), "int32"), B: T.Buffer((2, 8), "int32")):
        for i, j in T.grid(2, 8):
            B[i, j] = T.if_then_else(i == 1 and j < 2, 0, T.max(7, A[i, j]))

    check(Simplify(), before, expected)


def test_extents_of_parameters_are_not_negative():
    @T.prim_func
    def before(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n * 32,), "float32")
        B = T.match_buffer(b, (m * 32 + 1 - 2,), "float32")
        A[T.min(T.int64(0), n)] = T.float32(0)
        B[T.min(T.int64(1), m)] = T.float32(0)
        B[T.min(T.int64(2), m)] = T.float32(0)

    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n * 32,), "float32")
        B = T.match_buffer(b, (m * 32 + 1 - 2,), "float32")
        A[T.int64(0)] = T.float32(0)
        B[T.int64(1)] = T.float32(0)
        B[T.min(T.int64(2), m)] = T.float32(0)

    check(Simplify(), before, expected, numbers=False)


def test_the_predicate_of_a_block_simplifies_its_indices_once_it_is_a_branch():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block(""):
                T.where(i >= 8)
                A[i % 8 + 8] = T.float32(1)

    assert "A[i % 8 + 8] = " in apply(Simplify(), before).script()
    assert "A[i] = " in apply(Simplify(), apply(LowerOpaqueBlock(), before)).script()


def test_shifts_extend_signs():
    @T.prim_func
    def func(A: T.Buffer((32,), "int32"), B: T.Buffer((32,), "int32"), C: T.Buffer((32,), "int32")):
        for i in range(32):
            B[i] = T.shift_right(T.shift_left(T.bitwise_and(A[i], 15), 28), 28)
            C[i] = T.shift_right(T.shift_left(A[i], 27), 27)

    a = np.arange(-16, 16, dtype="int32") * 3
    expected = [((a & 15) ^ 8) - 8, ((a & 31) ^ 16) - 16]
    interpreted = [a, np.zeros_like(a), np.zeros_like(a)]
    interpret(apply(Simplify(), func), *interpreted, outputs=[1, 2])
    np.testing.assert_array_equal(interpreted[1:], expected)
    native = [oneir.runtime.tensor(array) for array in (a, np.zeros_like(a), np.zeros_like(a))]
    oneir.compile(func, target="llvm")(*native)
    np.testing.assert_array_equal([array.numpy() for array in native[1:]], expected)


def test_a_shift_that_drops_bits_has_no_bounds():
    x = tir.Var("x", "int32")
    analyzer = Analyzer()
    nibble = tir.bitwise_and(x, 15)
    bound = analyzer.const_int_bound(tir.shift_left(nibble, 28))
    assert (bound.min_value, bound.max_value) == (-(1 << 31), (1 << 31) - 1)
    bound = analyzer.const_int_bound(tir.shift_left(nibble, 27))
    assert (bound.min_value, bound.max_value) == (0, 15 << 27)
