"""Names of the runtime behind which the compiler stands."""

from __future__ import annotations

import pytest

from oneir import tir
from oneir.ir import structural_equal
from oneir.runtime import (
    AsRepr,
    LoadJSON,
    ObjectConvertible,
    PackedFunc,
    SaveJSON,
    const,
    convert,
    get_global_func,
)
from oneir.runtime.error import InvalidValue, OneIRError


def test_constants():
    assert isinstance(const(3), tir.IntImm) and const(3).dtype == "int32" and const(1.5, "float16").dtype == "float16"
    with pytest.raises(InvalidValue, match="300 does not fit int8"):
        const(300, "int8")


def test_nodes_as_json_and_as_text():
    x = tir.Var("x", "int32")
    again = LoadJSON(SaveJSON(x + 1))
    assert structural_equal(again, x + 1, map_free_vars=True) and AsRepr(again) == "x + 1"
    with pytest.raises(OneIRError):
        LoadJSON("{")


class Index(ObjectConvertible):
    def asobject(self):
        return tir.IntImm("int64", 3)


def test_what_stands_for_an_object_is_taken_as_that():
    assert convert(Index()) == tir.IntImm("int64", 3)
    x = tir.Var("x", "int64")
    assert structural_equal(x + Index(), x + tir.IntImm("int64", 3), map_free_vars=True)
    assert isinstance(x == 1, ObjectConvertible) and isinstance(convert(x == 1), tir.EQ)
    with pytest.raises(NotImplementedError, match="ObjectConvertible has no method `asobject`"):
        convert(ObjectConvertible())
    with pytest.raises(OneIRError, match="expected a number or an expression"):
        x + object()


def test_every_function_is_a_packed_function():
    assert isinstance(get_global_func("vm.builtin.shape_of"), PackedFunc) and isinstance(len, PackedFunc)
    assert not isinstance(3, PackedFunc)
