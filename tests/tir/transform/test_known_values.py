"""Simplify with what memory is known to hold: conditions and loads that earlier stores and assumptions decide."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, same_numbers

from oneir.ir.structural import assert_structural_equal
from oneir.ir.transform import PassContext
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir.transform import Simplify


def simplified(func, option="prove_conditional"):
    with PassContext(config={"tir.Simplify": {f"propagate_knowns_to_{option}": True}}):
        return apply(Simplify(), func)


def check(before, expected, option="prove_conditional"):
    after = simplified(before, option)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))
    same_numbers(before, after)


def stays(func):
    check(func, func)


def test_a_later_loop_meets_what_an_earlier_one_stored():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            B[i] = i
        for i in range(16):
            if B[i] < 16:
                B[i] = A[i] + B[i]
            else:
                B[i] = 0

    @T.prim_func
    def expected(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            B[i] = i
        for i in range(16):
            B[i] = A[i] + B[i]

    check(before, expected)


def test_an_iteration_does_not_meet_what_a_later_one_stores():
    @T.prim_func
    def func(A: T.Buffer((16,), "int32")):
        for i in range(16):
            A[i] = 0
        for i in range(15):
            A[i] = 1
            if A[i + 1] == 0:
                A[i] = 2
            if A[14 - i] == 0:
                A[i] = A[i] + 1

    after = simplified(func)
    same_numbers(func, after)
    assert "A[i + 1] ==" not in after.script()
    assert "A[14 - i] ==" in after.script()


def test_sides_of_a_branch_agree_or_nothing_is_known():
    @T.prim_func
    def before(A: T.Buffer((2,), "int32"), n: T.int32):
        A[0] = 1
        A[1] = 1
        if n < 3:
            A[1] = 2
        if A[0] == 1:
            A[0] = 5
        if A[1] == 1:
            A[1] = 6

    @T.prim_func
    def expected(A: T.Buffer((2,), "int32"), n: T.int32):
        A[0] = 1
        A[1] = 1
        if n < 3:
            A[1] = 2
        A[0] = 5
        if A[1] == 1:
            A[1] = 6

    after = simplified(before)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))
    for n in (2, 3):
        first, second = np.zeros(2, "int32"), np.zeros(2, "int32")
        interpret(before, first, n)
        interpret(after, second, n)
        assert first.tolist() == second.tolist()


def test_elements_of_a_vector():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        A[2:6] = T.Ramp(7, 1, 4)
        if A[5] == 10:
            A[5] = 1
        if A[6] == 11:
            A[6] = 1

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32")):
        A[2:6] = T.Ramp(7, 1, 4)
        A[5] = 1
        if A[6] == 11:
            A[6] = 1

    check(before, expected)


def test_assumptions_hold_where_they_stand():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 4:
                T.evaluate(T.assume(A[i] == 0))
        for i in range(16):
            if A[i // 4] == 0:
                A[i] = A[i] + 3
        for i in range(16):
            if A[i] == 0:
                A[i] = 9

    text = simplified(before).script()
    assert "A[i // 4] == 0" in text, "a store of an earlier iteration may be met"
    assert text.count("A[i] == 0") == 2


@pytest.mark.parametrize("simplify", [True, False])
def test_values_replace_loads_only_if_asked(simplify):
    @T.prim_func
    def before(A: T.Buffer((1,), "int32")):
        A[0] = 5
        A[0] = A[0] + 7

    after = simplified(before, "simplify_expressions" if simplify else "prove_conditional")
    assert str(after.body.seq[1].value) == ("12" if simplify else "A[0] + 7")


def test_what_a_call_may_change_is_not_known():
    @T.prim_func
    def func(A: T.Buffer((1,), "int32")):
        A[0] = 5
        T.evaluate(T.call_extern("int32", "change", A.data))
        if A[0] == 5:
            A[0] = 6

    assert "A[0] == 5" in simplified(func).script()


def test_a_loop_that_may_not_run_leaves_nothing():
    @T.prim_func
    def func(A: T.Buffer((1,), "int32"), n: T.int32):
        for i in range(n):
            A[0] = 5
        if A[0] == 5:
            A[0] = 6

    assert "A[0] == 5" in simplified(func).script()


def test_a_condition_follows_from_a_definition_and_a_description_keeps_its_variable():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            small: T.bool = i < 3
            if small or i >= 3:
                A[i] = T.Cast("int32", small)
        size = n
        B = T.decl_buffer((size,), "int32", data=A.data)
        B[0] = 1

    text = simplified(func).script()
    assert "if " not in text
    assert "size: T.int32 = n" in text
