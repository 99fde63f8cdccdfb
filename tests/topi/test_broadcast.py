"""Broadcasting operators compute what NumPy computes, and print as documented."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from topi_native import run

from oneir import te, tir, topi
from oneir.runtime.error import ShapeMismatch, TypeMismatch

rng = np.random.default_rng(5)
SHAPES = [((3, 4), (3, 4)), ((2, 1, 4), (3, 1)), ((4,), (2, 4)), ((), (3,)), ((1,), (5,)), ((0, 3), (1, 3)), ((), ())]


def of(shape, dtype, low=-6, high=7):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return rng.integers(0 if dtype[0] == "u" else low, high, shape).astype(dtype)
    wide = rng.uniform(low, high, shape)
    return np.asarray(wide, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_broadcast_as_in_numpy(shapes):
    a, b = (of(s, "float32") for s in shapes)
    got = run(topi.subtract, a, b)
    assert got.shape == (a - b).shape
    np.testing.assert_array_equal(got, a - b)


ARITHMETIC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
COMPARISON = {
    "greater": np.greater,
    "less": np.less,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater_equal": np.greater_equal,
    "less_equal": np.less_equal,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint16", "int64"])
def test_arithmetic_and_comparisons_of_every_dtype(dtype):
    a, b = of((3, 5), dtype), of((5,), dtype)
    a[1] = b
    got = run(lambda x, y: [getattr(topi, name)(x, y) for name in [*ARITHMETIC, *COMPARISON]], a, b)
    for result, expected in zip(got, [f(a, b) for f in [*ARITHMETIC.values(), *COMPARISON.values()]], strict=True):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "float64"])
def test_division_and_remainders(dtype):
    a, b = of((4, 6), dtype, -20, 20), of((6,), dtype, 1, 6)
    b = np.where(b == 0, 3, b).astype(dtype) * np.array([1, 1, 1, -1, -1, 1]).astype(dtype)
    got = run(lambda x, y: [topi.divide(x, y), topi.floor_divide(x, y), topi.mod(x, y), topi.floor_mod(x, y)], a, b)
    integers = np.issubdtype(np.dtype(dtype), np.integer)
    quotient = np.trunc(a.astype("float64") / b) if integers else a / b
    np.testing.assert_allclose(got[0], quotient, rtol=1e-6)
    tolerance = {"rtol": 0} if integers else {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(got[1], a // b, **tolerance)
    np.testing.assert_allclose(got[2], np.fmod(a, b), **tolerance)
    np.testing.assert_allclose(got[3], np.mod(a, b), **tolerance)


def test_powers_and_logarithms_of_sums():
    a, b = of((3, 4), "float32", 0.1, 5), of((4,), "float32")
    power, total = run(lambda x, y: [topi.power(x, y), topi.log_add_exp(x, y)], a, b)
    np.testing.assert_allclose(power, a**b, rtol=1e-5)
    np.testing.assert_allclose(total, np.logaddexp(a, b), rtol=1e-5)
    far = run(topi.log_add_exp, np.float32([1000, -1000]), np.float32([1000, -1000]))
    np.testing.assert_allclose(far, np.float32([1000, -1000]) + np.log(2), rtol=1e-6)
    c, d = of((5,), "int32", -5, 6), np.array([0, 1, 2, 3, 4], "int32")
    np.testing.assert_array_equal(run(topi.power, c, d), c**d)


def test_bits_and_bools():
    a, b = of((4, 3), "int32", -100, 100), of((3,), "int32", 0, 8)
    bits = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]
    got = run(lambda x, y: [*(getattr(topi, name)(x, y) for name in bits), topi.bitwise_not(x)], a, b)
    for result, expected in zip(got, [a & b, a | b, a ^ b, a << b, a >> b, ~a], strict=True):
        np.testing.assert_array_equal(result, expected)
    p, q = np.array([[False], [True]]), np.array([False, True])
    got = run(
        lambda x, y: [topi.logical_and(x, y), topi.logical_or(x, y), topi.logical_xor(x, y), topi.logical_not(x)], p, q
    )
    for result, expected in zip(got, [p & q, p | q, p ^ q, ~p], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_number_takes_the_dtype_of_the_tensor():
    a = of((3,), "float16")
    np.testing.assert_array_equal(run(lambda x: topi.add(topi.multiply(2, x), 1), a), a * np.float16(2) + np.float16(1))
    assert topi.add(te.placeholder((3,), "int64"), 1).dtype == "int64"
    n = tir.Var("n", "int32")
    assert topi.add(n, 1).same_as(n + 1) or str(topi.add(n, 1)) == "n + 1"


def test_operators_of_python_over_tensors():
    a, b = of((2, 3), "float32"), of((3,), "float32", 1, 5)
    got = run(lambda x, y: [x + y, 2 - x, x * 3, 1 / y], a, b)
    for result, expected in zip(got, [a + b, 2 - a, a * 3, 1 / b], strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    scalar = te.placeholder((), name="s")
    assert str(scalar * 2) == "s[()] * T.float32(2.0)"  # a tensor without dimensions is an expression


@pytest.mark.parametrize(("shape", "target"), [((3, 1), (2, 3, 4)), ((), (2, 2)), ((1, 4), (0, 4)), ((2, 3), (2, 3))])
def test_broadcast_to(shape, target):
    a = of(shape, "float32")
    np.testing.assert_array_equal(run(lambda x: topi.broadcast_to(x, target), a), np.broadcast_to(a, target))


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_where(dtype):
    c = of((2, 1, 3), "bool") if dtype == "bool" else np.array([[[0, 1, 0]], [[2, 0, -1]]], dtype)
    a, b = of((4, 1), "float32"), of((3,), "float32")
    np.testing.assert_array_equal(run(topi.where, c, a, b), np.where(c, a, b))


def test_symbolic_extents_meet_known_ones():
    a, b = of((4, 3), "float32"), of((1, 3), "float32")
    got = run(topi.add, a, b, shapes={0: ("n", 3), 1: (1, "m")})
    np.testing.assert_array_equal(got, a + b)
    n = tir.Var("n", "int64")
    made = topi.add(te.placeholder((n, 1), name="A"), te.placeholder((n, 4), name="B"))
    assert made.shape[0].same_as(n) and made.op.name == "T_add" and made.op.tag == "broadcast"


ADD = """
# from tvm.script import tir as T

