"""Names of the runtime behind which the compiler stands."""

from __future__ import annotations

import pytest

from oneir import tir
from oneir.ir import structural_equal
from oneir.runtime import AsRepr, LoadJSON, SaveJSON, const
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
