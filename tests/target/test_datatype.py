"""Custom dtypes as dtypes: names, type codes, constants, and what arithmetic on them does not assume."""

from __future__ import annotations

import pytest

from oneir.arith import Analyzer
from oneir.ir import assert_structural_equal
from oneir.ir.dtype import DataType
from oneir.ir.expr import Add, Call, Cast, FloatImm, Mul, Var, const
from oneir.runtime.dtype import dlpack_dtype, name_of_dlpack
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch
from oneir.script import from_source
from oneir.script import tir as T
from oneir.target import datatype
from oneir.tir import max_value, min_value

datatype.register("decimal", 140)
DECIMAL = DataType("custom[decimal]32")


def test_a_dtype_has_the_parts_of_its_name():
    vector = DataType("custom[decimal]16x4")
    assert (vector.bits, vector.lanes, vector.code, vector.type_code) == (16, 4, "custom[decimal]", 140)
    assert vector.element is DataType("custom[decimal]16")
    assert dlpack_dtype(vector) == (140, 16, 4) and name_of_dlpack(140, 16, 4) == vector


def test_a_dtype_that_is_not_registered_is_refused():
    with pytest.raises(InvalidValue, match=r"unknown dtype 'custom\[nobody\]32': expected custom\[NAME\]BITS, where"):
        DataType("custom[nobody]32")


def test_names_and_type_codes_lead_to_one_another():
    assert datatype.get_type_name(140) == "decimal" and datatype.get_type_code("decimal") == 140
    assert datatype.get_type_registered(140) and not datatype.get_type_registered(251)
    with pytest.raises(NotRegistered, match="no custom dtype has the type code 251"):
        datatype.get_type_name(251)
    with pytest.raises(NotRegistered, match="no custom dtype 'nobody' is registered"):
        datatype.get_type_code("nobody")


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("decimal", 141, "'decimal' has the type code 140 already, found 141"),
        ("another", 140, "the type code 140 belongs to the custom dtype 'decimal', not to 'another'"),
        ("early", 17, r"must be in \[129, 255\], found 17 of 'early'"),
        ("two words", 142, "must be an identifier, found 'two words'"),
    ],
)
def test_a_name_or_code_without_a_meaning_of_its_own_is_refused(name: str, code: int, message: str):
    with pytest.raises(InvalidValue, match=message):
        datatype.register(name, code)


def test_registering_the_same_again_changes_nothing():
    datatype.register("decimal", 140)
    assert datatype.get_type_code("decimal") == 140


def test_constants_are_not_computed_with():
    x = Var("x", DECIMAL)
    one, two = const(1, DECIMAL), const(2.0, DECIMAL)
    assert isinstance(one, FloatImm) and isinstance(one + two, Add)
    assert isinstance(x * 1, Mul) and isinstance(T.Cast("float32", two), Cast)
    assert isinstance(T.floor(two), Call)
    for expr in (one + two, x * 1, one < two, T.Cast("float32", two), -two, T.min(one, two)):
        assert_structural_equal(Analyzer().simplify(expr), expr)


def test_a_number_takes_the_dtype_of_the_other_operand_and_a_float_does_not_meet_it():
    x = Var("x", DECIMAL)
    assert (x + 1.5).dtype is DECIMAL
    with pytest.raises(TypeMismatch, match=r"cannot combine operands of dtype custom\[decimal\]32 and float32"):
        x + Var("y", "float32")


def test_scripts_are_read_and_written():
    @T.prim_func
    def main(A: T.Buffer((4,), "custom[decimal]32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.exp(A[i] + 0.1) * T.Cast("custom[decimal]32", B[i])

    assert_structural_equal(from_source(main.script()), main)


def test_the_smallest_value_is_what_is_registered():
    datatype.register("bounded", 143)
    datatype.register_min_func(datatype.create_min_lower_func({32: "least"}, "bounded"), "bounded")
    call = min_value("custom[bounded]32")
    assert call.dtype == "custom[bounded]32" and call.args[0].value == "least"
    with pytest.raises(InvalidValue, match=r"no function gives the smallest value of custom\[bounded\]16"):
        min_value("custom[bounded]16")
    with pytest.raises(NotRegistered, match=r"smallest value of custom\[decimal\]32 is not known: call register_min"):
        min_value("custom[decimal]32")
    with pytest.raises(InvalidValue, match=r"largest value of custom\[decimal\]32 is not known"):
        max_value("custom[decimal]32")


def test_code_is_cached_by_what_operations_are_lowered_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datatype, "_lowers", {})
    keys = [datatype.lowering_digest()]
    for name in ("add32", "sum32"):
        datatype.register_op(datatype.create_lower_func({32: name}), "Add", "llvm", "decimal")
        keys.append(datatype.lowering_digest())
    assert None not in keys and len(set(keys)) == 3
    datatype.register_op(lambda node: node, "Add", "llvm", "decimal")
    assert datatype.lowering_digest() is None, "there is no digest of a function of a user"


def test_a_cast_is_registered_with_both_of_its_dtypes():
    with pytest.raises(InvalidValue, match="a cast from 'float' is registered without dest_type_name"):
        datatype.register_op(datatype.create_lower_func({}), "Cast", "llvm", "float")


def test_a_width_without_a_function_is_refused():
    lower = datatype.create_lower_func({32: "add32"})
    with pytest.raises(InvalidValue, match=r"no function for 16 bits of .*; there are {32: 'add32'}"):
        lower(Add(Var("a", "uint16"), Var("b", "uint16")))
    with pytest.raises(TypeMismatch, match="a Var has no operands to call a function with"):
        lower(Var("a", "uint16"))
