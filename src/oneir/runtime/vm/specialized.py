"""Graphs compiled anew in the background, for extents that calls bring often.

A graph of unknown extents has kernels for all of them. After many calls with the same extents, another process
compiles the graph's kernels for these; until they are there, and with all other extents, calls run the general ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..once import new_lock

if TYPE_CHECKING:
    from ..module import Module

MOST = 16
"""How many lists of extents a graph is compiled for."""
CALLS = 32
"""After how many calls it is, at the earliest."""
SECONDS = 2.0
"""How long after the first of these calls, at the earliest: compiling takes seconds of a processor, too."""

Compile: TypeAlias = "Callable[[str, tuple[int, ...]], Module | None]"
"""The module that has a function of the graph for known extents, given its name; None if it cannot be had."""

_turn = new_lock()
"""Held by the thread that waits for a graph: a process has one compiled at a time."""


class Specialized:
    """The forms of one graph function for known extents, by these; shared by all machines."""

    def __init__(self, symbol: str, compile: Compile):
        self.modules: dict[tuple[int, ...], Module | None] = {}
        """None for what could not be compiled."""
        self._symbol, self._compile = symbol, compile

    def request(self, extents: tuple[int, ...], use: Callable[[Module], None]) -> None:
        """Calls `use` with the form for these extents, in a thread of its own, unless there are too many already or
        another one is being compiled.
        """
        if len(self.modules) < MOST:
            try:
                threading.Thread(target=self._make, args=(extents, use), name="oneir-specialize", daemon=True).start()
            except RuntimeError:
                return  # no thread can start: the limit of the system, or the end of the program

    def _make(self, extents: tuple[int, ...], use: Callable[[Module], None]) -> None:
        if not _turn.acquire(blocking=False):
            return
        try:
            if extents not in self.modules:
                self.modules[extents] = self._compile(self._symbol, extents)
            module = self.modules[extents]
            if module is not None:
                use(module)
        finally:
            _turn.release()


class Patience:
    """When calls with the same extents have become many."""

    def __init__(self) -> None:
        self._since, self.calls = time.monotonic(), CALLS

    def is_over(self) -> bool:
        """Whether they have by now. If not, `calls` is how many more to wait for."""
        self.calls *= 2
        return time.monotonic() - self._since >= SECONDS
