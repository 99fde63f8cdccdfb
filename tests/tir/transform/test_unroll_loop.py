"""UnrollLoop: what is written out, how constants fold, what the options and pragmas choose."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.ir.transform import PassContext
from oneir.runtime.error import InvalidValue, TypeMismatch
from oneir.script import tir as T
from oneir.tir.stmt import ForKind
from oneir.tir.transform import UnrollLoop, UnrollLoopConfig


def test_iterations_are_written_out_and_folded():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for k in range(8):
            for i in T.unroll(2):
                for j in T.unroll(2):
                    B[(k * 2 + i) * 4 + j] = A[k + j]

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for k in range(8):
            B[k * 2 * 4] = A[k]
            B[k * 2 * 4 + 1] = A[k + 1]
            B[k * 2 * 4 + 4] = A[k]
            B[k * 2 * 4 + 5] = A[k + 1]

    check(UnrollLoop(), before, expected)


def test_conditions_that_become_constant_are_decided():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32")):
        for i in T.unroll(4):
            if i < 2:
                A[i] = T.if_then_else(i == 1, T.float32(1), T.float32(2))

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32")):
        A[0] = T.float32(2)
        A[1] = T.float32(1)

    check(UnrollLoop(), before, expected)


def test_a_minimum_other_than_zero():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        for i in T.unroll(3, 5):
            A[i] = i

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32")):
        A[3] = 3
        A[4] = 4

    check(UnrollLoop(), before, expected)


def test_copies_have_definitions_of_their_own():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32")):
        for i in T.unroll(2):
            x: T.float32 = A[i]
            for k in range(4):
                A[i * 4 + k] = x

    after = apply(UnrollLoop(), before)
    first, second = after.body.seq
    assert first.var is not second.var
    assert first.body.loop_var is not second.body.loop_var
    same_numbers(before, after)


def test_short_serial_loops_when_asked():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32")):
        for k in range(2):
            for i in range(2):
                A[k * 4 + i] = T.float32(0)

    unchanged(UnrollLoop(), before)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32")):
        for k in range(2):
            A[k * 4] = T.float32(0)
            A[k * 4 + 1] = T.float32(0)

    with PassContext(config={"tir.UnrollLoop": {"auto_max_step": 3}}):
        check(UnrollLoop(), before, expected)


def test_without_explicit_unrolling_loops_are_only_marked():
    @T.prim_func
    def before(A: T.Buffer((2,), "float32")):
        for i in range(2):
            A[i] = T.float32(0)

    with PassContext(config={"tir.UnrollLoop": UnrollLoopConfig(auto_max_extent=2, explicit_unroll=False)}):
        assert apply(UnrollLoop(), before).body.kind is ForKind.UNROLLED


def test_pragmas_of_the_function_count():
    @T.prim_func
    def before(A: T.Buffer((2,), "float32")):
        with T.attr(T.int32(0), "pragma_auto_unroll_max_step", 16):
            for i in range(2):
                A[i] = T.float32(0)

    @T.prim_func
    def expected(A: T.Buffer((2,), "float32")):
        A[0] = T.float32(0)
        A[1] = T.float32(0)

    check(UnrollLoop(), before, expected)


def test_loops_that_index_local_memory_when_asked():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32")):
        acc = T.allocate([4], "float32", "local")
        acc_1 = T.Buffer((4,), data=acc, scope="local")
        for i in range(4):
            acc_1[i] = A[i]
        for i in range(4):
            A[i] = T.float32(1)

    with PassContext(config={"tir.UnrollLoop": {"unroll_local_access": True}}):
        after = apply(UnrollLoop(), before)
    assert [type(s).__name__ for s in after.body.body.seq if True] == ["BufferStore"] * 4 + ["For"]


def test_loops_are_only_marked_for_compilers_that_unroll():
    @T.prim_func
    def before(A: T.Buffer((4, 4), "float32")):
        T.attr(T.int32(0), "pragma_auto_unroll_max_step", 16)
        T.attr(T.int32(0), "pragma_unroll_explicit", 1)
        for i in T.unroll(4):
            for j in range(4):
                A[i, j] = T.float32(0)

    @T.prim_func
    def expected(A: T.Buffer((4, 4), "float32")):
        for i in T.unroll(4):
            for j in T.unroll(4):
                A[i, j] = T.float32(0)

    check(UnrollLoop(expand=False), before, expected)


def test_an_unknown_extent_is_refused():
    @T.prim_func
    def before(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in T.unroll(n):
            A[i] = T.float32(0)

    with pytest.raises(InvalidValue, match="unrolled loop over i must have a constant extent, found n"):
        apply(UnrollLoop(), before)


def test_unknown_options_are_refused():
    with pytest.raises(TypeMismatch, match="has no field 'max_step'; it has auto_max_step"):
        PassContext(config={"tir.UnrollLoop": {"max_step": 3}})
