"""How clients arrive at a server: at a port of its own, sent by a tracker, or through a proxy."""

from __future__ import annotations

import secrets
import select
import socket
import time
from abc import ABC, abstractmethod

from ..runtime.error import OneIRError
from . import wire

_LOOK_SECONDS = 0.2
"""How often a server looks whether sessions have ended, and whether it is to end."""

_RETRY_SECONDS = 2.0
"""How long a server waits before it connects again with a tracker or a proxy that is gone."""

_UNMATCHED_SECONDS = 10.0
"""How long a server waits for the client that the tracker has given it to; then it is free for another one."""

Address = tuple[str, int]
"""A host and a port."""


class Arrivals(ABC):
    """Where a server finds its clients."""

    port: int

    @abstractmethod
    def next(self, busy: bool) -> tuple[socket.socket, str] | None:
        """A client's connection, and the key that it must ask for; None if none arrives within a moment.

        `busy`: whether there are sessions.
        """

    @abstractmethod
    def ended(self, served: bool) -> None:
        """Says that a client is gone, and whether it had a session."""

    @abstractmethod
    def close(self) -> None:
        """Lets no more clients arrive."""


class Listener(Arrivals):
    """A port at which any number of clients arrive."""

    def __init__(self, listener: socket.socket, key: str):
        self.port = listener.getsockname()[1]
        self._listener, self._key = listener, key
        listener.settimeout(_LOOK_SECONDS)

    def next(self, busy: bool) -> tuple[socket.socket, str] | None:
        try:
            return self._listener.accept()[0], self._key
        except TimeoutError:
            return None

    def ended(self, served: bool) -> None:
        """Changes nothing: there may be other sessions."""

    def close(self) -> None:
        self._listener.close()


class Tracked(Listener):
    """A port at which the clients of a tracker arrive, one at a time.

    The server offers itself by a match key that is good for one session: who says it was sent by the tracker.
    """

    def __init__(self, listener: socket.socket, key: str, tracker_addr: Address, custom_addr: str | None, secret: str):
        super().__init__(listener, key)
        self._name, self._tracker_addr, self._secret = key, tracker_addr, secret
        self._announced = [custom_addr, self.port]
        self._tracker: socket.socket | None = None
        self._is_offered, self._end = False, float("inf")
        self._retry = 0.0
        try:
            self._offer()
        except OneIRError:
            listener.close()
            raise

    def _offer(self) -> None:
        """Offers the server to the tracker, under a new match key."""
        if self._tracker is None:
            self._tracker = join(self._tracker_addr, self._secret)
        self._key = match_key(self._name)
        offer = {"op": "offer", "id": 0, "key": self._name, "match": self._key, "addr": self._announced}
        wire.send(self._tracker, offer)
        self._is_offered, self._end = True, float("inf")

    def _leave(self) -> None:
        """Forgets a tracker that is gone."""
        if self._tracker is not None:
            self._tracker.close()
        self._tracker, self._is_offered = None, False
        self._retry = time.monotonic() + _RETRY_SECONDS

    def next(self, busy: bool) -> tuple[socket.socket, str] | None:
        if not busy and time.monotonic() > self._end:
            self._is_offered = False
        try:
            if not busy and not self._is_offered and time.monotonic() >= self._retry:
                self._offer()
            watched = [self._listener] if self._tracker is None else [self._listener, self._tracker]
            ready, _, _ = select.select(watched, [], [], _LOOK_SECONDS)
            if self._tracker in ready:
                wire.receive(self._tracker, 0)  # says that the offer is taken
                self._end = time.monotonic() + _UNMATCHED_SECONDS
        except OneIRError:
            self._leave()
            return None
        return super().next(busy) if self._listener in ready else None

    def ended(self, served: bool) -> None:
        if served:
            self._is_offered = False

    def close(self) -> None:
        super().close()
        if self._tracker is not None:
            self._tracker.close()


class Behind(Arrivals):
    """A proxy, to which the server connects, and which makes the connection a client's, one at a time."""

    def __init__(self, proxy: Address, key: str, secret: str):
        self.port = proxy[1]
        self._proxy, self._name, self._secret = proxy, key, secret
        self._retry = 0.0
        self._connection: socket.socket | None = self._connected()

    def _connected(self) -> socket.socket:
        with wire.opened(*self._proxy, "proxy") as connection:
            place = f"{self._proxy[0]}:{self._proxy[1]}"
            wire.introduce(connection, place, ("proxy",), self._secret, serve=self._name)
            return connection

    def next(self, busy: bool) -> tuple[socket.socket, str] | None:
        if busy or (self._connection is None and time.monotonic() < self._retry):
            time.sleep(_LOOK_SECONDS)
            return None
        try:
            if self._connection is None:
                self._connection = self._connected()
            ready, _, _ = select.select([self._connection], [], [], _LOOK_SECONDS)
            if not ready:
                return None
            message, _ = wire.receive(self._connection, 0)
        except OneIRError:
            self.close()
            self._retry = time.monotonic() + _RETRY_SECONDS
            return None
        connection, self._connection = self._connection, None
        return connection, str(message.get("client"))

    def ended(self, served: bool) -> None:
        """Changes nothing: the connection is over, and the next one is made when no session is left."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def match_key(key: str) -> str:
    """A new key that stands for one offer of a server."""
    return f"{key}:{secrets.token_hex(8)}"


def join(tracker: Address, secret: str) -> socket.socket:
    """A connection with a tracker. Raises `RPCError` if nobody listens there, `InvalidValue` for another secret."""
    with wire.opened(*tracker, "tracker") as connection:
        wire.introduce(connection, f"{tracker[0]}:{tracker[1]}", ("tracker",), secret)
        return connection
