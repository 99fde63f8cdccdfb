"""Memory of a Vulkan device: large pieces that the driver is asked for, of which tensors get parts.

A driver gives a few thousand pieces at most, and takes long for each. What is given back is used again by what the
device is given next, without waiting, since its queue works in order; whole pieces go back when its work is done.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field

_PIECE_BYTES = 16 << 20
_GRAIN = 256
"""What addresses of tensors are multiples of."""


@dataclass
class Piece:
    """A buffer with its memory, and which parts of it are free, in order: beginnings and ends."""

    buffer: int
    memory: int
    address: int
    nbytes: int
    free: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a part."""
        return self.free == [(0, self.nbytes)]

    def take(self, nbytes: int) -> int | None:
        """Where the first free part of a size begins; None if there is none."""
        for place, (begin, end) in enumerate(self.free):
            if end - begin >= nbytes:
                self.free[place : place + 1] = [(begin + nbytes, end)] if end - begin > nbytes else []
                return begin
        return None

    def give(self, begin: int, nbytes: int) -> None:
        """Makes a part free, and joins it with its neighbours."""
        end, place = begin + nbytes, bisect.bisect(self.free, (begin, 0))
        first, last = place, place
        if place and self.free[place - 1][1] == begin:
            first, begin = place - 1, self.free[place - 1][0]
        if place < len(self.free) and self.free[place][0] == end:
            last, end = place + 1, self.free[place][1]
        self.free[first:last] = [(begin, end)]


class Heap:
    """The memory of one device. One thread at a time uses it."""

    def __init__(
        self, make: Callable[[int], Piece | None], drop: Callable[[Piece], None], submitted: Callable[[], int]
    ) -> None:
        self._make, self._drop, self._submitted = make, drop, submitted
        self._pieces: list[Piece] = []
        """In the order of their addresses."""
        self._parts: dict[int, int] = {}
        """The bytes of what is in use, by address."""
        self._retired: list[tuple[int, Piece]] = []
        """What goes back once so much of the submitted work is done."""

    def alloc(self, nbytes: int, done: Callable[[], int], wait: Callable[[], None]) -> int | None:
        """An address of the device, or None.

        `done` tells how much of the submitted work is done; `wait` waits for all of it, when memory is short.
        """
        nbytes = -(-max(nbytes, 1) // _GRAIN) * _GRAIN
        address = self._part(nbytes)
        if address is None:
            self.reap(done())
            address = self._grow(nbytes)
        if address is None and self._retired:
            wait()
            self.reap(done())
            address = self._grow(nbytes)
        return address

    def _part(self, nbytes: int) -> int | None:
        for piece in self._pieces:
            begin = piece.take(nbytes)
            if begin is not None:
                self._parts[piece.address + begin] = nbytes
                return piece.address + begin
        return None

    def _grow(self, nbytes: int) -> int | None:
        """A part of a new piece."""
        piece = self._make(_PIECE_BYTES) if nbytes <= _PIECE_BYTES // 4 else None
        piece = piece or self._make(nbytes)
        if piece is None:
            return None
        piece.free = [(0, piece.nbytes)]
        bisect.insort(self._pieces, piece, key=lambda known: known.address)
        return self._part(nbytes)

    def free(self, address: int) -> None:
        """Makes a part free. A piece without any goes back, but for one small one."""
        piece, begin = self.find(address)
        piece.give(begin, self._parts.pop(address))
        idle = [known for known in self._pieces if known.is_idle]
        if piece.is_idle and (piece.nbytes > _PIECE_BYTES or len(idle) > 1):
            self._pieces.remove(piece)
            self._retired.append((self._submitted(), piece))

    def reap(self, done: int) -> None:
        """Gives back pieces whose last work is done."""
        for value, piece in self._retired:
            if value <= done:
                self._drop(piece)
        self._retired = [(value, piece) for value, piece in self._retired if value > done]

    def find(self, address: int) -> tuple[Piece, int]:
        """The piece that an address is in, and the place there. Raises `KeyError` for an address that is in none."""
        place = bisect.bisect(self._pieces, address, key=lambda piece: piece.address) - 1
        piece = self._pieces[place] if place >= 0 else None
        if piece is None or address > piece.address + piece.nbytes:
            raise KeyError(address)
        return piece, address - piece.address
