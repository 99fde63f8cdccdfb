"""A proxy: servers that no client reaches connect to it, and clients reach them through it.

with oneir.rpc.proxy.Proxy(port=9091) as proxy:
    server = oneir.rpc.Server(proxy.host, proxy.port, is_proxy=True, key="board")
    remote = oneir.rpc.connect(proxy.host, proxy.port, key="board")
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..runtime.error import OneIRError, RPCError
from .arrivals import Address, join, match_key
from .service import Peer, Service, text

_WAIT_SECONDS = 20.0
"""How long a client waits for a server; less than it waits for the answer."""

_RETRY_SECONDS = 2.0
"""How long the proxy waits before it connects again with a tracker that is gone."""


@dataclass(eq=False)
class _Client:
    """A client that waits for a server with a key."""

    peer: Peer
    key: str
    is_taken: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _Idle:
    """A server that waits for a client, which asks for it by its key, or by the match key that a tracker gave it."""

    peer: Peer
    id: int
    key: str
    match: str
    client: asyncio.Future[_Client]


class Proxy(Service):
    """Hands over what clients and servers send one another (`Service` has the arguments).

    A client asks for a server by its key. With `tracker_addr`, all servers are announced to that tracker.
    """

    name: ClassVar[str] = "proxy"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9091,
        port_end: int = 9199,
        tracker_addr: Address | None = None,
        *,
        secret: str | None = None,
    ):
        self._ids = itertools.count()
        self._idle: dict[int, _Idle] = {}
        self._waiting: list[_Client] = []
        self._tracker_addr = tracker_addr
        self._tracker: Peer | None = None
        super().__init__(host, port, port_end, secret)

    # -- the tracker --

    async def _work(self) -> None:
        if self._tracker_addr is None:
            await self._stopped.wait()
            return
        stopped = asyncio.ensure_future(self._stopped.wait())
        while not stopped.done():
            announcing = asyncio.ensure_future(self._announce(self._tracker_addr))
            await asyncio.wait([stopped, announcing], return_when=asyncio.FIRST_COMPLETED)
            announcing.cancel()
            with contextlib.suppress(OneIRError, OSError, asyncio.CancelledError):
                await announcing
            await asyncio.wait([stopped], timeout=_RETRY_SECONDS)

    async def _announce(self, address: Address) -> None:
        """Tells the tracker of the servers, until it is gone."""
        connection = await asyncio.to_thread(join, address, self._secret)
        connection.settimeout(None)
        self._tracker = Peer(*await asyncio.open_connection(sock=connection))
        try:
            for idle in self._idle.values():
                self._offer(idle)
            while True:
                await self._tracker.receive()  # says that an offer is taken: its client comes with the match key
        finally:
            self._tracker.writer.close()
            self._tracker = None

    def _offer(self, idle: _Idle) -> None:
        if self._tracker is not None:
            addr = [None, self.port]
            self._tracker.send(op="offer", id=idle.id, key=idle.key, match=idle.match, addr=addr)

    # -- servers and clients --

    async def _talk(self, peer: Peer, introduction: dict[str, Any]) -> None:
        if "serve" in introduction:
            await self._keep(peer, text(introduction, "serve"))
        else:
            await self._connect(peer, text(introduction, "key"))

    async def _keep(self, peer: Peer, key: str) -> None:
        """Keeps a server until a client comes, and hands over what they send."""
        idle = _Idle(peer, next(self._ids), key, match_key(key), asyncio.get_running_loop().create_future())
        peer.send(ok=True)
        gone = asyncio.ensure_future(peer.reader.read(1))  # a server has nothing to say until then
        self._idle[idle.id] = idle
        try:
            self._offer(idle)
            self._pair()
            await asyncio.wait([gone, idle.client], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._idle.pop(idle.id, None)
            if self._tracker is not None:
                self._tracker.send(op="withdraw", id=idle.id)
            gone.cancel()
            await asyncio.wait([gone])
        if not idle.client.done():
            return
        client = idle.client.result()
        try:
            if gone.cancelled():
                client.peer.send(ok=True)
                peer.send(client=client.key)
                await _relay(peer, client.peer)
        finally:
            client.is_over.set()

    async def _connect(self, peer: Peer, key: str) -> None:
        """Finds a server for a client, and waits until they are done."""
        client = _Client(peer, key)
        self._waiting.append(client)
        self._pair()
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await client.is_taken.wait()
        except TimeoutError:
            raise RPCError(f"no server with the key {key!r} waits at this proxy") from None
        finally:
            if client in self._waiting:
                self._waiting.remove(client)
        await client.is_over.wait()

    def _pair(self) -> None:
        """Gives servers to the clients that wait for them."""
        for client in list(self._waiting):
            found = next((idle for idle in self._idle.values() if client.key in (idle.key, idle.match)), None)
            if found is not None:
                del self._idle[found.id]
                self._waiting.remove(client)
                client.is_taken.set()
                found.client.set_result(client)


async def _relay(one: Peer, other: Peer) -> None:
    """Hands over what each side sends, until one of them is gone."""
    ways = [asyncio.ensure_future(_pump(source, drain)) for source, drain in ((one, other), (other, one))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)


async def _pump(source: Peer, drain: Peer) -> None:
    with contextlib.suppress(OSError):
        while data := await source.reader.read(1 << 16):
            drain.writer.write(data)
            await drain.writer.drain()
