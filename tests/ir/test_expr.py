"""Expression nodes: what their constructors accept, derive and refuse; constants; `==` as truth and as expression."""

from __future__ import annotations

import numpy as np
import pytest

from oneir.ir import expr as e
from oneir.ir.expr import const
from oneir.ir.type import PointerType, PrimType
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch

x, y = e.Var("x", "int32"), e.Var("y", "int32")
f, b = e.Var("f", "float32"), e.Var("b", "bool")


def test_constants_take_the_dtype_of_the_number():
    for value, dtype in {
        True: "bool",
        5: "int32",
        2**31: "int64",
        -(2**31): "int32",
        -(2**31) - 1: "int64",
        2.5: "float32",
    }.items():
        assert const(value).dtype == dtype and const(value).value == value
    assert const(np.float16(1.5)).dtype == "float16" and const(np.uint8(3)).dtype == "uint8"
    assert const(np.array(3, "int64")).dtype == "int64" and const(np.bool_(True)).dtype == "bool"


def test_constants_of_a_given_dtype():
    assert const(3, "float16").value == 3.0 and const(2.9, "int32").value == 2 and const(-2.9, "int8").value == -2
    vector = const(1, "int32x4")
    assert isinstance(vector, e.Broadcast) and vector.dtype == "int32x4" and vector.value.value == 1
    assert const("text").value == "text" and const(x) is x and const(x, "int64").dtype == "int64"
    assert const(0, "handle").dtype == "handle"


@pytest.mark.parametrize(
    ("value", "dtype", "error", "message"),
    [
        (300, "int8", InvalidValue, "300 does not fit int8, whose values run from -128 to 127"),
        (-1, "uint8", InvalidValue, "-1 does not fit uint8, whose values run from 0 to 255"),
        (2, "bool", InvalidValue, "2 does not fit bool, whose values run from 0 to 1"),
        (float("nan"), "int32", InvalidValue, "nan cannot be a constant of dtype int32"),
        (float("-inf"), "int32", InvalidValue, "-inf cannot be a constant"),
        (1, "handle", InvalidValue, "cannot make a constant of dtype handle from 1"),
        (object(), None, TypeMismatch, "expected a number or an expression, found <object"),
        (np.zeros(2), None, TypeMismatch, "expected a number or an expression"),
        ([1], None, TypeMismatch, r"expected a number or an expression, found \[1\] of type list"),
    ],
)
def test_refused_constants(value, dtype, error, message):
    with pytest.raises(error, match=message):
        const(value, dtype)


def test_constants_are_python_numbers_where_one_is_wanted():
    assert int(const(5)) == 5 and float(const(5)) == 5.0 and float(const(1.5)) == 1.5
    assert [10, 11, 12][const(1)] == 11 and list(range(const(3))) == [0, 1, 2]
    assert bool(const(3)) and not const(0) and not const(0.0)


def test_a_variable_may_have_a_type_and_can_be_copied():
    pointer = e.Var("p", PointerType(PrimType("float32"), "shared"))
    assert pointer.dtype == "handle" and pointer.type_annotation.storage_scope == "shared"
    assert x.copy_with_name("z").name == "z" and x.copy_with_dtype("int64").dtype == "int64"
    size = e.SizeVar("n", "int64")
    assert type(size.copy_with_name("m")) is e.SizeVar and size.name_hint == "n"


def test_equality_is_a_truth_value_for_python():
    assert bool(x == x) is True and bool(x == y) is False and bool(x != y) is True and bool(x != x) is False
    assert x + 1 == x + 1 and x + 1 != x + 2 and bool(x + 1 == y + 1) is False
    assert const(3) == 3 and const(3) != 4 and bool(x == 3) is False and bool(x == "x") is False
    assert {x: 1}[x] == 1 and x in [y, x] and e.Var("x", "int32") not in [x]
    assert [x, y].index(y) == 1


def test_equality_is_an_expression_where_one_is_wanted():
    both = e.And(e.as_expr(x == y), e.as_expr(x != 3))
    assert isinstance(both.a, e.EQ) and isinstance(both.b, e.NE) and both.b.b.dtype == "int32"
    assert isinstance((x == y) & (x > 0), e.Call) and isinstance(x.equal(1), e.EQ) and isinstance(x.not_equal(1), e.NE)
    assert isinstance(e.Select(x == y, 1, 2).condition, e.EQ)
    assert isinstance((x == y).asobject(), e.EQ)


