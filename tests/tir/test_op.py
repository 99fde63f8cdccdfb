"""Operators of loops: what builds which call, what is folded, and the NumPy references against Python's `math`."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneir import tir
from oneir.ir import Op
from oneir.ir.expr import Call, CallEffectKind, FloatImm, IntImm, Select, Var, const
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch
from oneir.script import tir as T
from oneir.tir import op

x, i, b = Var("x", "float32"), Var("i", "int32"), Var("b", "bool")


def reference(name: str, *args: Any) -> Any:
    return Op.get(f"tir.{name}").get_attr("reference")(*args)


# The oracle is Python's math module, which computes in float64 one number at a time.
UNARY = {
    "exp": (math.exp, (-5, 5)),
    "exp2": (lambda v: 2.0**v, (-5, 5)),
    "exp10": (lambda v: 10.0**v, (-4, 4)),
    "erf": (math.erf, (-3, 3)),
    "tanh": (math.tanh, (-3, 3)),
    "sigmoid": (lambda v: 1 / (1 + math.exp(-v)), (-5, 5)),
    "log": (math.log, (0.1, 9)),
    "log2": (math.log2, (0.1, 9)),
    "log10": (math.log10, (0.1, 9)),
    "log1p": (math.log1p, (-0.9, 9)),
    "tan": (math.tan, (-1.5, 1.5)),
    "cos": (math.cos, (-9, 9)),
    "cosh": (math.cosh, (-4, 4)),
    "acos": (math.acos, (-1, 1)),
    "acosh": (math.acosh, (1, 9)),
    "sin": (math.sin, (-9, 9)),
    "sinh": (math.sinh, (-4, 4)),
    "asin": (math.asin, (-1, 1)),
    "asinh": (math.asinh, (-9, 9)),
    "atan": (math.atan, (-9, 9)),
    "atanh": (math.atanh, (-0.9, 0.9)),
    "sqrt": (math.sqrt, (0, 9)),
    "rsqrt": (lambda v: 1 / math.sqrt(v), (0.1, 9)),
    "floor": (math.floor, (-5, 5)),
    "ceil": (math.ceil, (-5, 5)),
    "trunc": (math.trunc, (-5, 5)),
    "round": (round, (-5, 5)),
    "nearbyint": (round, (-5, 5)),
    "fabs": (math.fabs, (-5, 5)),
}
BINARY = {
    "pow": (math.pow, (0.1, 4)),
    "atan2": (math.atan2, (-4, 4)),
    "fmod": (math.fmod, (0.5, 9)),
    "hypot": (math.hypot, (-4, 4)),
    "copysign": (math.copysign, (-4, 4)),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_references_of_one_argument(name, dtype):
    oracle, (low, high) = UNARY[name]
    values = np.linspace(low, high, 37).astype(dtype)
    if name in ("round", "nearbyint"):
        values = np.concatenate([values, np.array([0.5, 1.5, 2.5, -0.5, -1.5], dtype)])
    got = reference(name, values)
    expected = np.array([oracle(float(v)) for v in values]).astype(dtype)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=2 * np.finfo(dtype).eps, atol=np.finfo(dtype).smallest_subnormal)


@pytest.mark.parametrize("name", sorted(BINARY))
def test_references_of_two_arguments(name):
    oracle, (low, high) = BINARY[name]
    p = np.linspace(low, high, 23, dtype="float32")
    q = p[::-1].copy()
    expected = [oracle(float(u), float(v)) for u, v in zip(p, q, strict=True)]
    np.testing.assert_allclose(reference(name, p, q), np.array(expected, "float32"), rtol=1e-6)


def test_other_references():
    one, two = np.array([1.0, -0.0], "float32"), np.array([2.0, 1.0], "float32")
    assert reference("nextafter", one, two).tobytes() == struct.pack("<II", 0x3F800001, 0x00000001)
    np.testing.assert_array_equal(reference("ldexp", one, np.array([3.0, 5.0], "float32")), [8.0, 0.0])
    np.testing.assert_array_equal(reference("fma", one, two, two), [4.0, 1.0])
    special = np.array([np.nan, np.inf, -np.inf, 0.0], "float32")
    assert [reference(n, special).tolist() for n in ("isnan", "isinf", "isfinite")] == [
        [True, False, False, False],
        [False, True, True, False],
        [False, False, False, True],
    ]


@given(st.data(), st.sampled_from(["int8", "uint8", "int32", "uint64"]))
def test_references_of_bits(data, dtype):
    info = np.iinfo(dtype)
    value = data.draw(st.integers(int(info.min), int(info.max)))
    text = f"{value % 2**info.bits:0{info.bits}b}"
    array = np.array([value], dtype)
    assert reference("popcount", array)[0] == text.count("1")
    assert reference("clz", array)[0] == info.bits - len(text.lstrip("0"))
    assert reference("bitwise_not", array)[0] == np.array([~array[0]], dtype)[0]


def test_references_that_are_missing_are_those_of_calls_with_effects():
    pure = [n for n in UNARY | BINARY if Op.get(f"tir.{n}").get_attr("TCallEffectKind") is not CallEffectKind.Pure]
    assert not pure and Op.get("tir.call_extern").get_attr("TCallEffectKind") is CallEffectKind.Opaque
    assert op.effect_of(tir.exp(x)) is CallEffectKind.Pure


@pytest.mark.parametrize("name", [*sorted(UNARY), "isnan", "isinf", "isfinite"])
def test_functions_build_calls_of_their_operator(name):
    call = getattr(T, name)(x)
    assert isinstance(call, Call) and call.op.name == f"tir.{name}" and call.args[0] is x
    assert call.dtype == ("bool" if name.startswith("is") else "float32")
    assert getattr(T, name)(Var("v", "float16x8")).dtype == ("boolx8" if name.startswith("is") else "float16x8")


def test_integers_are_converted_for_float_functions_and_kept_by_roundings():
    assert tir.exp(i).dtype == "float32" and tir.exp(i).args[0].dtype == "float32"
    assert tir.floor(i) is i and tir.round(i) is i and tir.isnan(i).value == 0 and tir.isfinite(i).value == 1


def test_roundings_of_constants_are_folded():
    for function, expected in {tir.floor: -3.0, tir.ceil: -2.0, tir.trunc: -2.0, tir.round: -2.0}.items():
        assert function(const(-2.5)).value == expected
    assert tir.abs(const(-2.5)).value == 2.5


def test_products_with_one_rounding():
    call = tir.op.fma(x, 2, i)
    assert call.op.name == "tir.fma" and [a.dtype for a in call.args] == ["float32"] * 3
    assert T.fma(Var("v", "float32x4"), x, 1.0).dtype == "float32x4"
    with pytest.raises(TypeMismatch, match="fma expects floats, found int32"):
        T.fma(i, 2, 3)


def test_limits():
    for dtype in ("int8", "uint16", "int64"):
        info = np.iinfo(dtype)
        assert tir.min_value(dtype).value == info.min and tir.max_value(dtype).value == info.max
    assert tir.max_value("float32").value == np.finfo("float32").max and tir.min_value("float16").value == -65504.0
    assert tir.infinity("float32").value == math.inf and isinstance(tir.infinity("float32"), FloatImm)


def test_bits_and_reinterpretation():
    assert tir.popcount(i).dtype == "int32" and tir.clz(Var("w", "int64")).dtype == "int32"
    assert tir.reinterpret("float32", i).dtype == "float32" and tir.reinterpret("int32", i) is i
    with pytest.raises(TypeMismatch, match="reinterpret expects dtypes of one size, found int32 and float64"):
        tir.reinterpret("float64", i)


def test_choices():
    chosen = tir.if_then_else(b, x, 1)
    assert chosen.op.name == "tir.if_then_else" and chosen.dtype == "float32" and chosen.args[2].dtype == "float32"
    assert isinstance(tir.Select(b, x, x), Select)
    with pytest.raises(OneIRError, match="bool"):
        tir.if_then_else(i, x, x)


def test_calls_of_functions_by_name():
    extern = tir.call_extern("int32", "puts", "text")
    assert extern.args[0].value == "puts" and extern.args[1].value == "text" and extern.dtype == "int32"
    assert tir.call_intrin("float32", "tir.exp", x).op.name == "tir.exp"
    packed = tir.call_packed("my.func", tir.decl_buffer((2, 3), name="A"), i)
    assert packed.op.name == "tir.tvm_call_packed" and packed.args[1].op.name == "tir.tvm_stack_make_array"
    assert [int(d) for d in packed.args[1].args[1].args] == [2, 3]
    with pytest.raises(OneIRError, match=r"operator 'tir.expo' is not registered; did you mean"):
        tir.call_intrin("float32", "tir.expo", x)


def test_addresses():
    a = tir.decl_buffer((4, 4), name="A")
    assert tir.address_of(a).args[0].indices == [0, 0] and tir.address_of(a[1, i]).dtype == "handle"
    with pytest.raises(TypeMismatch, match="address_of expects a buffer or an element of one, found i"):
        tir.address_of(i)


def test_logic_over_many():
    assert (
        tir.all(b).same_as(b)
        and isinstance(tir.all(b, i > 0, i < 3), tir.And)
        and isinstance(tir.any(b, i > 0), tir.Or)
    )
    with pytest.raises((OneIRError, ValueError)):
        tir.all()


def test_ceiling_divisions():
    for p in range(-7, 8):
        for q in (1, 2, 3):
            assert tir.ceildiv(const(p), q).value == math.ceil(p / q)
    with pytest.raises(InvalidValue, match="division by zero"):
        tir.ceildiv(i, 0)


@pytest.mark.parametrize("name", ["exp", "tanh", "pow"])
def test_float_functions_refuse_what_is_no_number(name):
    args = [Var("h", "handle")] * (2 if name == "pow" else 1)
    with pytest.raises(TypeMismatch, match=f"{name} expects numbers, found h of dtype handle"):
        getattr(tir, name)(*args)


def test_constants_of_integers_are_nodes():
    assert isinstance(tir.const(3, "int8"), IntImm) and tir.const(3, "int8").dtype == "int8"
