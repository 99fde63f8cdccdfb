"""Files of named tensors: written as the safetensors format says, read back bit for bit, damaged ones refused."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from oneir.runtime import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
    tensor,
)
from oneir.runtime.error import InvalidValue, TypeMismatch


def test_the_bytes_are_those_of_the_format():
    data = save_param_dict({"a": np.array([[1, 2]], "int16"), "b": np.array(1.0, "float32")})
    header = (
        b'{"a":{"dtype":"I16","shape":[1,2],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]}}'
    )
    header += b" " * (-len(header) % 8)
    assert data == len(header).to_bytes(8, "little") + header + b"\x01\x00\x02\x00" + b"\x00\x00\x80\x3f"


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "float16", "int32", "uint64", "float64", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2],
)
def test_what_is_written_is_read_back(dtype, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    save_param_dict_to_file({"x": array, "y": tensor(array.T), "empty": array[:0]}, tmp_path / "p.safetensors")
    read = load_param_dict_from_file(tmp_path / "p.safetensors")
    assert list(read) == ["x", "y", "empty"]
    for name, expected in {"x": array, "y": array.T, "empty": array[:0]}.items():
        got = read[name].numpy()
        assert got.dtype == expected.dtype and got.shape == expected.shape
        assert got.tobytes() == np.ascontiguousarray(expected).tobytes()


def test_metadata_is_no_tensor():
    text = b'{"__metadata__":{"format":"pt"}}'
    assert load_param_dict(len(text).to_bytes(8, "little") + text) == {}


def test_what_cannot_be_written_is_refused():
    with pytest.raises(TypeMismatch, match="'x' has the dtype int4, which safetensors cannot hold"):
        save_param_dict({"x": np.zeros(2, ml_dtypes.int4)})
    with pytest.raises(TypeMismatch, match="parameters are named by str, found 1"):
        save_param_dict({1: np.zeros(2)})


def file_of(entry, items=b"1234"):
    text = json.dumps({"w": entry}).encode()
    return len(text).to_bytes(8, "little") + text + items


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found 0 bytes"),
        (b"\xff" * 8, "with a header of"),
        ((3).to_bytes(8, "little") + b"{x}", "no JSON"),
        ((2).to_bytes(8, "little") + b"[]", "must be a JSON object"),
        ((100_000).to_bytes(8, "little") + b"[" * 100_000, "no JSON"),
        (file_of([]), "expected a known dtype"),
        (file_of({"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}), "expected a known dtype"),
        (file_of({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}), "without negative extents"),
        (file_of({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}), "without negative extents"),
        (file_of({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}), "takes 8 bytes; found the bytes from 0 to 4"),
        (file_of({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}), "from 4 to 8 of 4"),
        (file_of({"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}), "from -4 to 0"),
        (file_of({"dtype": "F32", "shape": [1 << 70], "data_offsets": [0, 4]}), "takes"),
    ],
)
def test_damaged_files_are_refused(data, message):
    with pytest.raises(InvalidValue, match=message):
        load_param_dict(data)


def test_a_refusal_names_the_file(tmp_path):
    (tmp_path / "p.safetensors").write_bytes(b"123")
    with pytest.raises(InvalidValue, match=r"p\.safetensors: expected the safetensors format, found 3 bytes"):
        load_param_dict_from_file(tmp_path / "p.safetensors")


def test_shapes_that_no_array_can_have_are_refused():
    for shape in ([1 << 62, 0, 8], [0] * 65, [10**4000, 10**4000]):
        entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
        with pytest.raises(InvalidValue, match="takes more than an array can have"):
            load_param_dict(file_of(entry, b""))