def test_strings_compare_by_value():
    assert e.StringImm("a") == "a" and e.StringImm("a") == e.StringImm("a") and e.StringImm("a") != "b"
    assert hash(e.StringImm("a")) == hash("a")


def test_the_truth_of_an_unknown_expression_is_refused():
    for unknown in (x > 0, x, x + 1, ~b):
        with pytest.raises(InvalidValue, match=r"the truth value of the expression `.*` is not known"):
            bool(unknown)
    with pytest.raises(TypeMismatch, match="the expression `x` cannot be iterated over"):
        list(x)


def test_node_constructors_never_fold():
    assert isinstance(e.Add(const(1), const(2)), e.Add) and isinstance(e.Mul(x, const(0)), e.Mul)
    assert e.Add(1, x).a.dtype == "int32" and e.Add(x.astype("int64"), 1).b.dtype == "int64"
    assert e.Div(f, 2).b.dtype == "float32"


def test_derived_dtypes():
    v = e.Ramp(x, 1, 4)
    assert (v.dtype, v.stride.dtype) == ("int32x4", "int32")
    assert e.LT(v, e.Broadcast(y, 4)).dtype == "boolx4" and e.EQ(f, 1.0).dtype == "bool"
    assert e.Select(b, f, f).dtype == "float32" and e.Let(x, 1, f).dtype == "float32"
    assert e.Cast("int8x4", v).dtype == "int8x4" and e.Not(b).dtype == "bool"
    assert e.Ramp(const(0, "int64"), 1, 2).stride.dtype == "int64"
    assert e.Call("float32", "tir.exp", [f]).op.name == "tir.exp"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: e.Add(x, f), "Add expects operands of one dtype, found int32 and float32"),
        (lambda: e.LT(x, e.Ramp(x, 1, 4)), "LT expects operands of one dtype, found int32 and int32x4"),
        (lambda: e.And(x, b), "And expects operands of one dtype, found int32 and bool"),
        (lambda: e.Or(x, x), "Or expects bool operands, found int32"),
        (lambda: e.Not(x), "Not expects a bool operand, found int32"),
        (lambda: e.Select(x, x, x), "Select expects a bool condition, found int32"),
        (lambda: e.Select(b, x, f), "Select expects values of one dtype, found int32 and float32"),
        (lambda: e.Select(e.Broadcast(b, 2), x, x), "Select expects 1 or 1 conditions, found 2"),
        (lambda: e.Cast("int32x4", x), "cannot cast int32 to int32x4: expected the same number of lanes"),
        (lambda: e.Ramp(e.Ramp(x, 1, 2), 1, 2), "Ramp expects one dtype|Ramp expects a scalar base"),
        (lambda: e.Broadcast(e.Broadcast(x, 2), 2), "Broadcast expects a scalar, found int32x2"),
        (lambda: e.Ramp(x, 1, 0), "a vector needs at least one lane, found 0"),
        (lambda: e.Broadcast(x, y), "the lanes of a vector must be an int or a multiple of vscale, found y"),
        (lambda: e.IntImm("float32", 1), "expected an integer dtype for the constant 1, found float32"),
        (lambda: e.FloatImm("int32", 1.0), "expected a floating-point dtype for the constant 1.0, found int32"),
        (lambda: e.Call("float32", "tir.expp", [f]), "operator 'tir.expp' is not registered; did you mean 'tir.exp"),
    ],
)
def test_refused_nodes(make, message):
    with pytest.raises(OneIRError, match=message):
        make()


def test_ranges_read_like_pythons():
    assert e.Range(10) == e.Range(0, 10) == e.Range.from_min_extent(0, 10)
    # A number takes the dtype of the expression that it meets.
    assert e.Range(0, e.const(10, "int64")).min.dtype == "int64"
    r = e.Range(x, x + 4)
    assert r.min is x and r.extent == 4 and e.Range(2, y).extent == y - 2
    assert e.Range.from_min_extent(x, y).extent is y and e.Range(3) != e.Range(4) and e.Range(3) != "x"


def test_the_address_of_a_module_function_is_called_with_expressions():
    call = e.GlobalVar("g")(x, 1)
    assert call.dtype == "void" and call.op.name == "g" and call.args[1].value == 1


def test_every_node_that_prints_has_script_and_show(capsys):
    assert (x + 1).script() == "x + 1" and e.Range(3).script() == "I.Range(0, 3)"
    (f * 2.0).show()
    assert capsys.readouterr().out == "f * T.float32(2.0)\n"
