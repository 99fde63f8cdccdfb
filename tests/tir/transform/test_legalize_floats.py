"""Arithmetic of narrow floats in wider ones, and their storage as integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from pass_checks import apply, check, unchanged

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir.transform import BF16ComputeLegalize, BF16StorageLegalize, FP8ComputeLegalize, FP8StorageLegalize


def test_an_expression_is_wide_and_a_store_rounds():
    @T.prim_func
    def before(A: T.Buffer((8,), "bfloat16"), B: T.Buffer((8,), "bfloat16")):
        for i in range(8):
            B[i] = A[i] * A[i] + T.exp(A[i])

    @T.prim_func
    def expected(A: T.Buffer((8,), "bfloat16"), B: T.Buffer((8,), "bfloat16")):
        for i in range(8):
            B[i] = T.Cast(
                "bfloat16",
                T.Cast("float32", A[i]) * T.Cast("float32", A[i]) + T.exp(T.Cast("float32", A[i])),
            )

    check(BF16ComputeLegalize(), before, expected, numbers=False)


def test_a_copy_is_not_converted():
    @T.prim_func
    def func(A: T.Buffer((8,), "bfloat16"), B: T.Buffer((8,), "bfloat16")):
        for i in range(8):
            B[i] = A[i]

    unchanged(BF16ComputeLegalize(), func)


def test_a_written_conversion_rounds():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = T.Cast("float32", T.Cast("bfloat16", A[i]) + T.bfloat16(1))

    after = apply(BF16ComputeLegalize(), before)
    a = np.random.default_rng(0).standard_normal(8).astype(np.float32)
    b = np.zeros(8, np.float32)
    interpret(after, a, b)
    np.testing.assert_array_equal(b, a.astype(ml_dtypes.bfloat16).astype(np.float32) + np.float32(1))


def test_names_and_comparisons_of_float8():
    @T.prim_func
    def before(A: T.Buffer((8,), "float8_e4m3fn"), B: T.Buffer((8,), "float8_e4m3fn")):
        for i in range(8):
            x: T.float8_e4m3fn = A[i] + A[i]
            B[i] = T.if_then_else(x > T.float8_e4m3fn(1), x, A[i])

    after = apply(FP8ComputeLegalize(), before)
    assert after.body.body.var.dtype == "float32"
    a = np.array([0.25, 0.5, 1, 1.5, -3, 100, 0, 2], ml_dtypes.float8_e4m3fn)
    b = np.zeros(8, ml_dtypes.float8_e4m3fn)
    interpret(after, a, b)
    wide = a.astype(np.float32)
    np.testing.assert_array_equal(b, np.where(wide * 2 > 1, wide * 2, wide).astype(ml_dtypes.float8_e4m3fn))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_memory_inside_of_a_function_is_kept_as_integers(dtype):
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        x = T.allocate([64], dtype, "global")
        x_1 = T.Buffer((64,), dtype, data=x)
        for i in range(64):
            x_1[i] = T.Cast(dtype, A[i])
        for i in range(64):
            B[i] = T.Cast("float32", x_1[i])

    storage = BF16StorageLegalize() if dtype == "bfloat16" else FP8StorageLegalize()
    after = apply(storage, before)
    assert after.body.dtype == ("uint16" if dtype == "bfloat16" else "uint8")
    a = (np.random.default_rng(0).standard_normal(64) * 10).astype(np.float32)
    b = np.zeros(64, np.float32)
    interpret(after, a, b)
    np.testing.assert_array_equal(b, a.astype(getattr(ml_dtypes, dtype)).astype(np.float32))


def test_parameters_must_have_been_unpacked():
    @T.prim_func
    def func(A: T.Buffer((8,), "bfloat16")):
        A[0] = A[1]

    with pytest.raises(InvalidValue, match="run MakePackedAPI before this pass"):
        apply(BF16StorageLegalize(), func)


def test_arithmetic_must_have_been_widened():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        A[0] = T.Cast("float32", T.Cast("bfloat16", A[1]) + T.Cast("bfloat16", A[2]))

    with pytest.raises(InvalidValue, match="run the pass that computes in a wider float first"):
        apply(BF16StorageLegalize(), func)
