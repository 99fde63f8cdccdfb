"""Sessions with another process: what runs there gives what NumPy computes here, and nothing that is sent harms it."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import oneir
import oneir.testing  # registers functions of tests
from oneir import relax, rpc, te
from oneir.relax import op
from oneir.relax.struct_info import TensorStructInfo
from oneir.rpc import wire
from oneir.runtime.error import (
    DeviceError,
    ExecutionError,
    InvalidValue,
    NotRegistered,
    RPCError,
    RPCSessionTimeoutError,
    ShapeMismatch,
    TypeMismatch,
)
from oneir.runtime.tensor import tensor

SECRET = "a secret"
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[rpc.Server]:
    functions = {
        "test.remote.add": lambda a, b: a + b,
        "test.remote.back": lambda *values: values,
        "test.remote.crash": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "test.remote.fail": lambda text: {}[text],
        "test.remote.name": lambda: lambda: "a function of the other side",
        "test.remote.pid": os.getpid,
        "test.remote.sleep": time.sleep,
        "test.remote.sum": lambda x: float(x.numpy().sum()),
        "test.remote.twice": lambda x: tensor(x.numpy() * 2),
    }
    for name, function in functions.items():
        oneir.register_global_func(name, function)
    with rpc.Server(port=0, secret=SECRET, limit=LIMIT) as server:
        yield server
    for name in functions:
        oneir.runtime.remove_global_func(name)


@pytest.fixture
def remote(server: rpc.Server) -> Iterator[rpc.RemoteSession]:
    with rpc.connect("127.0.0.1", server.port, secret=SECRET) as session:
        yield session


def test_a_kernel_runs_and_is_timed_there(remote: rpc.RemoteSession, tmp_path: Path) -> None:
    x = te.placeholder((te.var("n"), 3), name="x")
    add = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="y")])
    oneir.compile(add.with_attr("global_symbol", "add")).export_library(tmp_path / "add.tar")
    remote.upload(str(tmp_path / "add.tar"))
    module = remote.load_module("add.tar")
    device = remote.cpu()
    assert str(device) == f"remote[{remote.index}]:cpu:0" and device.exist and not remote.cpu(1).exist
    values = np.arange(6, dtype="float32").reshape(2, 3)
    given, result = oneir.nd.array(values, device), oneir.nd.array(np.zeros((2, 3), "float32"), device)
    module["add"](given, result)
    np.testing.assert_array_equal(result.numpy(), values + 1)
    times = module.time_evaluator(module.entry_name, device, number=3, repeat=2)(given, result)
    assert len(times.results) == 2 and times.mean > 0
    with pytest.raises(ShapeMismatch, match="argument 1 `y` of `add`: expected shape"):
        module(given, oneir.nd.array(np.zeros((3, 3), "float32"), device))
    with pytest.raises(
        TypeMismatch, match=r"expected a tensor on a device of the session, found one on cpu:0; copy it"
    ):
        module(given, tensor(values))
    with pytest.raises(NotRegistered, match="has no function 'sub'; it has add"):
        module["sub"]


def test_a_graph_runs_there(remote: rpc.RemoteSession, tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", TensorStructInfo((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(relax.Tuple([builder.emit(op.add(x, x)), builder.emit(op.sum(x))]))
        builder.emit_func_output(made)
    relax.build(builder.get(), "llvm").export_library(tmp_path / "graph.tar")
    remote.upload(str(tmp_path / "graph.tar"))
    machine = relax.VirtualMachine(remote.load_module("graph.tar"), device=remote.cpu())
    values = np.arange(6, dtype="float32").reshape(2, 3)
    given = oneir.nd.array(values, remote.cpu())
    double, total = machine["main"](given)
    np.testing.assert_array_equal(double.numpy(), values * 2)
    assert total.numpy() == 15 and double.device == remote.cpu()
    machine.set_input("main", double)
    machine.invoke_stateful("main")
    np.testing.assert_array_equal(machine.get_outputs("main")[0].numpy(), values * 4)
    assert machine.time_evaluator("main", remote.cpu(), number=2)(given).mean > 0
    report = machine.profile("main", given)
    whole = report.device_metrics["cpu0"]["Duration (us)"].microseconds
    assert report.calls and whole >= sum(call["Duration (us)"].microseconds for call in report.calls) > 0
    assert {call["Name"] for call in report.calls} == {row["Name"] for row in report.rows()}
    assert str(machine.profile("main")) != "", "of the input that it keeps"


def test_tensors_of_any_size_and_dtype(remote: rpc.RemoteSession) -> None:
    total, twice = remote.get_function("test.remote.sum"), remote.get_function("test.remote.twice")
    many = np.ones((3 * LIMIT // 8 + 5,), "float64")  # more than a message has
    assert total(oneir.nd.array(many, remote.cpu())) == many.size
    np.testing.assert_array_equal(twice(oneir.nd.array(many, remote.cpu())).numpy(), many * 2)
    for dtype in ("bool", "int8", "uint64", "float16", "bfloat16"):
        values = tensor(np.array([[1, 0, 1]])).numpy().astype(oneir.runtime.empty((1,), dtype).numpy().dtype)
        np.testing.assert_array_equal(oneir.nd.array(values, remote.cpu()).numpy(), values)
    nothing = oneir.nd.array(np.zeros((0, 4), "float32"), remote.cpu())
    assert nothing.numpy().shape == (0, 4) and total(nothing) == 0


def test_memory_is_given_back_there(remote: rpc.RemoteSession) -> None:
    for _ in range(50):  # 400 MB, of which the other side never has more than a little
        oneir.nd.array(np.ones(1 << 20, "float64"), remote.cpu())
    gc.collect()
    lines = Path(f"/proc/{remote.get_function('test.remote.pid')()}/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    own = next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    assert resident < own + 200_000


def test_values_come_back_as_they_were(remote: rpc.RemoteSession) -> None:
    back = remote.get_function("test.remote.back")
    values = (None, True, -(1 << 70), 1.5, float("inf"), "Grüße", b"\0bytes", [1, ("a", [])], remote.cpu())
    assert back(*values) == tuple(bytearray(v) if isinstance(v, bytes) else v for v in values)
    assert remote.get_function("test.remote.add")("abc", "def") == "abcdef"
    assert remote.get_function("test.remote.name")()() == "a function of the other side"
    assert back(remote.get_function("test.remote.add"))[0](2, 3) == 5
    with pytest.raises(TypeMismatch, match=r"expected a number, a text, bytes, None, a list of such, .*; found object"):
        back(object())
    with pytest.raises(ExecutionError, match="KeyError: 'x'"):
        remote.get_function("test.remote.fail")("x")
    with pytest.raises(NotRegistered):
        remote.get_function("test.remote.none")


def test_files_come_back_and_go(remote: rpc.RemoteSession) -> None:
    remote.upload(b"content", "a/c.bin")
    assert remote.download("a/c.bin") == b"content" and remote.listdir() == "a"
    remote.remove("a/c.bin")
    with pytest.raises(InvalidValue, match=r"no file 'a/c\.bin' has been uploaded"):
        remote.download("a/c.bin")
    with pytest.raises(InvalidValue, match=r"lie in its own folder; found the name '\.\./x'"):
        remote.upload(b"content", "../x")
    with pytest.raises(InvalidValue, match=f"takes at most {LIMIT} bytes in a message, found {LIMIT + 1}"):
        remote.upload(bytes(LIMIT + 1), "large")
    remote.upload(b"no library", "lib.tar")
    with pytest.raises(OSError, match="is not a library that export_library wrote"):
        remote.load_module("lib.tar")


def test_who_may_connect(server: rpc.Server) -> None:
    with pytest.raises(InvalidValue, match="refused: the client's secret is not that of this server"):
        rpc.connect("127.0.0.1", server.port, secret="another")
    with pytest.raises(RPCError, match="refused: 'board' is not the key of this server"):
        rpc.connect("127.0.0.1", server.port, "board", secret=SECRET)
    with pytest.raises(
        InvalidValue, match=r"whoever reaches 0\.0\.0\.0 could run code by this server: give it a secret"
    ):
        rpc.Server("0.0.0.0", key="board")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeviceError, match=f"no port from {port} to {port} of 127.0.0.1 is free"):
            rpc.Server(port=port, port_end=port)
    with pytest.raises(DeviceError, match=r"no port from 65536 to 65600 of 127.0.0.1 is free: ports end at 65535"):
        rpc.Server(port=65536, port_end=65600)
    with pytest.raises(DeviceError, match=r"nobody listens at .*; start a server there: oneir rpc-server --port"):
        rpc.connect("127.0.0.1", port)


def test_sessions_are_apart(server: rpc.Server, remote: rpc.RemoteSession) -> None:
    with rpc.connect("127.0.0.1", server.port, secret=SECRET) as other:
        pids = {s.get_function("test.remote.pid")() for s in (remote, other)}
        assert len(pids) == 2 and os.getpid() not in pids
        other.upload(b"1", "mine")
        assert remote.listdir() == ""
        foreign = oneir.nd.array(np.zeros(3), other.cpu())
        with pytest.raises(TypeMismatch, match="expected a tensor on a device of the session"):
            remote.get_function("test.remote.sum")(foreign)
        with pytest.raises(DeviceError, match=r"the session has ended while it was asked to call: .*connect anew"):
            other.get_function("test.remote.crash")()
        with pytest.raises(DeviceError, match="the session is closed"):
            foreign.numpy()
    assert remote.get_function("test.remote.add")(1, 2) == 3


def test_a_session_ends_when_its_time_is_over(server: rpc.Server) -> None:
    short = rpc.connect("127.0.0.1", server.port, session_timeout=0.2, secret=SECRET)
    with short, pytest.raises(DeviceError, match="the session's time was over"):
        short.get_function("test.remote.sleep")(60)


# -- messages of someone who is no client of ours --


def opened(server: rpc.Server) -> socket.socket:
    """A connection whose other side waits for messages."""
    connection = socket.create_connection(("127.0.0.1", server.port), 30)
    greeting, _ = wire.receive(connection, 0)
    wire.send(connection, {"oneir-rpc": wire.VERSION, "signed": wire.sign(SECRET, greeting["challenge"])})
    assert wire.receive(connection, 0)[0] == {"ok": True}
    return connection


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({}, "expected a text as op, found None"),
        ({"op": "eval"}, "there is no operation 'eval'; there are upload, "),
        ({"op": "alloc", "bytes": -1, "device": [1, 0]}, "expected a number from 0 on as bytes, found -1"),
        ({"op": "alloc", "bytes": True, "device": [1, 0]}, "expected a number from 0 on as bytes, found True"),
        ({"op": "alloc", "bytes": 1 << 61, "device": [1, 0]}, ""),
        ({"op": "alloc", "bytes": 8, "device": [1]}, "expected the type and the number of a device, found [1]"),
        ({"op": "alloc", "bytes": 8, "device": [77, 0]}, "device77:0 cannot be used"),
        ({"op": "read", "number": 9, "offset": 0, "bytes": 8}, "there is no memory of the number 9"),
        ({"op": "call", "object": 9, "args": []}, "there is no object of the number 9"),
        ({"op": "call", "object": 1, "args": {}}, "expected arguments in a list"),
        ({"op": "call", "object": 1, "args": [{"pickle": "x"}]}, "expected a value, found 'pickle'"),
        ({"op": "call", "object": 1, "args": [{"bytes": "?"}]}, "expected bytes in base 64"),
        ({"op": "call", "object": 1, "args": [{"a": 1, "b": 2}]}, "expected a value, found {'a': 1, 'b': 2}"),
        ({"op": "call", "object": 1, "args": [{"object": 5}]}, "there is no object of the number 5"),
        ({"op": "load", "name": "../../etc/passwd"}, "files of a session lie in its own folder"),
        ({"op": "time", "object": 1, "args": [], "device": [1, 0], "options": {"x": []}}, "expected options of a time"),
        ({"op": "member", "object": 1, "name": "__class__"}, "a function has no function '__class__'"),
        ({"op": "machine", "object": 1, "devices": []}, "expected an executable"),
        ({"op": "sync", "device": [1, 0], "released": "x"}, "expected numbers from 0 on, found 'x'"),
    ],
)
def test_messages_that_are_refused(server: rpc.Server, message: dict, expected: str) -> None:
    with opened(server) as connection:
        wire.send(connection, {"op": "function", "name": "test.remote.add"})
        assert wire.receive(connection, 0)[0] == {"value": {"object": {"number": 1, "kind": "function"}}}
        wire.send(connection, message)
        answer, _ = wire.receive(connection, 0)
        assert expected in answer["error"]["message"]
        wire.send(connection, {"op": "call", "object": 1, "args": [1, 2]})
        assert wire.receive(connection, 0)[0] == {"value": 3}, "the session goes on"


def test_tensors_outside_of_their_memory(server: rpc.Server) -> None:
    with opened(server) as connection:
        for message in ({"op": "function", "name": "test.remote.sum"}, {"op": "alloc", "bytes": 16, "device": [1, 0]}):
            wire.send(connection, message)
            assert "value" in wire.receive(connection, 0)[0]
        good = {"number": 2, "offset": 0, "shape": [4], "dtype": "float32"}
        for changes in (
            {"shape": [5]},
            {"offset": 4},
            {"offset": 17, "shape": [0]},
            {"shape": [2], "strides": [4]},
            {"shape": [1 << 40, 1 << 40]},
            {"shape": [2, 2], "strides": [1]},
            {"dtype": "float99"},
        ):
            wire.send(connection, {"op": "call", "object": 1, "args": [{"tensor": good | changes}]})
            assert "error" in wire.receive(connection, 0)[0], changes
        for start, size in ((9, 8), (17, 0), (1 << 50, 1)):
            wire.send(connection, {"op": "write", "number": 2, "offset": start}, bytes(size))
            assert "error" in wire.receive(connection, 0)[0], (start, size)
        wire.send(connection, {"op": "write", "number": 2, "offset": 0}, np.ones(4, "float32").tobytes())
        assert wire.receive(connection, 0)[0] == {"value": None}
        wire.send(connection, {"op": "call", "object": 1, "args": [{"tensor": good}]})
        assert wire.receive(connection, 0)[0] == {"value": 4.0}


@pytest.mark.parametrize("greeted", [False, True])
def test_noise(server: rpc.Server, greeted: bool) -> None:
    rng = random.Random(4)
    messages = [rng.randbytes(rng.randrange(1, 200)) for _ in range(15)]
    messages += [
        struct.pack("<IQ", 1 << 31, 0),
        struct.pack("<IQ", 2, 1 << 60) + b"{}",
        struct.pack("<IQ", 5, 0) + b"[1,2]",
    ]
    messages += [struct.pack("<IQ", len(text), 0) + text for text in (b"{", b"\xff", b"[" * 100_000, b"{}")]
    for message in messages:
        connection = opened(server) if greeted else socket.create_connection(("127.0.0.1", server.port), 30)
        with connection, contextlib.suppress(ConnectionError):
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass  # until the other side has closed the connection
    with rpc.connect("127.0.0.1", server.port, secret=SECRET) as remote:
        assert remote.get_function("test.remote.add")(1, 2) == 3


def test_damaged_messages_end_their_session_only(server: rpc.Server, remote: rpc.RemoteSession) -> None:
    rng = random.Random(5)
    text = json.dumps({"op": "call", "object": 1, "args": [{"list": [1, {"bytes": "AAAA"}]}], "released": [1]}).encode()
    connection = opened(server)
    for _ in range(200):
        damaged = bytearray(text)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        connection.sendall(struct.pack("<IQ", len(damaged), 0) + damaged)
        answer, _ = wire.receive(connection, 0)
        if answer["error"]["message"].startswith("a message begins with"):
            connection.close()  # of such a one nobody knows where it ends
            connection = opened(server)
    connection.close()
    assert remote.get_function("test.remote.add")(1, 2) == 3


def test_too_many_sessions_are_told_so(server: rpc.Server) -> None:
    sessions = []
    with pytest.raises(DeviceError, match="the server has 16 sessions already; try again later"):
        for _ in range(20):
            sessions.append(rpc.connect("127.0.0.1", server.port, secret=SECRET))
    for session in sessions:
        session.close()
    for _ in range(100):
        try:
            rpc.connect("127.0.0.1", server.port, secret=SECRET).close()
            return
        except DeviceError:
            time.sleep(0.05)
    raise AssertionError("the sessions have not ended")


def test_a_session_goes_through_one_server_to_another(remote: rpc.RemoteSession, server: rpc.Server) -> None:
    with rpc.Server(port=0, key="near", secret=SECRET) as other:
        through = ["rpc.Connect", "127.0.0.1", server.port, "", False]
        with rpc.connect("127.0.0.1", other.port, "near", secret=SECRET, session_constructor_args=through) as far:
            values = np.arange(6, dtype="float32")
            x = oneir.runtime.tensor(values, far.cpu())
            np.testing.assert_array_equal(far.get_function("test.remote.twice")(x).numpy(), values * 2)
            pids = {session.get_function("test.remote.pid")() for session in (far, remote)}
            assert len(pids) == 2 and os.getpid() not in pids
        with pytest.raises(RPCError, match="'wrong' is not the key of this server"):
            wrong = ["rpc.Connect", "127.0.0.1", server.port, "wrong"]
            rpc.connect("127.0.0.1", other.port, "near", secret=SECRET, session_constructor_args=wrong)
        with pytest.raises(RPCError, match=r"nobody listens at 127.0.0.1:1 "):
            rpc.connect(
                "127.0.0.1", other.port, "near", secret=SECRET, session_constructor_args=["rpc.Connect", "127.0.0.1", 1]
            )
        with pytest.raises(
            RPCError, match=r'a session is made by \["rpc.Connect", url, port, key\], found \[.rpc.Popen'
        ):
            rpc.connect(
                "127.0.0.1", other.port, "near", secret=SECRET, session_constructor_args=["rpc.PopenSession", "x"]
            )


def test_functions_for_trying_out_are_everywhere(remote: rpc.RemoteSession) -> None:
    for session in (remote, rpc.LocalSession()):
        assert session.get_function("rpc.test.addone")(10) == 11
        assert session.get_function("rpc.test.strcat")("abc", 11) == "abc:11"
        assert session.get_function("rpc.test.runtime_str_concat")("ab", "cd") == "abcd"
        assert session.get_function("rpc.test.add_to_lhs")(10)(12) == 22
        session.get_function("rpc.test.remote_tensor_func")(oneir.runtime.tensor(np.ones((3, 4)), session.cpu()))
        with pytest.raises(InvalidValue, match="no"):
            session.get_function("rpc.test.except")("no")
        member = session.get_function("rpc.test.remote_return_nd")
        assert member("get_elem")(0) == member("get_arr_elem")(member("get_arr")(), 0) == 0
        shape = session.get_function("ffi.Shape")(2, 3)
        assert session.get_function("testing.GetShapeSize")(shape) == 2
        assert session.get_function("testing.GetShapeElem")(shape, 1) == 3
        with pytest.raises(AttributeError, match="the module has no function 'notexist'; it has none"):
            session.system_lib()["notexist"]


def test_a_session_whose_time_is_over_says_so(server: rpc.Server) -> None:
    session = rpc.connect("127.0.0.1", server.port, session_timeout=0.5, secret=SECRET)
    with session, pytest.raises(RPCSessionTimeoutError, match="the session's time was over while it was asked to call"):
        session.get_function("test.remote.sleep")(30)


def test_an_archive_comes_back_as_a_shared_library(remote: rpc.RemoteSession, tmp_path: Path) -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] * 3, name="y")
    oneir.compile(te.create_prim_func([x, y]), "llvm").export_library(tmp_path / "lib.tar")
    remote.upload(str(tmp_path / "lib.tar"))
    (tmp_path / "lib.so").write_bytes(remote.download_linked_module("lib.tar"))
    a, b = (tensor(np.full(4, k, "float32")) for k in (2, 0))
    oneir.runtime.load_module(tmp_path / "lib.so")["main"](a, b)
    np.testing.assert_array_equal(b.numpy(), np.full(4, 6, "float32"))
