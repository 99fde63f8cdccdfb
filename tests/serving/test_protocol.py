"""Requests that are damaged anywhere are refused with a status of the client's fault, and never anything else."""

from __future__ import annotations

import copy
import json
import random

import numpy as np
import pytest

from oneir.runtime.signature import Param
from oneir.serving.http import HTTPError
from oneir.serving.protocol import read_inference, wanted_results, write_inference

INPUTS = (Param("x", "tensor", "float32", ("n", 2)), Param("k", "tensor", "int8", (3,)))
X, K = np.arange(4, dtype="float32").reshape(2, 2), np.array([1, -2, 3], "int8")
REQUEST = {
    "id": "a",
    "parameters": {"timeout": 5, "binary_data_output": True},
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": 16}},
        {"name": "k", "datatype": "INT8", "shape": [3], "data": K.tolist()},
    ],
    "outputs": [{"name": "y", "parameters": {"binary_data": False}}, {"name": "z"}],
}
ODD = [
    None,
    True,
    -1,
    0,
    3,
    1 << 70,
    1.5,
    float("nan"),
    "",
    "x",
    "INT8",
    [],
    [[]],
    {},
    {"name": "x"},
    [1, "a"],
    [[[1]]],
]


def test_what_a_request_says():
    header = json.dumps(REQUEST).encode()
    found = read_inference(header + X.tobytes(), str(len(header)), INPUTS)
    assert (found.id, found.timeout, found.outputs) == ("a", 5e-6, {"y": False, "z": True})
    np.testing.assert_array_equal(found.arrays[0], X)
    np.testing.assert_array_equal(found.arrays[1], K)
    assert [array.dtype for array in found.arrays] == ["float32", "int8"]
    with pytest.raises(HTTPError, match="there is no result `z`; there are y"):
        wanted_results(found, ["y"])


def places(value, path=()):
    """The paths of all values in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*path, key)
        yield from places(part, (*path, key))


def test_every_value_may_be_another_one():
    read = 0
    for path in places(REQUEST):
        for odd in ODD:
            damaged = copy.deepcopy(REQUEST)
            owner = damaged
            for key in path[:-1]:
                owner = owner[key]
            owner[path[-1]] = odd
            header = json.dumps(damaged).encode()
            read += accepted(header + X.tobytes(), str(len(header)))
    assert 20 < read < 200, "some changes leave a request"


def test_bytes_may_be_others():
    rng, header = random.Random(3), json.dumps(REQUEST).encode()
    body = header + X.tobytes()
    for _ in range(2000):
        damaged = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        cut = rng.choice([len(damaged), rng.randrange(len(damaged))])
        accepted(bytes(damaged[:cut]), rng.choice([None, str(len(header)), str(rng.randrange(400)), "-1", "1e3", ""]))


def accepted(body: bytes, header_length: str | None) -> bool:
    """Whether a request is taken; all that is raised otherwise is an error of the client's."""
    try:
        found = read_inference(body, header_length, INPUTS)
    except HTTPError as error:
        assert error.status == 400 and str(error)
        return False
    assert [array.dtype for array in found.arrays] == ["float32", "int8"]
    return True


def test_a_result_that_the_protocol_lacks():
    with pytest.raises(HTTPError, match="the result `y` has the dtype complex64, for which the protocol has no name"):
        write_inference("m", "1", None, {"y": np.zeros(1, "complex64")}, {"y": False})
