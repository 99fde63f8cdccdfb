"""The client's side of a tracker: a free server of many, by the name of its kind.

tracker = connect_tracker("127.0.0.1", 9190)
print(tracker.text_summary())
remote = tracker.request("board", session_timeout=60)
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..runtime.error import DeviceError, InvalidValue, RPCError
from . import wire
from .arrivals import join
from .remote import RemoteSession, connect
from .wire import Disconnected

T = TypeVar("T")


class TrackerSession:
    """A connection with a tracker; made by `connect_tracker`. Several threads wait for one another."""

    def __init__(self, addr: tuple[str, int], secret: str):
        self._addr, self._secret = addr, secret
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._connection = join(addr, secret)

    def __del__(self) -> None:
        self._drop()

    def close(self) -> None:
        """Ends the connection; sessions go on. A later call connects anew."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, op: str, **fields: Any) -> Any:
        """What the tracker answers. Raises `RPCError` if it is gone."""
        with self._lock:
            if self._connection is None:
                self._connection = join(self._addr, self._secret)
            try:
                self._connection.settimeout(None)
                wire.send(self._connection, {"op": op, **fields})
                answer, _ = wire.receive(self._connection, 0)
            except Disconnected as error:
                self._drop()
                raise RPCError(f"the tracker at {self._addr[0]}:{self._addr[1]} is gone: {error}") from None
            except BaseException:  # an answer that was not waited for would be taken for the next one
                self._drop()
                raise
        if "error" in answer:
            raise wire.decode_error(answer["error"])
        return answer.get("value")

    def summary(self) -> dict[str, Any]:
        """What the tracker knows: "queue_info" has, by key, how many servers are "free", and how many clients
        "pending", also where servers are no more; "server_info" is a list of all servers, each with its "key"
        (`server:KEY`) and "addr" (host and port).
        """
        return self._ask("summary")

    def text_summary(self) -> str:
        """The same as two tables."""
        found = self.summary()
        servers = [(":".join(map(str, server["addr"])), server["key"]) for server in found["server_info"]]
        queues = [
            (key, str(sum(server == f"server:{key}" for _, server in servers)), str(row["free"]), str(row["pending"]))
            for key, row in found["queue_info"].items()
        ]
        return (
            f"Server List\n{_table([('server-address', 'key'), *sorted(servers)])}\n"
            f"Queue Status\n{_table([('key', 'total', 'free', 'pending'), *sorted(queues)])}"
        )

    def request(
        self,
        key: str,
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 5,
        session_constructor_args: Sequence[Any] | None = None,
    ) -> RemoteSession:
        """A session with a server of that key, which no other client has; waits until one is free.

        Of those who wait, the ones with a higher `priority` come first. `max_retry`: how many servers are tried, if one
        is not reached. The other arguments are those of `connect`.

        Raises `RPCError` if no server is reached, or the tracker is gone.
        """
        last: DeviceError | None = None
        for _ in range(max_retry):
            match self._ask("request", key=key, priority=priority):
                case [str(host), int(port), str(match_key)]:
                    pass
                case found:
                    raise InvalidValue(f"expected the address of a server, found {found!r:.60}")
            try:
                return connect(host, port, match_key, session_timeout, session_constructor_args, secret=self._secret)
            except DeviceError as error:
                last = error
        raise RPCError(f"of {max_retry} servers with the key {key!r} none was reached; the last one: {last}")

    def request_and_run(
        self,
        key: str,
        func: Callable[[RemoteSession], T],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> T:
        """What a function of a session returns. It is called with another one if a session ends meanwhile.

        Raises `RPCError` if that happened `max_retry` times.
        """
        last: DeviceError | None = None
        for _ in range(max_retry):
            try:
                with self.request(key, priority, session_timeout) as session:
                    return func(session)
            except RPCError as error:
                last = error
        raise RPCError(f"{max_retry} sessions with the key {key!r} have ended; the last one: {last}")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows in columns, the first one underlined."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], ""])


def connect_tracker(url: str, port: int, *, secret: str | None = None) -> TrackerSession:
    """A connection with the tracker at an address. `secret` is that of the tracker and its servers; without it, what
    ONEIR_RPC_SECRET says.

    Raises `RPCError` if nobody listens there, `InvalidValue` if it has another secret.
    """
    return TrackerSession((url, port), wire.known_secret(secret))
