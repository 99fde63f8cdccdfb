"""The rules that write mathematics as arithmetic: right to 4 ulp over all of float32, specials exact.

Exponentials that would be subnormal are 0.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from expression_evaluator import evaluate, float32_sample, ulp_error

from oneir.ir.expr import FloatImm, Let, Var
from oneir.runtime.error import TypeMismatch
from oneir.tir import op, q_multiply_shift

SAMPLE = float32_sample(99_991)


def lower(call):
    rule = call.op.get_attr("llvm.FLowerIntrinsic") or call.op.get_attr("default.FLowerIntrinsic")
    return rule(call)


def _sigmoid(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


def _or_zero(function):
    """The function, but 0 for what is no normal float32."""

    def result(x):
        exact = function(x)
        return np.where(exact < 2.0**-126, 0, exact)

    return result


UNARY = {
    "exp": _or_zero(np.exp),
    "exp2": _or_zero(np.exp2),
    "exp10": _or_zero(lambda x: np.power(10.0, x)),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sigmoid": _or_zero(_sigmoid),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_are_right_everywhere(name):
    x = Var("x", "float32")
    result = evaluate(lower(getattr(op, name)(x)), {x: SAMPLE})
    assert result.dtype == np.float32
    with np.errstate(all="ignore"):
        error = ulp_error(result, UNARY[name](SAMPLE.astype(np.float64)))
    worst = int(error.argmax())
    assert error[worst] <= 4, f"{name}({SAMPLE[worst]}) = {result[worst]} is off by {error[worst]} ulp"


@pytest.mark.long
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_over_every_997th_pattern(name):
    sample = float32_sample(997)
    x = Var("x", "float32")
    result = evaluate(lower(getattr(op, name)(x)), {x: sample})
    with np.errstate(all="ignore"):
        assert ulp_error(result, UNARY[name](sample.astype(np.float64))).max() <= 4


def test_the_exponential_of_doubles_is_right_to_the_last_digit():
    rng = np.random.default_rng(0)
    sample = np.concatenate([np.linspace(-760, 720, 100_003), rng.standard_normal(50_000), rng.random(9) * 1e-300])
    x = Var("x", "float64")
    with np.errstate(over="ignore"):
        exact = np.exp(sample.astype(np.longdouble))
        rounded = exact.astype(np.float64)
        found = evaluate(lower(op.exp(x)), {x: sample})
    inside = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~inside], rounded[~inside])
    assert np.max(np.abs(found[inside] - exact[inside]) / np.spacing(rounded[inside])) < 1
    special = np.array([math.inf, -math.inf, math.nan, -0.0, 1e300, -1e300])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(evaluate(lower(op.exp(x)), {x: special}), np.exp(special))


def _pairs():
    rng = np.random.default_rng(0)
    special = [0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 2, -2, 3, -3, 0.5, -0.5, 1e-45, -1e-45, 3e38, -3e38]
    special += [16777217, -16777216, 1.0000001]
    x, y = (a.ravel() for a in np.meshgrid(np.array(special, np.float32), np.array(special, np.float32)))
    yield x, y
    a, b = (rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32) for _ in range(2))
    yield a, b
    with np.errstate(all="ignore"):
        yield a, (a * (rng.random(20_000) + 0.5)).astype(np.float32)
        exponent = (rng.random(20_000) * 300 - 155) / np.log2(np.abs(a.astype(np.float64)))
    yield np.abs(a), exponent.astype(np.float32)
    yield (1 + (rng.random(20_000) - 0.5) * 0.01).astype(np.float32), ((rng.random(20_000) - 0.5) * 2e4).astype("f4")
    yield (rng.random(20_000) * -30).astype(np.float32), rng.integers(-30, 30, 20_000).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "exact"), [("power", np.power), ("atan2", np.arctan2), ("hypot", np.hypot), ("fmod", np.fmod)]
)
def test_binary_functions_are_right_everywhere(name, exact):
    x, y = Var("x", "float32"), Var("y", "float32")
    rule = lower(getattr(op, name)(x, y))
    for a, b in _pairs():
        result = evaluate(rule, {x: a, y: b})
        with np.errstate(all="ignore"):
            error = ulp_error(result, exact(a.astype(np.float64), b.astype(np.float64)))
        worst = int(error.argmax())
        assert error[worst] <= 4, f"{name}({a[worst]}, {b[worst]}) = {result[worst]}"


@pytest.mark.parametrize(
    ("exponent", "exact"), [(2.0, lambda x: x * x), (3.0, lambda x: x * x * x), (1.0, lambda x: x)]
)
def test_small_powers_are_products(exponent, exact):
    x = Var("x", "float32")
    value = np.array([1.5, -2.25, 0.1], np.float32)
    result = lower(op.power(x, FloatImm("float32", exponent)))
    np.testing.assert_array_equal(evaluate(result, {x: value}), exact(value))


def test_steps_and_scaling_are_exact():
    x, y, n = Var("x", "float32"), Var("y", "float32"), Var("n", "int32")
    for a, b in _pairs():
        with np.errstate(all="ignore"):
            wanted = np.nextafter(a, b)
        got = evaluate(lower(op.nextafter(x, y)), {x: a, y: b})
        assert ((got.view("u4") == wanted.view("u4")) | (np.isnan(got) & np.isnan(wanted))).all()
        counts = np.arange(len(a), dtype=np.int32) % 700 - 350
        with np.errstate(all="ignore"):
            wanted = np.ldexp(a.astype(np.float64), counts).astype(np.float32)
        got = evaluate(lower(op.ldexp(x, n)), {x: a, n: counts})
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_questions_about_floats(name, dtype):
    x = Var("x", dtype)
    with np.errstate(all="ignore"):
        values = SAMPLE.astype(dtype)
    np.testing.assert_array_equal(evaluate(lower(getattr(op, name)(x)), {x: values}), getattr(np, name)(values))


@pytest.mark.parametrize("name", ["exp", "log", "erf", "sin", "tan", "acos", "sigmoid"])
@pytest.mark.parametrize("lanes", [4, 7, 16])
def test_vectors_give_what_scalars_give(name, lanes):
    values = SAMPLE[: len(SAMPLE) // (lanes * 8) * lanes * 8 : 8].reshape(-1, lanes)
    x, v = Var("x", "float32"), Var("v", f"float32x{lanes}")
    vector = lower(getattr(op, name)(v))
    assert vector.dtype == f"float32x{lanes}"
    np.testing.assert_array_equal(
        evaluate(vector, {v: values}), evaluate(lower(getattr(op, name)(x)), {x: values.ravel()}).reshape(-1, lanes)
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_from_float32(dtype):
    x, wide = Var("x", dtype), Var("w", "float32")
    numpy_dtype = x.dtype.to_numpy()
    with np.errstate(all="ignore"):
        values = SAMPLE.astype(numpy_dtype)
        expected = evaluate(lower(op.exp(wide)), {wide: values.astype(np.float32)}).astype(numpy_dtype)
    result = evaluate(lower(op.exp(x)), {x: values})
    assert result.dtype == numpy_dtype
    np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


def test_other_functions_of_float64_are_those_of_the_c_library():
    x = Var("x", "float64")
    call = lower(op.log(x))
    assert call.op.name == "tir.call_pure_extern"
    assert [str(call.args[0].value), call.args[1]] == ["log", x]


def test_temporaries_are_computed_once():
    x = Var("x", "float32")
    seen = []
    node = lower(op.exp(x * x))
    while isinstance(node, Let):
        seen.append(node.var)
        node = node.body
    assert len(seen) == len(set(map(id, seen))) > 5


def test_scalable_vectors_keep_their_lanes():
    v = Var("v", "float32xvscalex4")
    assert lower(op.sin(v)).dtype == "float32xvscalex4"


@pytest.mark.parametrize(("shift", "fraction"), [(0, 31), (3, 31), (-4, 31)])
def test_q_multiply_shift_rounds_halves_up(shift, fraction):
    x = np.array([0, 1, -1, 100, -100, 2**20, -(2**20)], np.int32)
    multiplier = 1431655765  # 2/3 with 31 bits of fraction
    v = Var("v", "int32")
    result = evaluate(lower(q_multiply_shift(v, multiplier, fraction, shift)), {v: x})
    exact = [
        (int(a) * multiplier * 2 ** max(shift, 0) + (1 << (fraction - min(shift, 0) - 1))) >> (fraction - min(shift, 0))
        for a in x
    ]
    np.testing.assert_array_equal(result, np.array(exact, np.int64).astype(np.int32))


def test_questions_about_float8_are_refused():
    with pytest.raises(TypeMismatch, match="float8_e4m3fn: cast to float32"):
        lower(op.isnan(Var("x", "float8_e4m3fn")))
