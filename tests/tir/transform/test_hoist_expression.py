"""HoistIfThenElse and HoistExpression: what leaves a loop and what must not."""

from __future__ import annotations

from pass_checks import apply, check, unchanged

from oneir.ir.transform import PassContext
from oneir.script import tir as T
from oneir.tir.transform import HoistedConditionals, HoistExpression, HoistExpressionConfig, HoistIfThenElse


def test_a_condition_around_the_body_leaves_every_loop():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), n: T.int32):
        for i in range(8):
            for j in range(8):
                if n > 4:
                    A[i, j] = T.float32(0)
                else:
                    A[i, j] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((8, 8), "float32"), n: T.int32):
        if n > 4:
            for i, j in T.grid(8, 8):
                A[i, j] = T.float32(0)
        else:
            for i, j in T.grid(8, 8):
                A[i, j] = T.float32(1)

    check(HoistIfThenElse(), before, expected, numbers=False)


def test_conditions_on_loop_variables_and_on_memory_stay():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            if i < n:
                A[i] = 0
        for i in range(8):
            if A[0] < n:
                A[i] = 9

    unchanged(HoistIfThenElse(), func)
    unchanged(HoistExpression(), func)


def test_a_part_of_the_body_makes_two_loops_only_in_hoist_expression():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            A[i] = T.if_then_else(n > 4, T.float32(1), T.float32(2))

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), n: T.int32):
        if n > 4:
            for i in range(8):
                A[i] = T.float32(1)
        else:
            for i in range(8):
                A[i] = T.float32(2)

    unchanged(HoistIfThenElse(), before)
    check(HoistExpression(), before, expected, numbers=False)
    only_statements = HoistExpressionConfig(hoisted_conditionals=HoistedConditionals.IfElseStmt)
    with PassContext(config={"tir.HoistExpression": only_statements}):
        unchanged(HoistExpression(), before)


def test_a_part_of_a_condition_and_a_binding():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), n: T.int32):
        for i in range(8):
            x: T.int32 = n * n
            if i < 5 and n > 4:
                A[i] = x

    after = apply(HoistExpression(), before)
    assert type(after.body).__name__ == "LetStmt"
    assert str(after.body.body.condition) == "n > 4"
    assert str(after.body.body.then_case.body.condition) == "i < 5"


def test_a_condition_stays_in_a_loop_whose_rounds_are_barriers_apart():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32")):
        for thread in T.thread_binding(8, thread="threadIdx.x"):
            shared = T.decl_buffer((8,), "int32", scope="shared")
            for i in range(3):
                if thread < 5:
                    shared[thread] = A[thread] + i

    unchanged(HoistIfThenElse(), func)
    unchanged(HoistExpression(), func)
