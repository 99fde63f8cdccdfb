"""Names of dtypes against NumPy, ml_dtypes and DLPack's numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from oneir.runtime.dtype import dlpack_dtype, dtype_name, name_of_dlpack, numpy_dtype
from oneir.runtime.error import TypeMismatch

# From dlpack.h.
KNOWN = {
    "int8": (0, 8, 1),
    "uint64": (1, 64, 1),
    "float32": (2, 32, 1),
    "handle": (3, 64, 1),
    "bfloat16": (4, 16, 1),
    "bool": (6, 8, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e5m2": (12, 8, 1),
    "float4_e2m1fn": (17, 4, 1),
    "float32x4": (2, 32, 4),
    "int4": (0, 4, 1),
    "float8_e4m3fnx2": (10, 8, 2),
    "uint1": (1, 1, 1),
    "boolx16": (6, 8, 16),
}


@pytest.mark.parametrize(("name", "numbers"), KNOWN.items())
def test_dlpack_numbers_and_back(name, numbers):
    assert dlpack_dtype(name) == numbers
    assert name_of_dlpack(*numbers) == name


@pytest.mark.parametrize("name", ["", "float", "foo32", "float32x0", "int-8", "float32 ", "int999", "x4"])
def test_no_dtype(name):
    with pytest.raises(TypeMismatch, match=r"is no dtype; expected a name such as 'float32'"):
        dlpack_dtype(name)


def test_unknown_dlpack_numbers():
    with pytest.raises(TypeMismatch, match=r"code 5, 64 bits and 1 lanes is not supported"):
        name_of_dlpack(5, 64, 1)


def test_numpy_dtypes():
    assert numpy_dtype("float16") == np.float16
    assert numpy_dtype("bfloat16") == ml_dtypes.bfloat16
    assert dtype_name(np.int64) == dtype_name(np.dtype("<i8")) == dtype_name("int64") == "int64"
    assert numpy_dtype("float32x4").base == np.float32 and numpy_dtype("float32x4").shape == (4,)
    assert dtype_name("bfloat") == "bfloat16"
    with pytest.raises(TypeMismatch, match=r"A tensor cannot hold dtype 'handle'"):
        numpy_dtype("handle")
    with pytest.raises(TypeMismatch, match=r"dtype 'complex128' is not supported"):
        dtype_name(complex)
