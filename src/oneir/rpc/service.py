"""What trackers and proxies have in common: a thread in which all connections are answered, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ..runtime.error import DeviceError, InvalidValue, OneIRError
from . import wire
from .session_process import HANDSHAKE_SECONDS
from .wire import Disconnected

MAX_PEERS = 1000
"""How many clients and servers may be connected at once; others are told so."""


class Peer:
    """A connection with a client or a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    @property
    def host(self) -> str:
        """The address that the other side has."""
        return self.writer.get_extra_info("peername")[0]

    async def receive(self) -> dict[str, Any]:
        """A message without data. Raises `Disconnected` at the end of the connection, `InvalidValue` for others."""
        try:
            size, _ = wire.sizes(await self.reader.readexactly(wire.HEAD.size), 0)
            return wire.parse(await self.reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise Disconnected("the other side has closed the connection") from None

    def send(self, **message: Any) -> None:
        """Sends a message, as soon as the other side takes it."""
        self.writer.write(wire.pack(message))


class Service(ABC):
    """Answers at an address until it is told to end.

    host, port: the first free port from `port` up to `port_end` is taken, and 0 is any free one. secret: what clients
    and servers must know; without it, what ONEIR_RPC_SECRET says. Raises `InvalidValue` for an address that others can
    reach without a secret, `DeviceError` if no port is free.
    """

    name: ClassVar[str]

    def __init__(self, host: str, port: int, port_end: int, secret: str | None):
        self._secret = wire.known_secret(secret)
        wire.check_reach(self.name, host, self._secret)
        listener = wire.listen(host, port, port_end)
        self.host = host
        self.port: int = listener.getsockname()[1]
        self._tasks: dict[Peer, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(listener,), name=f"oneir-{self.name}", daemon=True)
        self._thread.start()

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._arrive, sock=listener)
        try:
            await self._work()
        finally:
            server.close()
            for peer in self._tasks:
                peer.writer.close()

    async def _work(self) -> None:
        """What the service does besides answering, until it is told to end."""
        await self._stopped.wait()

    def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self._tasks[peer] = asyncio.ensure_future(self._meet(peer))

    async def _meet(self, peer: Peer) -> None:
        """Answers one client or server, until it is gone."""
        try:
            if len(self._tasks) > MAX_PEERS:
                raise DeviceError(f"the {self.name} has {MAX_PEERS} connections already; try again later")
            wire.at_once(peer.writer.get_extra_info("socket"))
            greeting = wire.greeting(self.name)
            peer.send(**greeting)
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                introduction = await peer.receive()
            wire.check_introduction(introduction, greeting, self._secret)
            await self._talk(peer, introduction)
        except (Disconnected, OSError):
            pass  # TimeoutError among them
        except OneIRError as error:
            peer.send(error=wire.encode_error(error))
        finally:
            del self._tasks[peer]
            peer.writer.close()

    @abstractmethod
    async def _talk(self, peer: Peer, introduction: dict[str, Any]) -> None:
        """Answers one that knows the secret, until it is gone (`Disconnected`) or nothing is left to say."""

    def wait(self) -> None:
        """Returns when the service has ended."""
        while self._thread.is_alive():
            self._thread.join(1)  # so that a signal is handled meanwhile

    def terminate(self) -> None:
        """Ends the service and its connections."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *error: object) -> None:
        self.terminate()


def text(message: dict[str, Any], name: str) -> str:
    """A field of a message that is a text of moderate length. Raises `InvalidValue` for another one."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > 1000:
        raise InvalidValue(f"expected a text as {name}, found {value!r:.40}")
    return value


def number(message: dict[str, Any], name: str) -> int:
    """A field of a message that is a number. Raises `InvalidValue` for another one."""
    value = message.get(name)
    if type(value) is not int or abs(value) >= 1 << 31:
        raise InvalidValue(f"expected a number as {name}, found {value!r:.40}")
    return value
