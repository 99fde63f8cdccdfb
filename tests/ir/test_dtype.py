"""Names of dtypes: their parts, the ones that are one, and those that are none."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from oneir.ir.dtype import DataType
from oneir.runtime.error import OneIRError


@pytest.mark.parametrize(
    ("name", "code", "bits", "lanes", "scalable"),
    [
        ("int8", "int", 8, 1, False),
        ("uint16x4", "uint", 16, 4, False),
        ("float32x16", "float", 32, 16, False),
        ("bfloat16", "bfloat", 16, 1, False),
        ("bool", "bool", 1, 1, False),
        ("boolx8", "bool", 1, 8, False),
        ("int32xvscalex4", "int", 32, 4, True),
        ("float8_e4m3fn", "float8_e4m3fn", 8, 1, False),
        ("float8_e5m2x4", "float8_e5m2", 8, 4, False),
        ("float4_e2m1fn", "float4_e2m1fn", 4, 1, False),
        ("handle", "handle", 64, 1, False),
        ("void", "void", 0, 1, False),
        ("int4", "int", 4, 1, False),
    ],
)
def test_parts(name, code, bits, lanes, scalable):
    dtype = DataType(name)
    assert (dtype.code, dtype.bits, dtype.lanes, dtype.scalable) == (code, bits, lanes, scalable)
    assert dtype == name and hash(dtype) == hash(name) and str(dtype) == name
    assert dtype.is_scalar == (lanes == 1 and not scalable)
    assert dtype.element.lanes == 1 and dtype.element.bits == bits


def test_each_name_is_one_object():
    assert DataType("float32") is DataType(np.float32) is DataType(np.dtype("float32")) is DataType("float32x1")
    assert DataType("") is DataType("void") and DataType("uint1") is DataType("bool") is DataType(bool)
    assert pickle.loads(pickle.dumps(DataType("int8x4"))) is DataType("int8x4")
    assert copy.deepcopy(DataType("int8")) is DataType("int8")


def test_kinds():
    kinds = {
        "int8": (True, False, False, False),
        "uint8": (True, True, False, False),
        "bool": (False, False, False, True),
        "float16": (False, False, True, False),
        "bfloat16": (False, False, True, False),
        "float8_e5m2": (False, False, True, False),
        "handle": (False, False, False, False),
    }
    for name, expected in kinds.items():
        d = DataType(name)
        assert (d.is_int, d.is_uint, d.is_float, d.is_bool) == expected, name
    assert [n for n in ("int16", "int32", "int64", "uint32", "int32x4") if DataType(n).is_index] == ["int32", "int64"]


@pytest.mark.parametrize(
    ("name", "size"),
    [("int8", 1), ("bool", 1), ("boolx8", 8), ("float32x4", 16), ("int4", 1), ("int4x8", 4), ("handle", 8)],
)
def test_size_in_memory(name, size):
    assert DataType(name).itemsize == size


def test_lanes_can_be_changed():
    f = DataType("float32")
    assert f.with_lanes(8) is DataType("float32x8") and f.with_lanes(8).with_lanes(1) is f and f.with_lanes(1) is f
    assert f.with_lanes(4, scalable=True) is DataType("float32xvscalex4")
    assert DataType("bool").with_lanes(4) is DataType("boolx4")


def test_numpy_counterparts():
    for name in ("int8", "uint64", "float16", "bool"):
        assert DataType(name).to_numpy() == np.dtype(name)
    assert DataType("bfloat16x4").to_numpy() == ml_dtypes.bfloat16 and DataType("int4").to_numpy() == ml_dtypes.int4
    with pytest.raises(OneIRError, match="dtype 'int7' has no NumPy counterpart"):
        DataType("int7").to_numpy()


@pytest.mark.parametrize(
    "name", ["flot32", "float", "int", "int8x", "int8x0", "float32x-1", "float8_e9m9", "int129", "x4"]
)
def test_names_of_nothing_are_refused(name):
    with pytest.raises(OneIRError, match=f"unknown dtype '{name}'"):
        DataType(name)


def test_objects_that_are_no_dtype_are_refused():
    with pytest.raises(OneIRError, match=r"expected a dtype such as 'float32' or 'int8x4', found 3\.5"):
        DataType(3.5)
