"""Functions of the registry that show how arguments arrive."""

from __future__ import annotations

import pytest

import oneir.testing
from oneir.ir.expr import IntImm
from oneir.runtime.error import TypeMismatch


def test_numbers_become_what_the_function_takes():
    assert oneir.get_global_func("testing.AcceptsBool")(7) is True
    assert type(oneir.get_global_func("testing.AcceptsInt")(True)) is int
    with pytest.raises(TypeMismatch, match="AcceptsInt expects"):
        oneir.get_global_func("testing.AcceptsInt")("seven")


def test_expressions_are_made_of_numbers_in_arrays_and_maps():
    one = oneir.get_global_func("testing.AcceptsPrimExpr")(1)
    assert isinstance(one, IntImm) and one.dtype == "int32"
    first, second = oneir.get_global_func("testing.AcceptsArrayOfPrimExpr")([True, 2])
    assert (first.dtype, second.dtype) == ("bool", "int32")
    found = oneir.get_global_func("testing.AcceptsMapOfPrimExpr")({"a": 3})
    assert found["a"].value == 3


def test_what_needs_no_conversion_comes_back_as_it_was():
    assert oneir.get_global_func("testing.AcceptsObjectRefArray")(["a", 1]) == "a"
    assert oneir.get_global_func("testing.AcceptsMapReturnsValue")({"a": True}, "a") is True
    assert oneir.get_global_func("testing.AcceptsMapReturnsMap")({"a": 1}) == {"a": 1}
    with pytest.raises(TypeMismatch, match="an argument that is a map"):
        oneir.get_global_func("testing.AcceptsMapReturnsMap")(3)
