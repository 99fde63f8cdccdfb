"""Models behind HTTP: plain requests, and Triton's client, which is others' code, against NumPy."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx2
import ml_dtypes
import numpy as np
import pytest
from loopback import on_loopback
from models import Gated, all_types, linear

from oneir.serving import http
from oneir.serving.app import Served, create_app
from oneir.serving.datatypes import DATATYPES
from oneir.serving.runner import Runner

X = np.arange(6, dtype="float32").reshape(2, 3)
B = np.ones((2, 3), "float32")
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    models = [Served("linear", Runner(linear(), max_batch=8)), Served("all types", Runner(all_types()))]
    with on_loopback(create_app(models, max_body=LIMIT)) as address:
        yield address


def tensor(name: str, array: np.ndarray, datatype: str = "FP32") -> dict:
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.tolist()}


def request(**changes) -> dict:
    return {"inputs": [tensor("x", X), tensor("b", B)], **changes}


def ask(address: str, body, model: str = "linear", **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(f"{address}/v2/models/{model}/infer", content=content, headers=sent, timeout=60)


def test_what_a_server_tells(address):
    def get(path):
        found = httpx2.get(f"{address}{path}")
        return found.status_code, found.json()

    status, found = get("/v2")
    assert status == 200 and found["name"] == "oneir" and found["extensions"] == ["binary_tensor_data"]
    assert get("/v2/health/live") == (200, {"live": True}) and get("/v2/health/ready") == (200, {"ready": True})
    assert get("/v2/models") == (200, {"models": ["linear", "all types"]})
    expected = {
        "name": "linear",
        "versions": ["1"],
        "platform": "oneir",
        "inputs": [{"name": name, "datatype": "FP32", "shape": [-1, 3]} for name in "xb"],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "s", "datatype": "FP32", "shape": [-1]},
        ],
    }
    assert get("/v2/models/linear") == get("/v2/models/linear/versions/1") == (200, expected)
    assert get("/v2/models/all%20types/versions/1/ready") == (200, {"name": "all types", "ready": True})
    assert get("/v2/models/nobody") == (404, {"error": "there is no model 'nobody'; this server has linear, all types"})
    assert get("/v2/models/linear/versions/2/ready")[1]["error"].endswith("has the version 1, and no version '2'")
    assert get("/v2/models/linear/infer") == (405, {"error": "GET /v2/models/linear/infer: Method Not Allowed"})
    assert get("/v3") == (404, {"error": "GET /v3: Not Found"})


def test_values_in_lists(address):
    found = ask(address, request(id="seven"))
    assert found.status_code == 200 and found.headers["content-type"] == "application/json"
    answer = found.json()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("linear", "1", "seven")
    y, s = answer["outputs"]
    assert y == {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": (2 * X + B).reshape(-1).tolist()}
    assert s == {"name": "s", "datatype": "FP32", "shape": [2], "data": X.sum(1).tolist()}
    flat = tensor("x", X) | {"data": X.reshape(-1).tolist()}
    assert ask(address, {"inputs": [tensor("b", B), flat]}).json()["outputs"] == answer["outputs"]
    [only] = ask(address, request(outputs=[{"name": "s"}])).json()["outputs"]
    assert only == s
    empty = np.zeros((0, 3), "float32")
    found = ask(address, {"inputs": [tensor("x", empty), tensor("b", empty)]}).json()["outputs"]
    assert [(o["shape"], o["data"]) for o in found] == [([0, 3], []), ([0], [])]


def test_numbers_that_json_lacks(address):
    odd = np.array([[np.nan, np.inf, -np.inf]], "float32")
    found = ask(address, {"inputs": [tensor("x", odd), tensor("b", np.ones_like(odd))]}).json()["outputs"][0]["data"]
    np.testing.assert_array_equal(found, [np.nan, np.inf, -np.inf])
    zero = np.zeros((1, 3), "float32")
    found = ask(address, {"inputs": [tensor("x", odd), tensor("b", zero)]}).json()["outputs"][0]["data"]
    np.testing.assert_array_equal(found, [np.nan, np.inf, -np.inf])


def test_bytes_behind_the_json(address):
    def part(name, array):
        size = {"binary_data_size": array.nbytes}
        return {"name": name, "datatype": "FP32", "shape": list(array.shape), "parameters": size}

    for padding in range(4):  # whatever their alignment
        header = (
            json.dumps(
                {
                    "inputs": [part("x", X), part("b", B)],
                    "outputs": [{"name": "s"}, {"name": "y", "parameters": {"binary_data": True}}],
                }
            ).encode()
            + b" " * padding
        )
        body = header + X.tobytes() + B.tobytes()
        found = ask(address, body, inference_header_content_length=str(len(header)))
        assert found.status_code == 200, found.text
        size = int(found.headers["inference-header-content-length"])
        s, y = json.loads(found.content[:size])["outputs"]
        assert s["data"] == X.sum(1).tolist() and y["parameters"] == {"binary_data_size": 24} and "data" not in y
        np.testing.assert_array_equal(np.frombuffer(found.content[size:], "float32").reshape(2, 3), 2 * X + B)
    short = ask(address, body[:-1], inference_header_content_length=str(len(header)))
    message = "inputs[1] `b`: binary_data_size is 24, but 23 bytes of tensors are left behind the JSON"
    assert (short.status_code, short.json()["error"]) == (400, message)
    long = ask(address, body + b"1", inference_header_content_length=str(len(header)))
    assert long.json()["error"] == "49 bytes are behind the JSON, of which no input has 1"
    wrong = ask(address, body, inference_header_content_length="99999").json()["error"]
    assert wrong == f"inference-header-content-length: expected a number up to {len(body)}, found '99999'"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is no JSON: Expecting property name"),
        (b"[" * 100_000, "the body is no JSON: maximum recursion depth"),
        (b"\xff\xfe\x00", "the body is no JSON: "),
        (b"[]", "expected an object as the body, found a value of the type list"),
        ({}, "inputs: `x` is missing; the inputs are x: float32[n, 3], b: float32[n, 3]"),
        ({"inputs": 3}, "the request: inputs is a list, found 3"),
        ({"inputs": [3]}, "inputs[0]: expected an object, found a value of the type int"),
        ({"inputs": [{}]}, "inputs[0]: name is missing; it is a string"),
        ({"inputs": [tensor("z", X)]}, "inputs[0]: there is no input `z`; there are x, b"),
        ({"inputs": [tensor("x", X)] * 2}, "inputs[1]: `x` stands there twice"),
        ({"inputs": [{"name": "x"}]}, "inputs[0] `x`: datatype is missing; it is a string"),
        ({"inputs": [tensor("x", X, "FP64")]}, "inputs[0] `x`: expected the datatype FP32, found FP64"),
        ({"inputs": [tensor("x", X, "BYTES")]}, "expected the datatype FP32, found BYTES; no compiled program takes"),
        ({"inputs": [tensor("x", X, "float")]}, "found float; datatypes are BOOL, UINT8, "),
        ({"inputs": [tensor("x", X) | {"shape": 6}]}, "inputs[0] `x`: shape is a list, found 6"),
        ({"inputs": [tensor("x", X) | {"shape": [-2, 3]}]}, "a shape is a list of up to 32 numbers from 0 on"),
        ({"inputs": [tensor("x", X) | {"shape": [True, 3]}]}, "a shape is a list of up to 32 numbers from 0 on"),
        ({"inputs": [tensor("x", X) | {"shape": [1 << 39, 1 << 39]}]}, "has too many values"),
        ({"inputs": [tensor("x", X) | {"shape": [3, 3]}]}, "expected the shape [3, 3], or one list, found [2, 3]"),
        ({"inputs": [tensor("x", X) | {"data": [1, 2]}]}, "the shape [2, 3] has 6 values, found 2"),
        ({"inputs": [tensor("x", X) | {"data": [[1, 2, 3], [4, 5]]}]}, "its lists differ in length"),
        ({"inputs": [tensor("x", X) | {"data": [[1, 2, 3], [4, 5, "6"]]}]}, "expected numbers, found '6'"),
        ({"inputs": [tensor("x", X) | {"data": [1, 2, 3, 4, 5, None]}]}, "expected numbers, found None"),
        ({"inputs": [tensor("x", X) | {"data": "text"}]}, "expected its values as a list, found 'text'"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3]}]}, "has neither `data` nor the parameter"),
        (
            {"inputs": [tensor("x", X), tensor("b", B[:1])]},
            "argument 1 `b` of `main`: expected shape (n, 3) with n = 2",
        ),
        ({"inputs": [tensor("x", X[0]), tensor("b", B)]}, "argument 0 `x` of `main`: expected"),
        (request(outputs=[{"name": "z"}]), "outputs: there is no result `z`; there are y, s"),
        (request(outputs=[{"name": "y"}] * 2), "outputs[1]: `y` stands there twice"),
        (request(parameters={"sequence_id": 4}), "models keep no state from one request to another"),
        (request(parameters={"binary_data_output": 1}), "binary_data_output is true or false, found 1"),
        (request(parameters={"timeout": -1}), "parameters: timeout is a number of microseconds, found -1"),
        (request(id=7), "the request: id is a string, found 7"),
    ],
)
def test_requests_that_are_refused(address, body, message):
    found = ask(address, body)
    assert found.status_code == 400 and message in found.json()["error"]


def test_bodies_that_are_refused(address):
    found = ask(address, b" " * (LIMIT + 1))
    assert (found.status_code, found.json()["error"]) == (413, f"a body has at most {LIMIT} bytes")
    found = ask(address, request(), content_encoding="gzip")
    assert (found.status_code, found.json()["error"]) == (
        415,
        "expected a body as it is, found one of content-encoding gzip",
    )


def test_a_body_that_does_not_come(address, monkeypatch):
    monkeypatch.setattr(http, "BODY_SECONDS", 0.05)
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(b"POST /v2/models/linear/infer HTTP/1.1\r\nhost: here\r\ncontent-length: 9\r\n\r\n123")
        answer = b""
        while b"not come in 0.05 seconds; 3 bytes of it have" not in answer:
            part = connection.recv(1 << 16)
            assert part, answer
            answer += part
    assert answer.startswith(b"HTTP/1.1 408")


VALUES = {
    "b": [True, False, True, True],
    "u": [0, 1, 2, "most"],
    "i": [-1, 0, "least", "most"],
    "f": [1.5, -0.5, 0, 240],
}


def array_of(dtype: str) -> np.ndarray:
    found = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    limits = np.iinfo(found) if found.kind in "ui" else None
    values = VALUES["f" if found.kind == "V" else found.kind]
    known = {} if limits is None else {"least": int(limits.min), "most": int(limits.max)}
    return np.array([known.get(value, value) for value in values], found)


def test_every_datatype_in_lists(address):
    inputs = [tensor(f"in_{name.lower()}", array_of(dtype), name) for name, dtype in DATATYPES.items()]
    found = ask(address, {"inputs": inputs}, "all types")
    assert found.status_code == 200, found.text
    answers = {output["name"]: output for output in found.json()["outputs"]}
    for name, dtype in DATATYPES.items():
        answer = answers[f"out_{name.lower()}"]
        assert (answer["datatype"], answer["data"]) == (name, array_of(dtype)[::-1].tolist())


@pytest.mark.parametrize(
    ("datatype", "values", "message"),
    [
        ("INT8", [0, 1, 2, 128], "expected values of int8, found 128"),
        ("UINT64", [0, 1, 2, 1 << 64], "expected values of uint64, found 18446744073709551616"),
        ("UINT64", [-1, 1, 2, (1 << 64) - 1], "expected values of uint64, found -1"),
        ("INT32", [0, 1, 2, 1.0], "expected integers, found 1.0"),
        ("INT32", [True, False, True, True], "expected integers, found True"),
        ("FP16", [True, False, True, True], "expected numbers, found True"),
        ("BOOL", [0, 1, 1, 0], "expected true or false, found 0"),
        ("BF16", ["1", 0, 0, 0], "expected numbers, found '1'"),
    ],
)
def test_values_of_other_datatypes(address, datatype, values, message):
    given = {"name": f"in_{datatype.lower()}", "datatype": datatype, "shape": [4], "data": values}
    found = ask(address, {"inputs": [given]}, "all types")
    assert (found.status_code, found.json()["error"]) == (400, f"inputs[0] `in_{datatype.lower()}`: {message}")


def test_the_client_of_triton(address):
    client = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed", exc_type=ImportError)
    errors = pytest.importorskip("tritonclient.utils")
    with client.InferenceServerClient(address.removeprefix("http://"), concurrency=4) as triton:
        assert triton.is_server_live() and triton.is_server_ready() and triton.is_model_ready("linear", "1")
        assert triton.get_model_metadata("linear")["inputs"][0]["shape"] == [-1, 3]
        for binary in (True, False):
            inputs = []
            for name, dtype in DATATYPES.items():
                inputs.append(client.InferInput(f"in_{name.lower()}", [4], name))
                inputs[-1].set_data_from_numpy(array_of(dtype), binary_data=binary or name in ("FP16", "BF16"))
            wanted = [client.InferRequestedOutput(f"out_{name.lower()}", binary_data=binary) for name in DATATYPES]
            found = triton.infer("all types", inputs, outputs=wanted, request_id="a")
            assert found.get_response()["id"] == "a"
            for name, dtype in DATATYPES.items():
                expected = array_of(dtype)[::-1]
                np.testing.assert_array_equal(
                    found.as_numpy(f"out_{name.lower()}"),
                    expected.astype("float32" if name == "BF16" else expected.dtype),
                )
        arrays = {"x": X, "b": B}
        inputs = [client.InferInput(name, array.shape, "FP32") for name, array in arrays.items()]
        for one in inputs:
            one.set_data_from_numpy(arrays[one.name()])
        calls = [triton.async_infer("linear", inputs) for _ in range(8)]
        for call in calls:
            np.testing.assert_array_equal(call.get_result().as_numpy("y"), 2 * X + B)
        with pytest.raises(errors.InferenceServerException, match="`b` is missing"):
            triton.infer("linear", inputs[:1])


# -- many clients, and clients that leave --


def test_requests_that_meet_share_a_run():
    model = Gated(linear().executable)
    runner = Runner(model, max_batch=4, max_waiting=5)
    app = create_app([Served("m", runner)])
    found: dict[int, httpx2.Response] = {}

    def send(i: int) -> None:
        found[i] = ask(address, {"inputs": [tensor("x", X + i), tensor("b", B)]}, "m")

    with on_loopback(app) as address:
        threads = [threading.Thread(target=send, args=[0])]
        threads[0].start()
        model.wait_until_running()
        for i in range(1, 6):  # one after the other, so that their order is known
            threads.append(threading.Thread(target=send, args=[i]))
            threads[-1].start()
            wait_until(lambda count=i: runner.waiting == count)
        refused = ask(address, request(), "m")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"] == "5 requests wait already; ask again later"
        model.open()
        for thread in threads:
            thread.join()
        for i in range(6):
            assert found[i].json()["outputs"][0]["data"] == (2 * (X + i) + B).reshape(-1).tolist()
            assert found[i].json()["outputs"][1]["data"] == (X + i).sum(1).tolist()
        assert model.rows == [2, 4, 4, 2]
        lines = httpx2.get(f"{address}/metrics").text.splitlines()
    assert 'oneir_model_runs_total{model="m"} 4' in lines and 'oneir_model_rows_total{model="m"} 12' in lines
    assert 'oneir_responses_total{path="/v2/models/{name}/infer",status="429"} 1' in lines
    assert 'oneir_model_requests_in_run_bucket{model="m",le="1"} 2' in lines
    assert 'oneir_model_request_seconds_count{model="m"} 6' in lines


def test_a_client_that_leaves_is_not_answered_and_nobody_else_notices():
    model = Gated(linear().executable)
    runner = Runner(model)
    with on_loopback(create_app([Served("m", runner)])) as address:
        host, port = address.removeprefix("http://").split(":")
        body = json.dumps(request()).encode()
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection((host, int(port))) as half:
            half.sendall(head + body[:20])  # leaves within its body
        first = socket.create_connection((host, int(port)))
        first.sendall(head + body)
        model.wait_until_running()
        second = socket.create_connection((host, int(port)))
        second.sendall(head + body)
        wait_until(lambda: runner.waiting == 1)
        first.close()
        second.close()
        metrics = 'oneir_responses_total{path="/v2/models/{name}/infer",status="499"} 2'
        wait_until(lambda: metrics in httpx2.get(f"{address}/metrics").text)
        model.open()
        assert ask(address, request(), "m").status_code == 200
        assert model.rows == [2, 2], "the second one still waited, and was not run"


def test_what_is_under_way_is_answered_when_the_server_is_stopped():
    model = Gated(linear().executable)
    found: list[httpx2.Response] = []
    with on_loopback(create_app([Served("m", Runner(model))])) as address:
        asking = threading.Thread(target=lambda: found.append(ask(address, request(), "m")))
        asking.start()
        model.wait_until_running()
        threading.Timer(0.2, model.open).start()
    asking.join()
    assert found[0].status_code == 200 and found[0].json()["outputs"][1]["data"] == X.sum(1).tolist()


def test_bodies_that_are_under_way_have_a_bound():
    model = Gated(linear().executable)
    with on_loopback(create_app([Served("m", Runner(model))], max_body=1000)) as address:
        host, port = address.removeprefix("http://").split(":")
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000\r\n\r\n".encode()
        open_ones = [socket.create_connection((host, int(port))) for _ in range(16)]
        for connection in open_ones:
            connection.sendall(head)  # and no body yet
        wait_until(lambda: ask(address, request(), "m").status_code == 429)
        assert ask(address, request(), "m").json()["error"] == (
            "requests of 16000 bytes are under way already; ask again later"
        )
        for connection in open_ones:
            connection.close()
        model.open()
        wait_until(lambda: ask(address, request(), "m").status_code == 200)


def test_a_server_with_a_key():
    with on_loopback(create_app([Served("m", Runner(linear()))], api_key="secret")) as address:
        found = ask(address, request(), "m")
        message = "expected the server's key as `Authorization: Bearer KEY`"
        assert (found.status_code, found.json()["error"]) == (401, message)
        assert ask(address, request(), "m", authorization="Bearer secret").status_code == 200
        assert httpx2.get(f"{address}/v2/health/ready").status_code == 200


def wait_until(holds) -> None:
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("waited in vain")
