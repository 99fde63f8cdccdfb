"""How the workers of a session reach one another: links, which carry objects, and memory, which carries arrays.

Between threads both hand over what they are given. Between processes a link is a socket (`multiprocessing`'s
`Connection`), and memory a file that each process maps. The file has no name, so nothing of it is left, however its
processes end.
"""

from __future__ import annotations

import mmap
import os
import queue
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from ..dtype import dtype_name, numpy_dtype
from ..error import DeviceError


class Link(Protocol):
    """One end of a connection of two. What was sent before the other end was closed still arrives."""

    def send(self, value: Any, /) -> None:
        """Sends an object. May raise `OSError` if the other end is closed."""
        ...

    def recv(self) -> Any:
        """The next object; waits for it. Raises `EOFError` or `OSError` if the other end is closed."""
        ...

    def close(self) -> None:
        """Closes this end."""
        ...


_sockets: weakref.WeakSet[Connection] = weakref.WeakSet()


def socket_link(descriptor: int) -> Connection:
    """An end between processes. It is closed in children of `fork`, which would keep it open beyond this process."""
    link = Connection(descriptor)
    _sockets.add(link)
    return link


def _close_in_child() -> None:
    for link in list(_sockets):
        link.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class _End:
    """What stands in a queue where its sender has closed the link."""


class QueueLink:
    """An end between threads of one process."""

    def __init__(self, incoming: queue.SimpleQueue[Any], outgoing: queue.SimpleQueue[Any]) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def send(self, value: Any, /) -> None:
        """Hands an object over."""
        self._outgoing.put(value)

    def recv(self) -> Any:
        """The next object. Raises `EOFError` if the other end is closed."""
        value = self._incoming.get()
        if value is _End:
            self._incoming.put(_End)  # for who asks again
            raise EOFError
        return value

    def close(self) -> None:
        """Tells the other end that no more comes."""
        self._outgoing.put(_End)


def queue_link() -> tuple[QueueLink, QueueLink]:
    """Both ends of a link between threads."""
    one, other = queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
    return QueueLink(one, other), QueueLink(other, one)


class Memory(Protocol):
    """Arrays that one worker shows, and the others see."""

    def show(self, array: np.ndarray) -> Any:
        """Shows an array until the next one is shown; returns what `see` finds it by."""
        ...

    def see(self, shown: Any) -> np.ndarray:
        """An array that another one shows; it is not to be written."""
        ...


class ThreadMemory:
    """That of threads: the arrays themselves."""

    def show(self, array: np.ndarray) -> np.ndarray:
        """The array."""
        return array

    def see(self, shown: np.ndarray) -> np.ndarray:
        """The array."""
        return shown


class FileMemory:
    """That of processes: a file for each, in which it shows its arrays, mapped by all."""

    def __init__(self, files: Sequence[int], own: int) -> None:
        """`files`: descriptors, the same files in the same order everywhere; `own`: the place of this process' one."""
        self._files, self._own = files, own
        self._maps: dict[int, mmap.mmap] = {}

    def show(self, array: np.ndarray) -> tuple[int, tuple[int, ...], str]:
        """Copies an array into this process' file. Raises `DeviceError` if there is no room for it."""
        shape, dtype = array.shape, dtype_name(array.dtype)
        self._grow(array.nbytes)
        self.see((self._own, shape, dtype))[...] = array
        return self._own, shape, dtype

    def see(self, shown: tuple[int, tuple[int, ...], str]) -> np.ndarray:
        """The array, in the file where it is shown."""
        place, shape, name = shown
        dtype = numpy_dtype(name)
        count = int(np.prod(shape))
        if not count:
            return np.empty(shape, dtype)
        if place not in self._maps or len(self._maps[place]) < count * dtype.itemsize:
            self._maps[place] = mmap.mmap(self._files[place], 0)
        return np.frombuffer(self._maps[place], dtype, count).reshape(shape)

    def _grow(self, size: int) -> None:
        found = os.fstat(self._files[self._own]).st_size
        if size <= found:
            return
        size = max(size, 2 * found)
        try:
            if hasattr(os, "posix_fallocate"):  # which fails where writing to the map would end the process
                os.posix_fallocate(self._files[self._own], 0, size)
            else:
                os.ftruncate(self._files[self._own], size)
        except OSError as error:
            raise DeviceError(f"no shared memory of {size} bytes for a tensor: {error}") from None


def memory_file() -> int:
    """The descriptor of an empty file without a name, in memory where the system has that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("oneir-disco")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
