"""MultiplyReciprocals: floats are multiplied by what they were divided by."""

from __future__ import annotations

from pass_checks import apply, check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import MultiplyReciprocals


def test_a_constant_divisor_becomes_its_reciprocal():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] / T.float32(8)

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] * T.float32(0.125)

    check(MultiplyReciprocals(), before, expected)


def test_divisors_without_a_normal_reciprocal_stay():
    @T.prim_func
    def func(A: T.Buffer((4,), "float32"), n: T.float32):
        A[0] = A[0] / T.float32(1e-30)
        A[1] = A[1] / T.float32(1e30)
        A[2] = A[2] / n

    assert apply(MultiplyReciprocals(), func).script().count(" / ") == 3


def test_integers_stay():
    @T.prim_func
    def func(A: T.Buffer((4,), "int32")):
        A[0] = T.truncdiv(A[0], 4)

    unchanged(MultiplyReciprocals(), func)
