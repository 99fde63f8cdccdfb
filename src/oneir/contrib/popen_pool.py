"""Processes that run functions, and whose crashes and endless loops the caller survives.

    worker = PopenWorker()
    worker.send(function, [1, 2], timeout=5)
    worker.recv()

    with PopenPoolExecutor(max_workers=2, timeout=10) as pool:
        [result.value for result in pool.map_with_error_catching(function, range(10))]

Functions, arguments and results are pickled: functions by their names, and those that have none in their module, such
as functions inside of others, by what they are, where the package cloudpickle is installed. A process starts as a fresh
one, so that a program which starts some runs what it does under `if __name__ == "__main__"`.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ..runtime.error import TypeMismatch


class StatusKind(IntEnum):
    """How a call of a function ended."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


@dataclass(frozen=True)
class MapResult:
    """How a call ended, and what it returned or raised."""

    status: StatusKind
    value: Any


def _serve(pipe: Connection, initializer: Callable[..., object] | None, initargs: Sequence[Any]) -> None:
    """The worker's side: calls what it is sent until the pipe is closed."""
    if initializer is not None:
        initializer(*initargs)
    while True:
        try:
            fn, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            answer = (StatusKind.COMPLETE, fn(*args, **kwargs))
        except Exception as error:  # all that a user's function raises goes back to the caller
            answer = (StatusKind.EXCEPTION, error)
        try:
            pipe.send(answer)
        except Exception as error:  # a value that cannot be pickled
            pipe.send((StatusKind.EXCEPTION, TypeError(f"the result cannot be sent between processes: {error}")))


def _pickled(call: tuple[Any, ...]) -> bytes | memoryview:
    """A call as `Connection.recv` reads it. Raises `TypeMismatch` for what cannot be sent."""
    try:
        return ForkingPickler.dumps(call)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        try:
            by_value = importlib.import_module("cloudpickle")
        except ImportError:
            raise TypeMismatch(
                f"the call cannot be sent to another process: {error}. Functions inside of others are sent where the "
                "package cloudpickle is installed; others stand in a module"
            ) from None
        return by_value.dumps(call)


class PopenWorker:
    """A process that runs one function at a time; it is started at the first call, and again after it was lost.

    `initializer(*initargs)` runs in it first. After `maximum_uses` calls it is replaced by a new one.
    """

    def __init__(
        self,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        maximum_uses: int | None = None,
    ) -> None:
        self._initializer, self._initargs, self._maximum_uses = initializer, tuple(initargs), maximum_uses
        self._process: Any = None
        self._pipe: Connection | None = None
        self._uses = 0
        self._timeout: float | None = None

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.kill()

    def _start(self) -> Connection:
        if self._process is not None and not self.is_alive():
            self.kill()  # frees what is left of it
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(theirs, self._initializer, self._initargs), daemon=True
            )
            self._process.start()
            theirs.close()
            self._uses = 0
        return self._pipe

    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        process, pipe, self._process, self._pipe = self._process, self._pipe, None, None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.join()
            process.close()

    def join(self, timeout: float | None = None) -> None:
        """Lets the process end when it is idle, and waits for that, at most so many seconds."""
        if self._pipe is not None:
            self._pipe.close()
            self._process.join(timeout)
            self.kill()

    def send(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Starts a call. `recv` gives its result, within `timeout` seconds of now on.

        Raises `TypeMismatch` for a function or an argument that cannot be sent to another process.
        """
        call = _pickled((fn, tuple(args), dict(kwargs or {})))
        if self._maximum_uses is not None and self._uses >= self._maximum_uses:
            self.join()
        pipe = self._start()
        self._uses += 1
        self._timeout = timeout
        pipe.send_bytes(call)

    def recv(self) -> Any:
        """The result of the call that was sent.

        Raises what the function raised, `TimeoutError` if it takes longer than allowed, and `ChildProcessError` if the
        process ended meanwhile; the next call has a new process then.
        """
        if self._pipe is None:
            raise ValueError("nothing was sent to the worker: call send() before recv()")
        try:
            if not self._pipe.poll(self._timeout):
                self.kill()
                raise TimeoutError(f"the function took longer than {self._timeout} s")
            status, value = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.kill()
            raise ChildProcessError("the process ended before it answered") from None
        if status is StatusKind.EXCEPTION:
            raise value
        return value


class PopenPoolExecutor:
    """Several workers behind one queue. Calls that take longer than `timeout` seconds end with `TimeoutError`."""

    def __init__(
        self,
        max_workers: int | None = None,
        timeout: float | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        maximum_process_uses: int | None = None,
    ) -> None:
        self._timeout = timeout
        self._options = (initializer, initargs, maximum_process_uses)
        self._threads = concurrent.futures.ThreadPoolExecutor(max_workers or os.cpu_count() or 1)
        self._idle: list[PopenWorker] = []
        self._lock = threading.Lock()

    def __enter__(self) -> PopenPoolExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Waits for the calls that run, and ends the processes."""
        self._threads.shutdown()
        with self._lock:
            workers, self._idle = self._idle, []
        for worker in workers:
            worker.join()

    def _call(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs a call in a worker that has nothing to do, in one of the threads."""
        with self._lock:
            worker = self._idle.pop() if self._idle else PopenWorker(*self._options)
        try:
            worker.send(fn, args, kwargs, self._timeout)
            return worker.recv()
        finally:
            with self._lock:
                self._idle.append(worker)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Queues a call; the future has its result."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def map_with_error_catching(self, fn: Callable[[Any], Any], iterator: Iterable[Any]) -> Iterator[MapResult]:
        """How the calls of a function with each value ended, in their order."""
        for future in [self.submit(fn, value) for value in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError as error:
                yield MapResult(StatusKind.TIMEOUT, error)
            except Exception as error:  # all that a user's function raises is a result here
                yield MapResult(StatusKind.EXCEPTION, error)
