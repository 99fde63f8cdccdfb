"""Objects that a process makes once and shares, safely for threads and for children of `fork`.

    @once
    def pool() -> LoadedObject:      # made by the first thread that asks, while others wait
        return link(compile_ir(POOL_IR))

    class Module:
        def __init__(self):
            self._lock = new_lock()  # usable in a child even if another thread held it at the time of the fork

    deep_recursion = ProcessSetting(raise_limit, restore_limit)
    with deep_recursion:             # changed while any thread needs it
        walk(tree)

`functools.cache` may call a function twice when two threads meet in it, and forgets one of the results: it is for pure
functions of which any result will do.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_settings: weakref.WeakSet[ProcessSetting[Any]] = weakref.WeakSet()


def new_lock() -> threading.RLock:
    """A reentrant lock that is free in a child of `fork`, whoever held it in the parent.

    What it protects must be in order between any two bytecodes, since a child sees it as the fork found it.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _after_fork() -> None:
    for lock in _locks:
        lock._at_fork_reinit()
    for setting in _settings:
        setting._forget_other_threads()


_IMPORT_SECONDS = 10.0
"""How long a fork waits for imports, which may themselves wait for what the forking thread holds."""


def _wait_for_imports() -> None:
    """Waits until no other thread is importing a module: a child that needs it would wait for that thread forever."""
    locks: dict[str, Any] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    own, end = threading.get_ident(), time.monotonic() + _IMPORT_SECONDS
    while any(
        lock is not None and getattr(lock, "owner", None) not in (None, own)
        for lock in [reference() for reference in list(locks.values())]
    ):
        if time.monotonic() > end:
            return
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    # Functions to call before a fork run in the reverse order of their registration: this one after those that wait
    # for other locks, since threads may import while they do.
    os.register_at_fork(before=_wait_for_imports, after_in_child=_after_fork)


class Once(Generic[P, T]):
    """A function that is called once for each list of arguments, in whichever thread comes first; see `once`.

    `lock` is held meanwhile: one of its own, or one that the function's callers may hold already.
    """

    def __init__(self, make: Callable[P, T], lock: AbstractContextManager[object] | None = None) -> None:
        functools.update_wrapper(self, make)
        self._make = make
        self._made: dict[tuple[object, ...], T] = {}
        self._lock = lock or new_lock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs:
            raise TypeError(f"{self._make.__name__} takes its arguments by position, found {', '.join(kwargs)}")
        if args not in self._made:
            with self._lock:
                if args not in self._made:
                    self._made[args] = self._make(*args, **kwargs)
        return self._made[args]

    def made(self, *args: object) -> bool:
        """Whether the function has returned for these arguments."""
        return args in self._made


def once(make: Callable[P, T]) -> Once[P, T]:
    """Calls a function once and gives everybody the same result, which lives as long as the process.

    Arguments are positional. A call that raises leaves nothing behind; the next one tries again. Functions made once
    may call each other, but not in a circle.
    """
    return Once(make)


class ProcessSetting(Generic[T]):
    """A setting of the whole process that several threads need changed for a while: `with setting: ...`.

    The first one changes it, and the last one puts back what it was. `change` returns that, `restore` takes it.
    """

    def __init__(self, change: Callable[[], T], restore: Callable[[T], None]) -> None:
        self._change, self._restore = change, restore
        self._lock = new_lock()
        self._own = _Depth()
        self._threads = 0
        self._before: list[T] = []
        _settings.add(self)

    def __enter__(self) -> None:
        own = self._own
        depth = own.depth
        if depth == 0:
            with self._lock:
                if self._threads == 0:
                    self._before.append(self._change())
                self._threads += 1
        own.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        own = self._own
        own.depth = depth = own.depth - 1
        if depth == 0:
            with self._lock:
                self._threads -= 1
                self._put_back()

    def _put_back(self) -> None:
        if self._threads == 0 and self._before:
            self._restore(self._before.pop())

    def _forget_other_threads(self) -> None:
        """In a child of `fork`, which has one thread."""
        self._threads = min(self._own.depth, 1)
        self._put_back()


class _Depth(threading.local):
    """How many times the current thread has entered a setting and not left it."""

    depth = 0
