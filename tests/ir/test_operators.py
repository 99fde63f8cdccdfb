"""Python's operators over expressions: which operand gives the dtype, and constants folded as NumPy computes them."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneir import tir
from oneir.ir import expr as e
from oneir.ir import operators as ops
from oneir.ir import structural_equal
from oneir.ir.expr import const
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch

INTS = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]
x, y = e.Var("x", "int32"), e.Var("y", "int32")
f, b = e.Var("f", "float32"), e.Var("b", "bool")


def var(dtype: str) -> e.Var:
    return e.Var("v", dtype)


# -- matching --


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("int32", "int64", "int64"),
        ("int8", "uint8", "int8"),
        ("int8", "uint16", "uint16"),
        ("int64", "float16", "float16"),
        ("float16", "float32", "float32"),
        ("bool", "int8", "int8"),
        ("bool", "float32", "float32"),
        ("int32x4", "int32", "int32x4"),
        ("float32", "int32x4", "float32x4"),
    ],
)
def test_two_dtypes_meet(left, right, result):
    for a, c in ((left, right), (right, left)):
        added = var(a) + var(c)
        assert added.dtype == result and added.a.dtype == result and added.b.dtype == result


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        ("int8", 100, "int8"),
        ("int8", 200, "int32"),
        ("uint8", -1, "int32"),
        ("int64", 1, "int64"),
        ("int32", 1.5, "float32"),
        ("float16", 3, "float16"),
        ("float64", 0.1, "float64"),
        ("bool", 2, "int32"),
        ("int32", True, "int32"),
        ("float32x4", 2, "float32x4"),
    ],
)
def test_a_number_takes_the_dtype_that_it_meets(dtype, number, result):
    assert (var(dtype) + number).dtype == result and (number - var(dtype)).dtype == result


def test_operands_that_do_not_meet_are_refused():
    with pytest.raises(TypeMismatch, match="cannot combine vectors of 2 and 4 lanes"):
        _ = var("int32x2") + var("int32x4")
    with pytest.raises(TypeMismatch, match=r"cannot combine operands of dtype float16 and bfloat16.*\.astype"):
        _ = var("float16") + var("bfloat16")
    with pytest.raises(TypeMismatch, match="cannot combine operands of dtype handle and int32"):
        _ = var("handle") + var("int32")
    with pytest.raises(TypeMismatch, match=r"expected a number or an expression, found \[1\] of type list"):
        ops.add(x, [1])


def test_operators_build_the_nodes_of_their_names():
    for result, node in {
        x + y: e.Add,
        x - y: e.Sub,
        x * y: e.Mul,
        f / 2: e.Div,
        x // y: e.FloorDiv,
        x % y: e.FloorMod,
        -f: e.Mul,
        x < y: e.LT,
        x <= y: e.LE,
        x > y: e.GT,
        x >= y: e.GE,
        ~b: e.Not,
        ops.logical_and(b, x > y): e.And,
        ops.truncdiv(x, y): e.Div,
        ops.minimum(x, y): e.Min,
    }.items():
        assert type(result) is node
    for result, name in {
        x << y: "shift_left",
        x >> 1: "shift_right",
        x & y: "bitwise_and",
        1 | x: "bitwise_or",
        x ^ 1: "bitwise_xor",
        ~x: "bitwise_not",
        f**2: "pow",
        abs(f): "fabs",
        f // 2.0: "floor",
    }.items():
        assert result.op.name == f"tir.{name}"
    assert isinstance(-x, e.Sub) and (-x).a.value == 0 and +x is x


def test_neutral_elements_go_away():
    assert x + 0 is x and 0 + x is x and x - 0 is x and x * 1 is x and 1 * x is x and x // 1 is x
    assert (x * 0).value == 0 and (x % 1).value == 0 and (0 // x).value == 0
    vector = var("int32x4")
    assert vector + 0 is vector and (vector % 1).dtype == "int32x4"
    assert isinstance(f + 0.0, e.Add) and isinstance(f * 0.0, e.Mul) and f * 1.0 is f and f / 1.0 is f
    true = const(True)
    assert ops.logical_and(b, true) is b and ops.logical_or(true, b) is true and ops.minimum(x, x) is x


# -- folding --

BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_}
BINARY["^"] = operator.xor


def ints(dtype: str) -> st.SearchStrategy[int]:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1, high - 1]))


@given(st.data(), st.sampled_from(INTS), st.sampled_from(sorted(BINARY)))
def test_integers_wrap_as_numpys(data, dtype, name):
    p, q = data.draw(ints(dtype)), data.draw(ints(dtype))
    folded = BINARY[name](const(p, dtype), const(q, dtype))
    with np.errstate(all="ignore"):
        expected = BINARY[name](np.array([p], dtype), np.array([q], dtype))[0]
    assert folded.dtype == dtype and folded.value == expected


@given(st.data(), st.sampled_from(INTS))
def test_division_of_integers(data, dtype):
    p, q = data.draw(ints(dtype)), data.draw(ints(dtype).filter(bool))
    a, c = const(p, dtype), const(q, dtype)
    with np.errstate(all="ignore"):
        assert (a // c).value == np.floor_divide(np.array([p], dtype), np.array([q], dtype))[0]
        assert (a % c).value == np.remainder(np.array([p], dtype), np.array([q], dtype))[0]
        assert ops.truncmod(a, c).value == np.fmod(np.array([p], dtype), np.array([q], dtype))[0]
    quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
    info = np.iinfo(dtype)
    assert ops.truncdiv(a, c).value == (quotient if quotient <= info.max else info.min)


@given(st.data(), st.sampled_from(INTS))
def test_shifts_lose_all_bits_beyond_the_width(data, dtype):
    bits = np.iinfo(dtype).bits
    p = data.draw(ints(dtype))
    count = data.draw(st.integers(0, min(bits + 5, np.iinfo(dtype).max)))
    left, right = const(p, dtype) << const(count, dtype), const(p, dtype) >> const(count, dtype)
    assert left.value == int(np.array([(p << count) % 2**bits], "uint64").astype(dtype)[0])
    assert right.value == p >> count


@given(st.floats(width=32), st.floats(width=32), st.sampled_from(["float16", "float32", "float64"]))
def test_floats_are_rounded_to_their_dtype(p, q, dtype):
    with np.errstate(all="ignore"):
        p, q = float(np.dtype(dtype).type(p)), float(np.dtype(dtype).type(q))
        for op in (operator.add, operator.sub, operator.mul):
            np.testing.assert_equal(
                op(const(p, dtype), const(q, dtype)).value, float(op(np.array([p], dtype), np.array([q], dtype))[0])
            )
        if q != 0:
            quotient = const(p, dtype) / const(q, dtype)
            np.testing.assert_equal(quotient.value, float((np.array([p], dtype) / np.array([q], dtype))[0]))


@given(st.floats(width=32), st.floats(width=32))
def test_comparisons_minimum_and_maximum_of_floats(p, q):
    a, c = const(p), const(q)
    for op in (operator.lt, operator.le, operator.gt, operator.ge):
        assert op(a, c).value == op(p, q)
    # Which of two zeros is the smaller is left open.
    np.testing.assert_array_equal(ops.minimum(a, c).value, float(np.minimum(p, q)))
    np.testing.assert_array_equal(ops.maximum(a, c).value, float(np.maximum(p, q)))


@pytest.mark.parametrize("dtype", INTS)
def test_magnitude_and_negation_wrap(dtype):
    info = np.iinfo(dtype)
    for value in (int(info.min), int(info.max), 0, 1):
        with np.errstate(all="ignore"):
            array = np.array([value], dtype)
            assert abs(const(value, dtype)).value == np.abs(array)[0] and (-const(value, dtype)).value == (-array)[0]


def test_magnitude_of_expressions():
    chosen = abs(x)
    assert isinstance(chosen, e.Select) and chosen.condition == (x >= 0) and chosen.true_value is x
    assert isinstance(chosen.false_value, e.Sub) and tir.abs(x) == chosen
    assert abs(var("uint8")).dtype == "uint8" and abs(const(-1.5)).value == 1.5
    with pytest.raises(TypeMismatch, match="abs expects a number, found b of dtype bool"):
        abs(b)


CASTS = [
    (300, "int32", "int8", 44),
    (-1, "int32", "uint8", 255),
    (-1, "int8", "uint64", 2**64 - 1),
    (3.99, "float32", "int32", 3),
    (-3.99, "float32", "int32", -3),
    (1e20, "float32", "int32", 2**31 - 1),
    (-1e20, "float32", "int64", -(2**63)),
    (-5.0, "float32", "uint8", 0),
    (300.0, "float32", "uint8", 255),
    (float("inf"), "float64", "int16", 2**15 - 1),
    (float("nan"), "float64", "int16", 0),
    (0.5, "float32", "bool", 1),
    (0, "int32", "bool", 0),
    (7, "int32", "float16", 7.0),
]


@pytest.mark.parametrize(("value", "source", "dtype", "expected"), CASTS)
def test_casts_of_constants(value, source, dtype, expected):
    folded = const(value, source).astype(dtype)
    assert folded.dtype == dtype and folded.value == expected


def test_casts_of_expressions():
    assert x.astype("int32") is x and isinstance(x.astype("int64"), e.Cast)
    wide = x.astype("float32x4")
    assert isinstance(wide, e.Broadcast) and wide.dtype == "float32x4"
    assert isinstance(e.Broadcast(x, 4).astype("int64x4"), e.Broadcast)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: x / y, TypeMismatch, "`/` between integers is ambiguous: write `//`"),
        (lambda: 3 / x, TypeMismatch, "truncdiv"),
        (lambda: x // 0, InvalidValue, "division by zero: x by 0"),
        (lambda: const(4) % 0, InvalidValue, "division by zero: 4 by 0"),
        (lambda: ops.truncdiv(f, 2.0), TypeMismatch, "integer division expects integers, found float32"),
        (lambda: f & 1.0, TypeMismatch, "bitwise_and expects integers, found float32"),
        (lambda: f << 1, TypeMismatch, "shift_left expects integers, found float32"),
        (lambda: ~f, TypeMismatch, "bitwise_not expects an integer, found float32"),
        (lambda: ops.logical_and(x, b), TypeMismatch, "expected a bool expression, found `x` of dtype int32"),
        (lambda: ops.logical_not(3), TypeMismatch, "compare it with a value"),
        (lambda: const("a") + 1, OneIRError, "cannot combine operands of dtype handle"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_ramps_of_constants_have_the_dtype_that_they_are_cast_to():
    assert structural_equal(ops.cast("int64x4", e.Ramp(3, 2, 4)), e.Ramp(const(3, "int64"), const(2, "int64"), 4))
    # The last lane, 3 + 3 * 100, is no int8, so the cast wraps it.
    assert isinstance(ops.cast("int8x4", e.Ramp(3, 100, 4)), e.Cast)
    x = e.Var("x", "int32")
    assert isinstance(ops.cast("int64x4", e.Ramp(x, 1, 4)), e.Cast)
