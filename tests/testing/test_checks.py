"""The checks of passes pass what is right and refuse each kind of mistake, saying which."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir.ir.structural import StructuralMismatch
from oneir.ir.transform import PassContext, Sequential, module_pass
from oneir.runtime.error import AssertionFailure, InvalidValue, WellFormedError
from oneir.script import tir as T
from oneir.testing import (
    VerifyNumerics,
    assert_close,
    assert_same_numbers,
    check_pass,
    interpret,
    random_inputs,
    tolerances,
)
from oneir.tir import transform


def scaled(factor):
    @T.prim_func
    def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            B[i, j] = A[i, j] * T.float32(factor)

    return main


def to_factor(factor, name="Rescale"):
    """A pass that replaces the function, which its name does not tell."""

    @module_pass(opt_level=0, name=name)
    def rescale(mod, ctx):
        return oneir.IRModule({"main": scaled(factor)})

    return rescale


@module_pass(opt_level=0, name="Nothing")
def nothing(mod, ctx):
    return mod


def test_a_right_pass_passes():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32")):
        for i in range(8):
            if i < 10:
                A[i * 1] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(1)

    check_pass(transform.Simplify(), before.without_attr("global_symbol"), expected.without_attr("global_symbol"))
    check_pass(nothing, expected, expected)


def test_another_result_than_expected():
    with pytest.raises(StructuralMismatch, match=r"StructuralEqual check failed, caused by lhs at .*value"):
        check_pass(nothing, scaled(2.0), scaled(3.0))


def test_a_pass_that_rebuilds_what_it_does_not_change():
    with pytest.raises(
        AssertionFailure, match="Rescale builds a new module out of a module in which it has nothing to do"
    ):
        check_pass(to_factor(2.0), scaled(2.0), scaled(2.0))


def test_a_pass_that_changes_the_numbers():
    with pytest.raises(
        AssertionFailure, match="Rescale changes what `main` computes: `B` differs in 16 of 16 elements"
    ):
        check_pass(to_factor(3.0), scaled(2.0), scaled(3.0), idempotent=False)


def test_a_pass_that_makes_a_program_malformed():
    A = oneir.tir.decl_buffer((4,), "float32", "A")
    unknown = oneir.ir.expr.Var("i", "int32")
    broken = oneir.tir.PrimFunc([A], oneir.tir.BufferStore(A, 1.0, [unknown]))
    with pytest.raises(WellFormedError, match="`i`"):
        check_pass(nothing, broken, broken)


def test_verify_numerics_names_the_pass_that_broke_the_program():
    mod = oneir.IRModule({"main": scaled(2.0)})
    passes = Sequential([nothing, to_factor(2.0, "Right"), to_factor(2.5, "Wrong"), nothing])
    broken = pytest.raises(AssertionFailure, match=r"the pass Wrong changes .* off by .* is allowed")
    with broken, PassContext(instruments=[VerifyNumerics()]):
        passes(mod)


def test_a_reordered_sum_is_the_same_and_a_shorter_one_is_not():
    def total(backwards, count=64):
        @T.prim_func
        def main(A: T.Buffer((64,), "float32"), B: T.Buffer((1,), "float32")):
            B[0] = T.float32(0)
            for i in range(count):
                B[0] = B[0] + A[63 - i if backwards else i]

        return main

    assert_same_numbers(total(False), total(True))
    with pytest.raises(AssertionFailure, match=r"the worst is `B\[0\]`"):
        assert_same_numbers(total(False), total(True, 63))


def test_the_tolerance_of_a_sum_follows_the_magnitudes_added():
    @T.prim_func
    def main(A: T.Buffer((3,), "float32"), B: T.Buffer((2,), "float32")):
        B[0] = A[0] + A[1] + A[2]
        B[1] = T.exp(A[0])

    b = np.zeros(2, "float32")
    allowed = tolerances(main, np.array([1, -1, 0.5], "float32"), b)
    eps = np.finfo("float32").eps
    assert allowed[1][0] == pytest.approx(4 * eps * 2.5, rel=1e-6)
    assert allowed[1][1] == pytest.approx(4 * eps * np.exp(1), rel=1e-6)
    assert (allowed[0] == 0).all()


@pytest.mark.parametrize("dtype, allowed", [("float32", 2.0**-126), ("float16", 4 * 2.0**-24), ("float64", 4 * 5e-324)])
def test_only_exponentials_may_be_zero_where_they_would_be_subnormal(dtype, allowed):
    @T.prim_func
    def main(A: T.Buffer((1,), dtype), B: T.Buffer((2,), dtype)):
        B[0] = T.exp(A[0])
        B[1] = T.tan(A[0])

    size = {"float32": 95.0, "float16": 16.0, "float64": 740.0}[dtype]  # e^-size is subnormal
    far, _ = tolerances(main, np.array([-size], dtype), np.zeros(2, dtype))[1]
    assert far == pytest.approx(allowed, rel=1e-2)
    _, near = tolerances(main, np.array([1e-5], dtype), np.zeros(2, dtype))[1]
    assert near < 20 * np.finfo(dtype).eps * 1e-5 + 8 * float(np.finfo(dtype).smallest_subnormal)


def test_integers_and_exact_floats_have_no_tolerance():
    assert_close("x", np.array([1.0, np.nan]), np.array([1.0, np.nan]), np.zeros(2))
    with pytest.raises(
        AssertionFailure, match=r"`x` differs in 1 of 2 elements; the worst is `x\[1\]`: expected 2, found 3"
    ):
        assert_close("x", np.array([1, 3]), np.array([1, 2]), None)
    with pytest.raises(AssertionFailure, match=r"expected inf, found 1\.0"):
        assert_close("x", np.array([1.0]), np.array([np.inf]), np.zeros(1))


def test_random_inputs_agree_on_symbols_and_keep_indices_in_range():
    @T.prim_func
    def f(n: T.int32, a: T.handle, i: T.handle, b: T.handle):
        A = T.match_buffer(a, (n, 3), "float16")
        I = T.match_buffer(i, (n,), "int32")
        B = T.match_buffer(b, (n * 2,), "float16")
        for k in range(n):
            B[k] = A[I[k], 0]

    for seed in range(5):
        n, a, i, b = random_inputs(f, np.random.default_rng(seed))
        assert a.shape == (n, 3) and a.dtype == np.float16
        assert i.shape == (n,) and b.shape == (2 * n,)
        interpret(f, n, a, i, b)


def test_a_parameter_that_extents_are_made_of_is_an_extent():
    @T.prim_func
    def f(a: T.handle, n: T.int64):
        A = T.match_buffer(a, (n * 3,), "float32")
        T.evaluate(A[0])

    for seed in range(3):
        a, n = random_inputs(f, np.random.default_rng(seed))
        assert n > 0 and a.shape == (3 * n,)


def test_no_argument_is_made_up_for_a_pointer():
    @T.prim_func
    def f(p: T.handle):
        T.evaluate(T.isnullptr(p))

    with pytest.raises(InvalidValue, match="`p`, a pointer to an unknown shape"):
        random_inputs(f, np.random.default_rng(0))


def test_a_sine_of_an_argument_known_to_less_than_a_period_may_be_anything():
    @T.prim_func
    def wave(A: T.Buffer((1,), "float16"), B: T.Buffer((1,), "float16")):
        B[0] = T.sin(T.sqrt(A[0] + T.float16(1)) * T.sqrt(A[0]))

    a = np.array([60000], "float16")
    # The product, about 60000, is known to several units of 32 each.
    allowed = tolerances(wave, a, np.zeros_like(a))
    assert allowed[1][0] >= 1.0
