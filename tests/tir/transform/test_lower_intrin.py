"""LowerIntrin: calls by the rules of their operators, divisions by what is known of their operands."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, same_numbers

from oneir.ir.expr import Call
from oneir.ir.op import Op, register_intrin_lowering
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.stmt_functor import post_order_visit
from oneir.tir.transform import LowerIntrin


def for_llvm(func):
    return func.with_attr("target", Target("llvm"))


def calls(func):
    found = set()
    post_order_visit(func.body, lambda n: found.add(n.op.name) if isinstance(n, Call) else None)
    return found


def test_mathematics_becomes_arithmetic_even_inside_of_itself():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = T.exp(T.tanh(T.sqrt(T.fabs(A[i]))))

    found = calls(apply(LowerIntrin(), for_llvm(before)))
    # Products and sums are fused where the processor can: a call to `fma` would need the C library elsewhere.
    assert not found & {"tir.exp", "tir.tanh", "tir.fma"}
    assert {"tir.sqrt", "tir.fabs"} <= found


def test_divisions_by_powers_of_two_are_shifts_whatever_the_sign():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in range(8):
            B[i] = A[i] // 8 + A[i] % 4

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i in range(8):
            B[i] = T.shift_right(A[i], 3) + T.bitwise_and(A[i], 3)

    check(LowerIntrin(), for_llvm(before), for_llvm(expected))


def test_other_divisions_truncate_where_nothing_is_negative():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            B[i] = A[i // 3] // 3 + (i + 2) % 5

    @T.prim_func
    def expected(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            B[i] = A[T.truncdiv(i, 3)] // 3 + T.truncmod(i + 2, 5)

    check(LowerIntrin(), for_llvm(before), for_llvm(expected))


def test_what_is_known_holds_in_its_own_branch_and_no_longer():
    @T.prim_func
    def before(n: T.int32, m: T.int32, A: T.Buffer((8,), "int32")):
        if n >= 0:
            A[0] = n // 3
        if m >= 0:
            A[1] = n
        A[2] = n // 3 + m // 3
        assert m >= 0, "m is negative"
        A[3] = n // 5
        if n >= 0:
            if m > 1:
                A[4] = n
            for i in range(8):
                A[i] = (n + m) // 7 + i % 3
        A[5] = m // 9

    @T.prim_func
    def expected(n: T.int32, m: T.int32, A: T.Buffer((8,), "int32")):
        if n >= 0:
            A[0] = T.truncdiv(n, 3)
        if m >= 0:
            A[1] = n
        A[2] = n // 3 + m // 3
        assert m >= 0, "m is negative"
        A[3] = n // 5
        if n >= 0:
            if m > 1:
                A[4] = n
            for i in range(8):
                A[i] = T.truncdiv(n + m, 7) + T.truncmod(i, 3)
        A[5] = T.truncdiv(m, 9)

    assert_structural_equal(apply(LowerIntrin(), for_llvm(before)).body, expected.body, map_free_vars=True)


def test_vector_indices_divide_like_scalars():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        B[T.Ramp(0, 1, 8)] = A[T.Ramp(0, 1, 8) // T.Broadcast(3, 8)]

    after = apply(LowerIntrin(), for_llvm(before))
    assert type(after.body.value.indices[0]).__name__ == "Div"
    same_numbers(before, after)


@pytest.fixture
def answer():
    """An operator whose rules are forgotten after the test."""
    op = Op.register("tir.test_answer", num_inputs=0)
    yield op
    for target in ("default", "llvm"):
        op.reset_attr(f"{target}.FLowerIntrinsic")


def test_a_rule_of_the_target_goes_before_the_default(answer: Op):
    register_intrin_lowering("tir.test_answer", "default", f=lambda call: Call("float32", "tir.sqrt", [4.0]))

    @T.prim_func
    def before(A: T.Buffer((1,), "float32")):
        A[0] = T.call_intrin("float32", "tir.test_answer")

    assert calls(apply(LowerIntrin(), for_llvm(before))) == {"tir.sqrt"}
    register_intrin_lowering("tir.test_answer", "llvm", f=lambda call: Call("float32", "tir.fabs", [4.0]))
    assert calls(apply(LowerIntrin(), for_llvm(before))) == {"tir.fabs"}


def test_a_function_without_target_is_refused():
    @T.prim_func
    def func(A: T.Buffer((1,), "float32")):
        A[0] = T.exp(A[0])

    with pytest.raises(InvalidValue, match="LowerIntrin expects a function with a target, but 'func' has none"):
        apply(LowerIntrin(), func)