@T.prim_func
def main(A: T.Buffer((T.int64(4), T.int64(1)), "float32"), B: T.Buffer((T.int64(4), T.int64(8)), "float32"), T_add: T.Buffer((T.int64(4), T.int64(8)), "float32")):
    T.func_attr({"tir.noalias": True})
    # with T.block("root"):
    for ax0, ax1 in T.grid(T.int64(4), T.int64(8)):
        with T.block("T_add"):
            v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
            T.reads(A[v_ax0, T.int64(0)], B[v_ax0, v_ax1])
            T.writes(T_add[v_ax0, v_ax1])
            T_add[v_ax0, v_ax1] = A[v_ax0, T.int64(0)] + B[v_ax0, v_ax1]
"""


def test_a_broadcast_prints_as_documented():
    def placeholder(name, *shape):
        return te.placeholder([tir.const(d, "int64") for d in shape], name=name)

    a, b = placeholder("A", 4, 1), placeholder("B", 4, 8)
    assert te.create_prim_func([a, b, topi.add(a, b)]).script().strip() == ADD.strip()


# -- refusals --


def test_shapes_that_do_not_fit_are_named():
    a, b = te.placeholder((4, 3)), te.placeholder((2, 1, 2))
    with pytest.raises(
        ShapeMismatch, match=r"topi.multiply: the shapes \(4, 3\) and \(2, 1, 2\) do not broadcast: 3 meets 2"
    ):
        topi.multiply(a, b)
    with pytest.raises(
        ShapeMismatch, match=r"topi.broadcast_to: a tensor of shape \(4, 3\) does not broadcast to \(3,\)"
    ):
        topi.broadcast_to(a, (3,))
    with pytest.raises(ShapeMismatch, match=r"topi.broadcast_to: .* \(4, 3\) does not broadcast to \(1, 3\)"):
        topi.broadcast_to(a, (1, 3))


def test_dtypes_that_do_not_fit_are_named():
    a = te.placeholder((4,))
    with pytest.raises(TypeMismatch, match=r"expected a bool expression"):
        topi.logical_and(a, a)
    with pytest.raises(TypeMismatch, match=r"expects integers, found float32"):
        topi.bitwise_and(a, a)
    with pytest.raises(TypeMismatch, match=r"topi.where: expected x and y of one dtype, found float32 and int32"):
        topi.where(te.placeholder((4,), "bool"), a, te.placeholder((4,), "int32"))
