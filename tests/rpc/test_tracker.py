"""Trackers and proxies: clients get servers that nobody else has, and what is no client of ours gets nothing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import oneir
from oneir import rpc
from oneir.rpc import wire
from oneir.rpc.proxy import Proxy
from oneir.rpc.tracker import Tracker
from oneir.runtime.error import InvalidValue, RPCError, RPCSessionTimeoutError

HERE = "127.0.0.1"
SECRET = "a secret of trackers"


@pytest.fixture(autouse=True, scope="module")
def functions() -> Iterator[None]:
    added = {"test.tracker.pid": os.getpid, "test.tracker.crash": lambda: os.kill(os.getpid(), signal.SIGKILL)}
    for name, function in added.items():
        oneir.register_global_func(name, function)
    yield
    for name in added:
        oneir.runtime.remove_global_func(name)


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    with Tracker(port=0, secret=SECRET) as tracker:
        yield tracker


@pytest.fixture
def client(tracker: Tracker) -> Iterator[rpc.TrackerSession]:
    session = rpc.connect_tracker(HERE, tracker.port, secret=SECRET)
    yield session
    session.close()


def board(tracker: Tracker, key: str = "board", custom_addr: str | None = None) -> rpc.Server:
    address = (HERE, tracker.port)
    return rpc.Server(port=0, key=key, tracker_addr=address, custom_addr=custom_addr, secret=SECRET)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def queue(client: rpc.TrackerSession, key: str = "board") -> tuple[int, int]:
    found = client.summary()["queue_info"].get(key, {"free": 0, "pending": 0})
    return found["free"], found["pending"]


@pytest.mark.parametrize("key", ["board", "127.0.0.1:5555"])
def test_a_server_is_one_clients_at_a_time(tracker: Tracker, client: rpc.TrackerSession, key: str) -> None:
    with board(tracker, key) as one, board(tracker, key, custom_addr="localhost") as two:
        addresses = [(HERE, one.port), ("localhost", two.port)]
        assert [tuple(row["addr"]) for row in client.summary()["server_info"]] == addresses
        assert {row["key"] for row in client.summary()["server_info"]} == {f"server:{key}"}
        assert queue(client, key) == (2, 0)
        sessions = [client.request(key), client.request(key)]
        assert len({s.get_function("test.tracker.pid")() for s in sessions} - {os.getpid()}) == 2
        assert queue(client, key) == (0, 0)
        with pytest.raises(
            RPCError, match=f"'{key}' is not the key of this server; one with a tracker is found by asking"
        ):
            rpc.connect(HERE, one.port, key, secret=SECRET)
        sessions.pop().close()
        wait_for(lambda: queue(client, key) == (1, 0))
        with client.request(key, session_timeout=60) as again:
            assert again.get_function("rpc.test.addone")(1) == 2
    nothing = {"queue_info": {key: {"free": 0, "pending": 0}}, "server_info": []}
    wait_for(lambda: client.summary() == nothing)


def test_clients_wait_in_the_order_of_their_priorities(tracker: Tracker, client: rpc.TrackerSession) -> None:
    served: list[str] = []

    def ask(name: str, priority: int) -> None:
        own = rpc.connect_tracker(HERE, tracker.port, secret=SECRET)
        with own.request("board", priority):
            served.append(name)
        own.close()

    threads = []
    for name, priority in (("a", 1), ("b", 3), ("c", 2), ("d", 3)):
        threads.append(threading.Thread(target=ask, args=(name, priority)))
        threads[-1].start()
        wait_for(lambda: queue(client) == (0, len(threads)))
    with board(tracker):
        for thread in threads:
            thread.join()
    assert served == ["b", "d", "c", "a"]


def test_who_is_gone_waits_no_more(tracker: Tracker, client: rpc.TrackerSession) -> None:
    with wire.opened(HERE, tracker.port, "tracker") as connection:
        wire.introduce(connection, "tracker", ("tracker",), SECRET)
        wire.send(connection, {"op": "request", "key": "board", "priority": 1})
        wait_for(lambda: queue(client) == (0, 1))
        connection.close()
    wait_for(lambda: queue(client) == (0, 0))


def test_a_server_without_its_client_is_free_again(
    tracker: Tracker, client: rpc.TrackerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oneir.rpc.arrivals._UNMATCHED_SECONDS", 0.0)
    with board(tracker), wire.opened(HERE, tracker.port, "tracker") as connection:
        wire.introduce(connection, "tracker", ("tracker",), SECRET)
        wire.send(connection, {"op": "request", "key": "board", "priority": 1})
        host, port, match = wire.receive(connection, 0)[0]["value"]
        assert host == HERE
        wait_for(lambda: queue(client) == (1, 0))
        with pytest.raises(RPCError, match="is not the key of this server"):
            rpc.connect(host, port, match, secret=SECRET)
        connection.close()


def test_a_server_finds_a_tracker_that_begins_again() -> None:
    first = Tracker(port=0, secret=SECRET)
    with board(first):
        client = rpc.connect_tracker(HERE, first.port, secret=SECRET)
        first.terminate()
        with pytest.raises(RPCError, match="is gone"):
            client.summary()
        with Tracker(port=first.port, port_end=first.port, secret=SECRET):
            wait_for(lambda: queue(client) == (1, 0))
            client.close()


def test_sessions_that_end_are_begun_again(tracker: Tracker, client: rpc.TrackerSession) -> None:
    tried: list[int] = []

    def run(session: rpc.RemoteSession) -> int:
        tried.append(session.get_function("test.tracker.pid")())
        if len(tried) == 1:
            session.get_function("test.tracker.crash")()
        return session.get_function("rpc.test.addone")(len(tried))

    with board(tracker):
        assert client.request_and_run("board", run) == 3
        assert len(set(tried)) == 2
        with pytest.raises(RPCError, match="2 sessions with the key 'board' have ended; the last one: the session has"):
            client.request_and_run("board", lambda session: session.get_function("test.tracker.crash")())


def test_what_a_tracker_knows_as_text(tracker: Tracker, client: rpc.TrackerSession) -> None:
    with board(tracker) as server:
        address = f"{HERE}:{server.port}"
        assert client.text_summary().splitlines() == [
            "Server List",
            f"{'server-address':{len(address)}}  key",
            "-" * (len(address) + 5),
            f"{address}  server:board",
            "",
            "Queue Status",
            "key    total  free  pending",
            "-" * 27,
            "board  1      1     0",
        ]


@pytest.mark.parametrize("tracked", [False, True])
def test_a_server_is_reached_through_a_proxy(tracker: Tracker, client: rpc.TrackerSession, tracked: bool) -> None:
    address = (HERE, tracker.port) if tracked else None
    with (
        Proxy(port=0, tracker_addr=address, secret=SECRET) as proxy,
        rpc.Server(HERE, proxy.port, is_proxy=True, key="board", secret=SECRET),
    ):
        for _ in range(2):
            if tracked:
                session = client.request("board", session_timeout=60)
            else:
                session = rpc.connect(HERE, proxy.port, "board", secret=SECRET)
            with session:
                assert session.get_function("test.tracker.pid")() not in (0, os.getpid())
                session.upload(bytes(range(256)) * 4096, "large")
                assert session.download("large") == bytes(range(256)) * 4096
        if tracked:
            with pytest.raises(RPCSessionTimeoutError, match="the session's time was over"):
                session = client.request("board", session_timeout=0.3)
                session.get_function("test.tracker.pid")
                wait_for(lambda: queue(client) == (1, 0))
                session.get_function("test.tracker.pid")


def test_a_client_waits_for_a_server_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(port=0) as proxy:
        with rpc.Server(HERE, proxy.port, is_proxy=True, key="board"):
            first = rpc.connect(HERE, proxy.port, "board", secret="")
            later: list[object] = []
            thread = threading.Thread(
                target=lambda: later.append(rpc.connect(HERE, proxy.port, "board").get_function("rpc.test.addone")(1))
            )
            thread.start()
            first.close()
            thread.join()
            assert later == [2]
        monkeypatch.setattr("oneir.rpc.proxy._WAIT_SECONDS", 0.1)
        with pytest.raises(RPCError, match=f"{HERE}:{proxy.port} refused: no server with the key 'none' waits at this"):
            rpc.connect(HERE, proxy.port, "none")


def test_who_may_ask(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEIR_RPC_SECRET", raising=False)
    with pytest.raises(InvalidValue, match="refused: the client's secret is not that of this tracker"):
        rpc.connect_tracker(HERE, tracker.port)
    with pytest.raises(InvalidValue, match="refused: the client's secret is not that of this tracker"):
        rpc.Server(port=0, key="board", tracker_addr=(HERE, tracker.port))
    with pytest.raises(InvalidValue, match=f"expected a server or proxy at {HERE}:{tracker.port}, found a tracker"):
        rpc.connect(HERE, tracker.port, secret=SECRET)
    for kind in (Tracker, Proxy):
        with pytest.raises(InvalidValue, match=r"whoever reaches 0\.0\.0\.0 could run code by this (tracker|proxy)"):
            kind("0.0.0.0", 0)
    monkeypatch.setenv("ONEIR_RPC_SECRET", SECRET)
    rpc.connect_tracker(HERE, tracker.port).close()
    port = tracker.port
    tracker.terminate()
    with pytest.raises(
        RPCError, match=rf"nobody listens at {HERE}:{port} .*; start a tracker there: oneir rpc-tracker"
    ):
        rpc.connect_tracker(HERE, port)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({}, "expected a text as op, found None"),
        ({"op": "eval"}, "there is no operation 'eval'; there are offer, withdraw, request, summary"),
        ({"op": "request", "key": 1, "priority": 1}, "expected a text as key, found 1"),
        ({"op": "request", "key": "x" * 2000, "priority": 1}, "expected a text as key"),
        ({"op": "request", "key": "x", "priority": 1.5}, "expected a number as priority, found 1.5"),
        ({"op": "offer", "key": "x", "id": 0, "match": "m", "addr": ["h"]}, "expected a host and a port as addr"),
    ],
)
def test_messages_that_a_tracker_refuses(
    tracker: Tracker, client: rpc.TrackerSession, message: dict, expected: str
) -> None:
    with wire.opened(HERE, tracker.port, "tracker") as connection:
        wire.introduce(connection, "tracker", ("tracker",), SECRET)
        wire.send(connection, message)
        assert expected in wire.receive(connection, 0)[0]["error"]["message"]
        connection.close()
    assert client.summary() == {"queue_info": {}, "server_info": []}


@pytest.mark.parametrize("kind", [Tracker, Proxy])
def test_noise(kind: type[Tracker | Proxy]) -> None:
    rng = random.Random(6)
    messages = [rng.randbytes(rng.randrange(1, 200)) for _ in range(10)]
    messages += [struct.pack("<IQ", 1 << 31, 0), struct.pack("<IQ", 2, 1) + b"{}x", struct.pack("<IQ", 5, 0) + b"[1,2]"]
    with kind(port=0) as service:
        for message in messages:
            with socket.create_connection((HERE, service.port), 30) as connection, contextlib.suppress(ConnectionError):
                connection.sendall(message)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass  # until the other side has closed the connection
        with wire.opened(HERE, service.port, kind.name) as connection:
            assert wire.introduce(connection, "here", (kind.name,), "", serve="x")["is"] == kind.name
            connection.close()
