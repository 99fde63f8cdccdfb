"""Memory as the interpreter sees it: bytes, which of them hold values, and who touched them.

Concurrency is described by places. A place is a tuple of (region, iteration) pairs, one for each concurrent loop around
an access, from the outside in; a region is one run of such a loop, or what the threads of a block do between two
barriers. Two accesses are unordered when, at the first pair in which they differ, the region is the same and the
iteration is not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtype import DataType
from ...ir.expr import Var
from ...runtime.tensor import Tensor, as_array


class Violation(Exception):
    """Something undefined that a program did; whoever executes the statement adds where.

    `node` is the part of the statement that did it, `other` an earlier one that it conflicts with.
    """

    def __init__(self, message: str, node: Any = None, other: Any = None):
        super().__init__(message)
        self.node, self.other = node, other


class Region:
    """One run of a concurrent loop, over `loop_var` where it has one; `name` says which, `members` what is concurrent:
    iterations, threads or virtual threads of a block, or blocks of a kernel.
    """

    __slots__ = ("loop_var", "members", "name", "renewed")

    def __init__(self, name: str, loop_var: Var | None = None, members: str = "iterations"):
        self.name, self.loop_var, self.members = name, loop_var, members
        self.renewed: Region | None = None

    def renew(self) -> None:
        """A barrier: accesses from now on are ordered with those before."""
        self.renewed = Region(self.name, self.loop_var, self.members)

    @property
    def latest(self) -> Region:
        """The region after all barriers so far."""
        region = self
        while region.renewed is not None:
            region = region.renewed
        return region

    def remedy(self, scope: str, both_write: bool) -> str:
        """What the message advises for a conflict in memory of a scope."""
        if self.members == "blocks":
            return "no barrier orders thread blocks: give each block elements of its own, or make two kernels"
        if self.members in ("iterations", "virtual threads"):
            return "give each iteration elements of its own, or make the loop serial"
        if both_write:
            return "give each thread an element of its own, or let one thread write (`if threadIdx.x == 0`)"
        barrier = scope if scope.startswith("shared") else "shared"
        return f'put a barrier between the two, `T.tvm_storage_sync("{barrier}")`, as ThreadSync("{barrier}") does'


Place = tuple[tuple[Region, Any], ...]
Touch = tuple[Place, Any]
"""Where an access was, and the node that made it."""


def divergence(a: Place, b: Place) -> int:
    """The position of the concurrent loop that leaves two accesses unordered; -1 if they are ordered."""
    for depth, ((region, i), (other, j)) in enumerate(zip(a, b, strict=False)):
        if region is not other:
            return -1
        if i != j:
            return depth
    return -1


@functools.cache
def storage_dtype(dtype: DataType) -> np.dtype:
    """The NumPy dtype that one lane of a dtype is stored as."""
    return dtype.to_numpy()


class Memory:
    """Bytes that belong together: an argument, or what one allocation made.

    Offsets count bytes. `uninitialized` memory knows which of its bytes were written. `errors` holds, by offset, what
    the arithmetic of tolerances knows of the floats stored here.
    """

    __slots__ = ("_owner", "_touched", "_views", "_written", "bytes", "errors", "home", "name", "private", "scope")

    def __init__(self, data: np.ndarray, name: str, scope: str = "global", uninitialized: bool = False):
        self.bytes = data
        self.name = name
        self.scope = scope
        self.home: dict[str, int] = {}
        self.private: dict[Any, Memory] = {}
        self.errors: dict[int, tuple[Any, Any]] = {}
        self._views: dict[DataType, np.ndarray] = {}
        self._written = bytearray(len(data)) if uninitialized else None
        self._touched: dict[int, tuple[Touch | None, tuple[Touch, ...]]] = {}

    @staticmethod
    def allocate(nbytes: int, name: str, scope: str, check: bool) -> Memory:
        """Fresh memory, filled with a pattern that is no plausible value."""
        return Memory(np.full(nbytes, 0xA5, np.uint8), name, scope, check)

    def _view(self, dtype: DataType) -> np.ndarray:
        view = self._views.get(dtype)
        if view is None:
            element = storage_dtype(dtype)
            whole = len(self.bytes) // element.itemsize * element.itemsize
            view = self._views[dtype] = self.bytes[:whole].view(element)
        return view

    def _position(self, dtype: DataType, offset: int) -> int:
        size = storage_dtype(dtype).itemsize
        position, rest = divmod(offset, size)
        if rest:
            raise Violation(f"misaligned access: {dtype} at byte {offset} of `{self.name}`")
        if offset < 0 or offset + size > len(self.bytes):
            raise Violation(f"access outside of the memory of `{self.name}`: byte {offset} of {len(self.bytes)}")
        return position

    def read(self, dtype: DataType, offset: int) -> Any:
        """One scalar."""
        return self._view(dtype)[self._position(dtype, offset)]

    def holds_value(self, dtype: DataType, offset: int) -> bool:
        """Whether every byte of a scalar was written."""
        written = self._written
        return written is None or written.find(0, offset, offset + storage_dtype(dtype).itemsize) < 0

    def first_unwritten(self) -> int:
        """The offset of the first byte that was not written; -1 if all were."""
        return -1 if self._written is None else self._written.find(0)

    def write(self, dtype: DataType, offset: int, value: Any) -> None:
        """Stores one scalar."""
        try:
            self._view(dtype)[self._position(dtype, offset)] = value
        except ValueError:
            raise Violation(f"`{self.name}` is written, but its memory is read-only") from None
        if self._written is not None:
            size = storage_dtype(dtype).itemsize
            self._written[offset : offset + size] = b"\1" * size

    def array(self, dtype: DataType, offset: int, count: int | None = None) -> np.ndarray:
        """`count` elements from `offset` on, or all there are, to be read and written by a function outside."""
        position = self._position(dtype, offset)
        if self._written is not None:
            self._written[offset:] = b"\1" * (len(self._written) - offset)
        view = self._view(dtype)[position:]
        if count is not None and count > len(view):
            raise Violation(f"access outside of the memory of `{self.name}`: {count} elements from byte {offset} on")
        return view[:count]

    def touch(self, offset: int, place: Place, writes: bool, node: Any) -> tuple[Place, str, Any] | None:
        """Records an access. Returns where an earlier access was that is not ordered with it and conflicts, its kind
        and what made it.

        Per element the last write and at most two reads are enough. What comes later and is unordered with an older
        write is unordered with the last one too. Of several reads, two that are unordered at the outermost loop catch
        every later write that any of them would.
        """
        entry = self._touched.get(offset)
        if entry is None:
            self._touched[offset] = ((place, node), ()) if writes else (None, ((place, node),))
            return None
        written, readers = entry
        if written is not None and written[0] is not place and divergence(written[0], place) >= 0:
            return written[0], "written", written[1]
        if writes:
            for reader, by in readers:
                if reader is not place and divergence(reader, place) >= 0:
                    return reader, "read", by
            self._touched[offset] = ((place, node), ())
        elif len(readers) != 1 or readers[0][0] is not place:
            self._touched[offset] = (written, _joined(readers, (place, node)))
        return None


def _joined(readers: tuple[Touch, ...], new: Touch) -> tuple[Touch, ...]:
    """The reads to remember after a new one: it, and an earlier one that is unordered with it."""
    depths = [divergence(reader, new[0]) for reader, _ in readers]
    if len(readers) == 2 and divergence(readers[0][0], readers[1][0]) in depths:
        return readers
    return (readers[0], new) if depths and depths[0] >= 0 else (new,)


class Pointer:
    """An address: memory, an offset in bytes, and the dtype of what it points to, where that is known."""

    __slots__ = ("dtype", "memory", "offset")

    def __init__(self, memory: Memory, offset: int, dtype: DataType | None):
        self.memory = memory
        self.offset = offset
        self.dtype = dtype

    @property
    def address(self) -> int:
        """A number that no other place in memory has."""
        return self.memory.bytes.__array_interface__["data"][0] + self.offset

    def array(self, dtype: DataType | None = None, count: int | None = None) -> np.ndarray:
        """The memory from here on as a NumPy array."""
        dtype = dtype or self.dtype
        if dtype is None or dtype == "void":
            dtype = DataType("uint8")
        return self.memory.array(dtype, self.offset, count)


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The memory of an array, from its first to its last item, as bytes; no stride may be negative."""
    span = 0
    if array.size:
        span = array.itemsize + sum((d - 1) * s for d, s in zip(array.shape, array.strides, strict=True))
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    base = np.lib.stride_tricks.as_strided(array, shape=(1,) * array.ndim, strides=(array.itemsize,) * array.ndim)
    return np.lib.stride_tricks.as_strided(base.reshape(1).view(np.uint8), shape=(span,), strides=(1,))


def writable_array(argument: Any) -> np.ndarray:
    """The memory behind an argument (an array or a tensor of any library) as a NumPy array."""
    return argument._view() if isinstance(argument, Tensor) else as_array(argument)


def all_offsets(base: int, indices: Sequence[int], size: int, lanes: int) -> list[int]:
    """The byte offsets of the scalars of several elements of `lanes` lanes each."""
    if lanes == 1:
        return [base + i * size for i in indices]
    return [base + (i * lanes + lane) * size for i in indices for lane in range(lanes)]
