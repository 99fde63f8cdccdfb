"""A tracker: knows which servers are free, and gives each to one client at a time.

with oneir.rpc.tracker.Tracker(port=9190) as tracker:
    server = oneir.rpc.Server(key="board", tracker_addr=(tracker.host, tracker.port))
    remote = oneir.rpc.connect_tracker(tracker.host, tracker.port).request("board")
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

from ..runtime.error import InvalidValue
from .service import Peer, Service, number, text


@dataclass
class _Offer:
    """A server, which is free as long as it has a match key."""

    peer: Peer
    id: int
    key: str
    addr: tuple[str, int]
    match: str


@dataclass(frozen=True)
class _Request:
    """A client that waits for a server with a key."""

    peer: Peer
    key: str
    priority: int
    place: int

    def order(self) -> tuple[int, int]:
        """High priorities come first, then those who came first."""
        return -self.priority, self.place


class Tracker(Service):
    """Keeps a queue of servers, and one of clients, for each key (`Service` has the arguments).

    Clients and servers speak to it over connections of theirs; what has closed its connection is in no queue any more.
    silent has no effect.
    """

    name: ClassVar[str] = "tracker"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9190,
        port_end: int = 9199,
        silent: bool = False,
        *,
        secret: str | None = None,
    ):
        self._offers: dict[tuple[Peer, int], _Offer] = {}
        self._requests: list[_Request] = []
        self._keys: dict[str, None] = {}  # of all servers that there were, in their order
        self._places = itertools.count()
        super().__init__(host, port, port_end, secret)

    async def _talk(self, peer: Peer, introduction: dict[str, Any]) -> None:
        peer.send(ok=True)
        try:
            while True:
                self._answer(peer, await peer.receive())
                await peer.writer.drain()
        finally:
            self._offers = {place: offer for place, offer in self._offers.items() if offer.peer is not peer}
            self._requests = [request for request in self._requests if request.peer is not peer]

    def _answer(self, peer: Peer, message: dict[str, Any]) -> None:
        match text(message, "op"):
            case "offer":  # is answered when it is taken
                key, place = text(message, "key"), (peer, number(message, "id"))
                self._offers.pop(place, None)  # to the end of the queue
                self._offers[place] = _Offer(peer, place[1], key, _address(message, peer), text(message, "match"))
                self._keys[key] = None
                self._match(key)
            case "withdraw":
                self._offers.pop((peer, number(message, "id")), None)
            case "request":  # is answered when a server is free
                request = _Request(peer, text(message, "key"), number(message, "priority"), next(self._places))
                self._requests.append(request)
                self._requests.sort(key=_Request.order)
                self._match(request.key)
            case "summary":
                peer.send(value=self._summary())
            case name:
                raise InvalidValue(f"there is no operation {name!r:.40}; there are offer, withdraw, request, summary")

    def _match(self, key: str) -> None:
        """Gives free servers to those who wait for them."""
        free = [offer for offer in self._offers.values() if offer.key == key and offer.match]
        waiting = [request for request in self._requests if request.key == key]
        for offer, request in zip(free, waiting, strict=False):
            self._requests.remove(request)
            request.peer.send(value=[*offer.addr, offer.match])
            offer.match = ""
            offer.peer.send(taken=offer.id)

    def _summary(self) -> dict[str, Any]:
        offers, requests = self._offers.values(), self._requests
        keys = self._keys | dict.fromkeys(request.key for request in requests)
        return {
            "queue_info": {
                key: {
                    "free": sum(offer.key == key and bool(offer.match) for offer in offers),
                    "pending": sum(request.key == key for request in requests),
                }
                for key in keys
            },
            "server_info": [{"key": f"server:{offer.key}", "addr": list(offer.addr)} for offer in offers],
        }


def _address(message: dict[str, Any], peer: Peer) -> tuple[str, int]:
    """Where clients find the server of an offer; without a host, it is where the offer comes from."""
    match message.get("addr"):
        case [None, int(port)]:
            return peer.host, port
        case [str(host), int(port)] if len(host) <= 1000:
            return host, port
    raise InvalidValue(f"expected a host and a port as addr, found {message.get('addr')!r:.40}")
