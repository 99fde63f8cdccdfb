"""Memory of the virtual machine: storages that hold tensors, and a pooled allocator of them.

    storage = Allocator(cpu(), pooled=True).alloc(1024)
    a, b = storage.alloc_tensor(0, (64,), "float32"), storage.alloc_tensor(256, (8, 8), "float32")

A tensor keeps its storage alive. When the last one dies, a pooled allocator keeps the block for the next storage of
that size; it never keeps more bytes than were in use at one time.
"""

from __future__ import annotations

import math

from ..device import Device
from ..device_memory import add_keeper
from ..dtype import numpy_dtype
from ..error import DeviceError, ShapeMismatch
from ..once import new_lock
from ..tensor import Tensor, empty

_PAGE = 4096


class Storage:
    """A range of bytes."""

    __slots__ = ("_allocator", "_block", "nbytes")

    ALIGNMENT = 64
    """Bytes to which storage is aligned."""

    def __init__(self, allocator: Allocator, block: Tensor, nbytes: int):
        self._allocator, self._block, self.nbytes = allocator, block, nbytes

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._block.device

    def alloc_tensor(self, offset: int, shape: tuple[int, ...], dtype: str) -> Tensor:
        """A tensor whose items begin at byte `offset`. Raises `ShapeMismatch` if it exceeds the storage."""
        itemsize = numpy_dtype(dtype).itemsize
        needed = math.prod(shape) * itemsize
        if offset < 0 or offset % itemsize or min(shape, default=0) < 0 or offset + needed > self.nbytes:
            raise ShapeMismatch(
                f"a tensor of shape {tuple(shape)} and dtype {dtype} at byte {offset} does not fit "
                f"in a storage of {self.nbytes} bytes"
            )
        return Tensor(self._block.address + offset, tuple(shape), dtype, owner=self, device=self._block.device)

    def __del__(self) -> None:
        self._allocator.give_back(self._block)


class Allocator:
    """Makes storage on one device."""

    def __init__(self, device: Device, *, pooled: bool):
        self.device, self.pooled = device, pooled
        self._free: dict[int, list[Tensor]] = {}
        self._used = self._most_used = self._kept = 0
        # Reentrant: storage may die, by garbage collection, while its own thread allocates.
        self._lock = new_lock()
        add_keeper(self)

    def drop_kept(self, device: Device) -> int:
        """Gives back the blocks that are free, if they are of that device; returns how many bytes."""
        if device != self.device:
            return 0
        with self._lock:
            dropped, self._kept = self._kept, 0
            self._free.clear()
        return dropped

    def alloc(self, nbytes: int, mem_scope: str = "global") -> Storage:
        """A storage of that many bytes, uninitialized."""
        if mem_scope != "global":
            raise DeviceError(f"{self.device} has no memory of the scope {mem_scope!r}; expected 'global'")
        if not self.pooled:
            return Storage(self, empty((nbytes,), "uint8", self.device), nbytes)
        size = -(-nbytes // _PAGE) * _PAGE
        block = self._take(size)
        if block is None:
            block = empty((size,), "uint8", self.device)
        with self._lock:
            self._used += size
            self._most_used = max(self._most_used, self._used)
        return Storage(self, block, nbytes)

    def _take(self, size: int) -> Tensor | None:
        """A block of that size that is free, if there is one."""
        with self._lock:
            free = self._free.get(size)
            if not free:
                return None
            self._kept -= size
            return free.pop()

    def give_back(self, block: Tensor) -> None:
        """Takes back the block of a storage that is no longer used."""
        if not self.pooled:
            return
        with self._lock:
            self._used -= block.nbytes
            if self._kept + block.nbytes > self._most_used:
                # Sizes that are no longer asked for must not fill the pool for ever.
                self._free.clear()
                self._kept = 0
            self._kept += block.nbytes
            self._free.setdefault(block.nbytes, []).append(block)
