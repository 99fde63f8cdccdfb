"""Threads that take turns at short intervals, so that one which is mostly in LLVM need not wait for one in Python.

A thread that comes back from a call of C waits for Python's lock, 5 ms if another thread computes. Compiling a kernel
is some 40 calls of LLVM, most of which take microseconds: they would wait for longer than LLVM works.
"""

from __future__ import annotations

import sys

from ..runtime.once import ProcessSetting

_MICROSECONDS = 200
"""Shorter ones gain nothing more: a turn costs about 10 µs."""


def _interval() -> int:
    """The interval in the microseconds that the interpreter counts it in."""
    return round(sys.getswitchinterval() * 1e6)


def _shorten() -> int:
    before = _interval()
    if before > _MICROSECONDS:
        sys.setswitchinterval(_MICROSECONDS / 1e6)
    return before


def _restore(before: int) -> None:
    if _interval() == _MICROSECONDS:
        sys.setswitchinterval(before / 1e6)


short_turns = ProcessSetting(_shorten, _restore)
"""Has threads of Python take turns every 0.2 ms: `with short_turns: ...`."""
