"""Elementwise functions compute what NumPy computes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from topi_native import run

from oneir import te, tir, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from oneir.target import Target

rng = np.random.default_rng(6)

# The reference, and the interval that the function is tried on.
FLOAT = {
    "exp": (np.exp, -5, 5),
    "erf": (np.vectorize(math.erf), -3, 3),
    "tanh": (np.tanh, -3, 3),
    "tan": (np.tan, -1, 1),
    "cos": (np.cos, -9, 9),
    "cosh": (np.cosh, -3, 3),
    "sin": (np.sin, -9, 9),
    "sinh": (np.sinh, -3, 3),
    "acos": (np.arccos, -1, 1),
    "acosh": (np.arccosh, 1, 5),
    "asin": (np.arcsin, -1, 1),
    "asinh": (np.arcsinh, -5, 5),
    "atan": (np.arctan, -5, 5),
    "atanh": (np.arctanh, -0.9, 0.9),
    "log": (np.log, 0.1, 9),
    "log2": (np.log2, 0.1, 9),
    "log10": (np.log10, 0.1, 9),
    "sqrt": (np.sqrt, 0, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -5, 5),
    "fast_exp": (np.exp, -5, 5),
    "fast_tanh": (np.tanh, -12, 12),
    "fast_erf": (np.vectorize(math.erf), -5, 5),
}
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 5e-3, "bfloat16": 3e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_functions_of_floats(dtype):
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    inputs = [rng.uniform(low, high, 21).astype(numpy_dtype) for _, low, high in FLOAT.values()]
    results = run(lambda *xs: [getattr(topi, n)(x) for n, x in zip(FLOAT, xs, strict=True)], *inputs)
    for name, x, result in zip(FLOAT, inputs, results, strict=True):
        expected = FLOAT[name][0](x.astype("float64"))
        tolerance = TOLERANCE[dtype] * (4 if name == "fast_erf" else 1)
        np.testing.assert_allclose(result.astype("float64"), expected, rtol=tolerance, atol=tolerance, err_msg=name)
        assert result.dtype == x.dtype, name


def test_rounding_signs_and_questions_about_floats():
    x = np.float32([-2.5, -1.5, -0.0, 0.4, 0.5, 1.5, 1e9, np.inf, -np.inf, np.nan])
    same = [np.floor, np.ceil, np.trunc, np.round, np.abs, np.negative, np.isnan, np.isfinite, np.isinf]
    names = ["floor", "ceil", "trunc", "round", "abs", "negative", "isnan", "isfinite", "isinf", "sign", "identity"]
    *results, sign, identity = run(lambda a: [getattr(topi, n)(a) for n in names], x)
    for function, result in zip(same, results, strict=True):
        np.testing.assert_array_equal(result, function(x))
    np.testing.assert_array_equal(sign, np.nan_to_num(np.sign(x)))
    np.testing.assert_array_equal(identity, x)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_integers(dtype):
    x = np.array([0, 1, 5, 100] if dtype == "uint8" else [-100, -1, 0, 7], dtype)
    names = ["abs", "sign", "floor", "round", "isnan", "isfinite", "identity"]
    results = run(lambda a: [getattr(topi, n)(a) for n in names], x)
    for result, expected in zip(results, [np.abs(x), np.sign(x), x, x, x != x, x == x, x], strict=True):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
    if dtype != "uint8":
        np.testing.assert_array_equal(run(topi.negative, x), -x)


def test_logarithms_of_integers_are_float32():
    x = np.array([1, 2, 10, 1000], "int32")
    results = run(lambda a: [topi.log(a), topi.log2(a), topi.log10(a), topi.sqrt(a), topi.rsqrt(a)], x)
    for result, f in zip(results, [np.log, np.log2, np.log10, np.sqrt, lambda v: 1 / np.sqrt(v)], strict=True):
        assert result.dtype == "float32"
        np.testing.assert_allclose(result, f(x), rtol=1e-5)


def test_clip_converts_its_bounds():
    x = rng.integers(-9, 9, (3, 4)).astype("int32")
    np.testing.assert_array_equal(run(lambda a: topi.clip(a, -3.0, 4.0), x), np.clip(x, -3, 4))
    n = tir.const(2, "int64")
    np.testing.assert_array_equal(run(lambda a: topi.clip(a, n - 4, n), np.float32([-7, 0, 7])), np.float32([-2, 0, 2]))


def test_casts_truncate_and_saturate():
    x = np.float32([-1.9, 0, 0.5, 2.9, 300, np.nan])
    to_int, to_byte, to_bool, to_half = run(
        lambda a: [topi.cast(a, t) for t in ("int32", "uint8", "bool", "float16")], x
    )
    np.testing.assert_array_equal(to_int, [-1, 0, 0, 2, 300, 0])
    np.testing.assert_array_equal(to_byte, [0, 0, 0, 2, 255, 0])
    np.testing.assert_array_equal(to_bool, [True, False, True, True, True, True])
    np.testing.assert_array_equal(to_half, x.astype("float16"))
    assert topi.cast(tir.Var("n", "int32"), "int64").dtype == "int64"


def test_bits():
    x = np.float32([1.5, -2, 0])
    np.testing.assert_array_equal(run(lambda a: topi.reinterpret(a, "int32"), x), x.view("int32"))
    n = np.array([1, -8, 5], "int32")
    left, right = run(lambda a: [topi.math.left_shift(a, 2), topi.math.right_shift(a, 1)], n)
    np.testing.assert_array_equal(left, n << 2)
    np.testing.assert_array_equal(right, n >> 1)


def test_fixed_point_products_round_halves_up():
    x = np.array([-7, -1, 0, 3, 100, 12345], "int32")
    got = run(lambda a: topi.fixed_point_multiply(a, 1 << 30, 2), x)
    np.testing.assert_array_equal(got, np.floor(x * 2.0 + 0.5))
    m, none = np.array([1 << 30, 3 << 29], "int32"), np.zeros(2, "int32")
    rows = np.array([[5, -5], [7, 8]], "int32")
    got = run(lambda a, b, ls, rs: topi.fixed_point_multiply_per_axis(a, b, ls, rs, 0, 0, (1,)), rows, m, none, none)
    np.testing.assert_array_equal(got, np.floor(rows * [0.5, 0.75] + 0.5))


@pytest.mark.parametrize("kind", ["llvm", "vulkan"])
def test_ceil_log2_of_integers(kind):
    with Target(kind):
        x = tir.Var("x", "int32")
        assert topi.ceil_log2(x).dtype == "int32"
        if kind == "llvm":
            assert [topi.ceil_log2(tir.const(n, "int32")).dtype for n in (1, 8)] == ["int32", "int32"]
    a = np.array([1, 2, 3, 4, 5, 1000, 1024], "int32")
    with Target(kind):
        made = te.compute((7,), lambda i: topi.ceil_log2(te.placeholder((7,), "int32")(i)))
    assert made.dtype == "int32"
    if kind == "llvm":
        np.testing.assert_array_equal(
            run(lambda t: te.compute((7,), lambda i: topi.ceil_log2(t(i))), a), np.ceil(np.log2(a))
        )


def test_stages_are_named_as_documented():
    a = te.placeholder((2, 3), name="A")
    expected = {
        "exp": "compute",
        "sign": "T_sign",
        "reinterpret": "tensor",
        "fast_exp": "T_fast_exp",
        "cast": "compute",
    }
    for function, name in expected.items():
        made = getattr(topi, function)(a, *(["int32"] if function in ("cast", "reinterpret") else []))
        assert (made.op.name, made.op.tag) == (name, "elemwise")
    assert [iv.var.name for iv in topi.exp(a).op.axis] == ["i0", "i1"]
    assert [iv.var.name for iv in topi.sign(a).op.axis] == ["ax0", "ax1"]


# -- tensors of one value, and sums --


def test_full_and_eye():
    made = run(
        lambda: [
            topi.full((2, 3), "float16", 1.5),
            topi.full((), "int64", 7),
            topi.eye(3, 4, 1),
            topi.eye(2, k=-1, dtype="int8"),
        ]
    )
    for result, expected in zip(
        made,
        [np.full((2, 3), 1.5, "float16"), np.int64(7), np.eye(3, 4, 1, "float32"), np.eye(2, k=-1, dtype="int8")],
        strict=True,
    ):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
    a = rng.standard_normal((2, 0), dtype="float32")
    np.testing.assert_array_equal(run(lambda x: topi.full_like(x, 3), np.ones((2, 2), "int8")), np.full((2, 2), 3))
    assert run(lambda x: topi.full_like(x, 3), a).shape == (2, 0)
    assert np.isinf(run(lambda: topi.full((1,), "float32", math.inf)))[0]


def test_elemwise_sum():
    xs = [rng.standard_normal((2, 3), dtype="float32") for _ in range(3)]
    np.testing.assert_allclose(run(lambda *t: topi.elemwise_sum(t), *xs), sum(xs), rtol=1e-6)


# -- refusals --


def test_what_has_no_value_in_a_dtype_is_refused():
    with pytest.raises(InvalidValue, match=r"topi.full: inf needs a float dtype, found int32"):
        topi.full((2,), "int32", math.inf)
    with pytest.raises(TypeMismatch, match=r"reinterpret expects dtypes of one size, found float32 and int64"):
        topi.reinterpret(te.placeholder((2,)), "int64")


def test_sums_of_different_shapes_are_refused():
    with pytest.raises(
        ShapeMismatch, match=r"topi.elemwise_sum: expected tensors of one shape, found \(2,\) and \(3,\)"
    ):
        topi.elemwise_sum([te.placeholder((2,)), te.placeholder((3,))])
    with pytest.raises(InvalidValue, match=r"topi.elemwise_sum: expected at least one tensor"):
        topi.elemwise_sum([])
