"""The controller of a session: it sends calls to workers, and learns of their results and errors."""

from __future__ import annotations

import collections
import contextlib
import importlib
import itertools
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import numpy as np

from ..device import Device, cpu
from ..error import DeviceError, ExecutionError, InvalidValue, TypeMismatch
from ..module import load_module
from ..object import Object, ShapeTuple
from ..once import new_lock
from ..registry import get_global_func
from ..tensor import Tensor, as_array, empty
from ..vm import VirtualMachine
from .collective import REDUCTIONS
from .link import FileMemory, Link, Memory, QueueLink, ThreadMemory, memory_file, queue_link, socket_link
from .worker import Answer, Failure, Register, Worker, current_worker

GRACE_SECONDS = 10.0
"""How long workers may take to end; then processes are killed."""

R = TypeVar("R", bound="DRef")
T = TypeVar("T")


class DRef(Object):
    """A value that each worker has, its own one; freed there when nothing here refers to it any more."""

    def __init__(self, session: Session, number: int) -> None:
        self.session, self._number = session, number

    def __del__(self) -> None:
        self.session._freed.append(self._number)

    def debug_get_from_remote(self, worker_id: int) -> Any:
        """The value of one worker, or a copy of it."""
        return self.session._ask(worker_id, _identity, Register(self._number))

    def debug_copy_from(self, worker_id: int, value: np.ndarray | Tensor) -> None:
        """Writes an array into one worker's tensor."""
        self.session._copy_to(worker_id, value, self)


class DPackedFunc(DRef):
    """A function that each worker has."""

    def __call__(self, *args: Any) -> DRef:
        """Calls it on all workers; see `Session.call_packed`."""
        return self.session.call_packed(self, *args)


class DModule(DRef):
    """A module, or a virtual machine, that each worker has."""

    def __getitem__(self, name: str) -> DPackedFunc:
        """The function of that name."""
        return self.session._call(DPackedFunc, _function_of, self, name)


class Session(Object):
    """What sessions have in common. A session is made by `ThreadedSession` or `ProcessSession`.

    Calls go to all workers and return at once; they run in the order in which they were made. An error of a worker ends
    the session: it is raised, with the worker's number, by the first method that waits (`sync_worker_0`, copies from a
    worker, `shutdown`), and by all methods from then on. `with session:` shuts it down at the end.

    `timeout` is how many seconds a method waits for a worker; None is without end. A worker that dies is noticed at
    once, whatever `timeout` is.
    """

    def __init__(self, num_workers: int, num_groups: int, timeout: float | None) -> None:
        for name, count in (("num_workers", num_workers), ("num_groups", num_groups)):
            if not isinstance(count, int) or count < 1:
                raise InvalidValue(f"{name}: expected a positive integer, found {count!r}")
        if num_workers % num_groups:
            raise InvalidValue(f"{num_workers} workers cannot be {num_groups} groups of one size")
        self.num_workers, self.num_groups = num_workers, num_groups
        self._timeout = timeout
        self._freed: collections.deque[int] = collections.deque()
        self._numbers = itertools.count()
        self._lock = new_lock()
        self._process = os.getpid()
        self._ended = ""
        self._memory: Memory
        self._close: Callable[[], object]

    def _link(self, rank: int) -> Link:
        """The controller's end of its link with a worker."""
        raise NotImplementedError

    def _receive(self, timeout: float | None) -> tuple[int, Any]:
        """The next message, and the worker that sent it; None is that the worker has ended. `TimeoutError` if late."""
        raise NotImplementedError

    def _end_of(self, rank: int) -> str:
        """How a worker ended that said nothing of it."""
        return "has ended"

    # -- calls --

    def _call(self, kind: type[R], function: Any, *args: Any) -> R:
        """Calls a function on all workers, or, given its name, the one that is registered there."""
        with self._lock:
            self._check()
            sent = [self._sent(arg) for arg in args]
            freed = [self._freed.popleft() for _ in range(len(self._freed))]
            made = kind(self, next(self._numbers))
            for rank in range(self.num_workers):
                self._send(rank, (freed, function, sent, made._number))
            return made

    def _ask(self, rank: int, function: Callable[..., Any], *args: Any) -> Any:
        """What a function gives on one worker."""
        if not 0 <= rank < self.num_workers:
            raise InvalidValue(f"expected a worker from 0 to {self.num_workers - 1}, found {rank}")
        with self._lock:
            self._check()
            self._send(rank, ([], function, args, None))
            return self._answer(rank)

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise ExecutionError("the session is that of the process which has forked this one")
        if self._ended:
            raise ExecutionError(self._ended)

    def _sent(self, arg: Any) -> Any:
        if isinstance(arg, DRef):
            if arg.session is not self:
                raise InvalidValue("found a value of another session")
            return Register(arg._number)
        if arg is None or isinstance(arg, (bool, int, float, str, bytes, ShapeTuple, Device)):
            return arg
        raise TypeMismatch(
            "expected a number, a text, bytes, a ShapeTuple, a Device, None, or a DRef of the session, found "
            f"{type(arg).__name__}; copy_to_worker_0 copies a tensor there"
        )

    def _send(self, rank: int, message: Any) -> None:
        try:
            self._link(rank).send(message)
        except OSError:
            self._fail(rank, {})

    def _answer(self, rank: int) -> Any:
        try:
            found, message = self._receive(self._timeout)
        except TimeoutError:
            self._stop(f"worker {rank} has not answered for {self._timeout} seconds")
        except BaseException:
            # The answer would be taken for that to the next question.
            self._ended = "the controller was interrupted while it waited for a worker"
            self._close()
            raise
        if isinstance(message, Answer):
            return message.value
        if message is None or message.fatal:
            self._fail(found, {found: message})
        raise _error(f"worker {found} raised {message.text}", message.trace)

    def _fail(self, rank: int, told: dict[int, Failure | None]) -> NoReturn:
        """Ends the session because of a worker, or, if that one has only lost another, because of the other one."""
        end = time.monotonic() + GRACE_SECONDS
        failure = None
        with contextlib.suppress(TimeoutError):
            while True:
                while rank not in told:
                    found, message = self._receive(max(0.0, end - time.monotonic()))
                    if not isinstance(message, Answer):
                        told.setdefault(found, message)
                failure = told[rank]
                if failure is None or failure.lost is None:
                    break
                rank = failure.lost
        how = self._end_of(rank) if failure is None else f"raised {failure.text}"
        self._stop(f"worker {rank} {how}", failure.trace if failure else "")

    def _stop(self, text: str, trace: str = "") -> NoReturn:
        self._ended = text
        self._close()
        raise _error(text, trace)

    # -- what users call --

    def get_global_func(self, name: str) -> DPackedFunc:
        """The function that each worker has registered under a name."""
        return self._call(DPackedFunc, get_global_func, name)

    def import_python_module(self, module_name: str) -> None:
        """Has each worker import a module, such as one that registers functions."""
        self._call(DRef, importlib.import_module, module_name)

    def call_packed(self, func: DRef, *args: Any) -> DRef:
        """Calls a function on all workers; returns its result on each.

        Arguments are numbers, texts, bytes, `ShapeTuple`s, devices, None, and values of the workers. Raises
        `TypeMismatch` for others, tensors among them, and for what is no `DRef`.
        """
        if not isinstance(func, DRef):
            raise TypeMismatch(f"expected a function of the workers, found {type(func).__name__}")
        return self._call(DRef, _apply, func, *args)

    def empty(
        self,
        shape: Sequence[int],
        dtype: str,
        device: Device | None = None,
        worker0_only: bool = False,
        in_group: bool = True,
    ) -> DRef:
        """An uninitialized tensor on each worker, or, with `worker0_only`, on the first of each group, or of all; the
        others have None.
        """
        return self._call(DRef, _empty, ShapeTuple(shape), dtype, device, worker0_only, in_group)

    def load_vm_module(self, path: str | os.PathLike[str], device: Device | None = None) -> DModule:
        """The functions of a graph that `export_library` has written, in a virtual machine on each worker."""
        return self._call(DModule, _load_vm, os.fspath(path), device)

    def sync_worker_0(self) -> None:
        """Waits until worker 0 has done all that it was told so far."""
        self._ask(0, _identity, None)

    def copy_from_worker_0(self, host_array: Tensor | np.ndarray, remote_array: DRef) -> None:
        """Copies worker 0's tensor to one of the same shape here, when worker 0 comes to that; waits for it."""
        with self._lock:
            found = self._memory.see(self._ask(0, _show, Register(remote_array._number)))
            if isinstance(host_array, Tensor):
                host_array.copyfrom(found)
            else:
                host_array[...] = found

    def copy_to_worker_0(self, host_array: Tensor | np.ndarray, remote_array: DRef) -> None:
        """Copies an array to worker 0's tensor of the same shape, when worker 0 comes to that; waits for it."""
        self._copy_to(0, host_array, remote_array)

    def _copy_to(self, rank: int, array: Tensor | np.ndarray, ref: DRef) -> None:
        with self._lock:
            shown = self._memory.show(as_array(array))
            self._ask(rank, _write, Register(ref._number), shown)

    def shutdown(self) -> None:
        """Waits until all workers have done what they were told, and ends them. Raises the error of one that failed.

        Nothing is left: no thread or process, and no shared memory. A second time, it does nothing.
        """
        if self._ended or os.getpid() != self._process:
            return
        with self._lock:
            for rank in range(self.num_workers):
                self._ask(rank, _identity, None)
            self._ended = "the session has been shut down"
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.shutdown()
        elif not self._ended:
            self._ended = "the session has been shut down"
            self._close()

    # -- collectives --

    def init_ccl(self, ccl: str, *device_ids: int) -> None:
        """Chooses the library of collectives: "cpu", or one for which `runtime.disco.NAME.init_ccl` is registered.

        `device_ids`: that of each worker's device; none of "cpu". Raises `InvalidValue` for a library that is unknown.
        """
        if get_global_func(f"runtime.disco.{ccl}.init_ccl", allow_missing=True) is None:
            raise InvalidValue(f"no collectives of {ccl!r} are there; those for processors are called 'cpu'")
        self._call(DRef, f"runtime.disco.{ccl}.init_ccl", ShapeTuple(device_ids))

    def broadcast_from_worker0(self, src: DRef, dst: DRef, in_group: bool = True) -> DRef:
        """Writes worker 0's `src` to `dst` of all workers; with `in_group`, that of the first of each group to those
        of the group. Returns `dst`.
        """
        self._call(DRef, "runtime.disco.broadcast_from_worker0", src, in_group, dst)
        return dst

    def scatter_from_worker0(self, from_array: DRef, to_array: DRef, in_group: bool = True) -> None:
        """Writes to each worker one of the equal parts, along the first axis, of worker 0's tensor, or of the group's
        first one.
        """
        self._call(DRef, "runtime.disco.scatter_from_worker0", from_array, in_group, to_array)

    def gather_to_worker0(self, from_array: DRef, to_array: DRef, in_group: bool = True) -> None:
        """Writes the tensors of all workers, one after the other, to worker 0's, or to the group's first one's."""
        self._call(DRef, "runtime.disco.gather_to_worker0", from_array, in_group, to_array)

    def allreduce(self, src: DRef, dst: DRef, op: str = "sum", in_group: bool = True) -> DRef:
        """Writes to each worker the "sum", "prod", "min", "max" or "avg" of all workers' tensors, or of its group's.

        Integers wrap, and their average is rounded down. Returns `dst`. Raises `InvalidValue` for another operation.
        """
        if op not in REDUCTIONS:
            raise InvalidValue(f"expected one of {', '.join(REDUCTIONS)} to reduce by, found {op!r}")
        self._call(DRef, "runtime.disco.allreduce", src, ShapeTuple([REDUCTIONS[op]]), in_group, dst)
        return dst

    def allgather(self, src: DRef, dst: DRef, in_group: bool = True) -> DRef:
        """Writes the tensors of all workers, or of its group's, one after the other, to each worker. Returns `dst`."""
        self._call(DRef, "runtime.disco.allgather", src, in_group, dst)
        return dst


class _ToController:
    """A thread's end of its link with the controller, which reads those of all workers in one queue."""

    def __init__(self, rank: int, calls: QueueLink, answers: queue.SimpleQueue[Any]) -> None:
        self._rank, self.recv, self._answers = rank, calls.recv, answers

    def send(self, value: Any, /) -> None:
        """Sends an answer."""
        self._answers.put((self._rank, value))

    def close(self) -> None:
        """Says that the worker has ended."""
        self._answers.put((self._rank, None))


class ThreadedSession(Session):
    """A session whose workers are threads of this process."""

    def __init__(self, num_workers: int, num_groups: int = 1, *, timeout: float | None = None) -> None:
        """Raises `InvalidValue` unless the workers make up so many groups of one size."""
        super().__init__(num_workers, num_groups, timeout)
        self._answers = queue.SimpleQueue[Any]()
        self._memory = ThreadMemory()
        peers = _links_between(num_workers, queue_link)
        links: list[QueueLink] = []
        threads: list[threading.Thread] = []
        for rank in range(num_workers):
            here, there = queue_link()
            links.append(here)
            worker = Worker(rank, num_workers, num_groups, peers[rank], self._memory)
            control = _ToController(rank, there, self._answers)
            name = f"worker {rank} of a session"
            threads.append(threading.Thread(target=worker.serve, args=(control,), name=name, daemon=True))
            threads[-1].start()
        self._links = links
        self._close = weakref.finalize(self, _end_threads, os.getpid(), links, threads)

    def _link(self, rank: int) -> Link:
        return self._links[rank]

    def _receive(self, timeout: float | None) -> tuple[int, Any]:
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None


class ProcessSession(Session):
    """A session whose workers are processes, fresh ones, so that functions are registered by `import_python_module`.

    They share the processors of the machine: each takes its part of `num_threads()`.
    """

    def __init__(
        self,
        num_workers: int,
        num_groups: int = 1,
        entrypoint: str = "oneir.runtime.disco.process",
        *,
        timeout: float | None = None,
    ) -> None:
        """`entrypoint` is the module that a worker's process runs.

        Raises `InvalidValue` unless the workers make up so many groups of one size, `DeviceError` if no processes can
        be made.
        """
        super().__init__(num_workers, num_groups, timeout)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._links: list[Connection] = []
        kept = contextlib.ExitStack()
        self._close = weakref.finalize(self, _end_processes, os.getpid(), self._links, self._processes, kept)
        try:
            with contextlib.ExitStack() as theirs:
                files = [_closed_by(kept, memory_file()) for _ in range(num_workers + 1)]
                peers = _links_between(num_workers, lambda: _socket_pair(theirs))
                for rank in range(num_workers):
                    one, other = socket.socketpair()
                    self._links.append(socket_link(one.detach()))
                    there = _closed_by(theirs, other.detach())
                    facts = {
                        "rank": rank,
                        "num_workers": num_workers,
                        "num_groups": num_groups,
                        "control": there,
                        "peers": peers[rank],
                        "files": files,
                    }
                    self._processes.append(_started(entrypoint, facts, [there, *peers[rank].values(), *files]))
        except OSError as error:
            self._close()
            raise DeviceError(f"no processes for {num_workers} workers: {error}") from None
        self._memory = FileMemory(files, num_workers)
        self._open = list(self._links)

    def _link(self, rank: int) -> Link:
        return self._links[rank]

    def _receive(self, timeout: float | None) -> tuple[int, Any]:
        ready = connection.wait(self._open, timeout)
        if not ready:
            raise TimeoutError
        link = ready[0]
        assert isinstance(link, Connection)
        try:
            message = link.recv()
        except (EOFError, OSError):
            self._open.remove(link)
            message = None
        return self._links.index(link), message

    def _end_of(self, rank: int) -> str:
        try:
            code = self._processes[rank].wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "has closed its connection"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with the exit status {code}"


def _links_between(count: int, make: Callable[[], tuple[T, T]]) -> list[dict[int, T]]:
    """For each worker, its ends of links with all others."""
    ends: list[dict[int, T]] = [{} for _ in range(count)]
    for one, other in itertools.combinations(range(count), 2):
        ends[one][other], ends[other][one] = make()
    return ends


def _closed_by(stack: contextlib.ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _socket_pair(stack: contextlib.ExitStack) -> tuple[int, int]:
    one, other = socket.socketpair()
    return _closed_by(stack, one.detach()), _closed_by(stack, other.detach())


def _started(entrypoint: str, facts: dict[str, Any], descriptors: list[int]) -> subprocess.Popen[bytes]:
    """The process of a worker. Ctrl-C is for the controller, whose end then ends it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", entrypoint, json.dumps(facts)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )


def _end_threads(process: int, links: list[QueueLink], threads: list[threading.Thread]) -> None:
    if os.getpid() != process:
        return
    for link in links:
        link.close()
    end = time.monotonic() + GRACE_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():  # who drops the last reference may be one of them
            thread.join(max(0.0, end - time.monotonic()))


def _end_processes(
    process: int, links: list[Connection], processes: list[subprocess.Popen[bytes]], kept: contextlib.ExitStack
) -> None:
    if os.getpid() != process:
        return
    for link in links:
        link.close()
    end = time.monotonic() + GRACE_SECONDS
    for worker in processes:
        try:
            worker.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    kept.close()


def _error(text: str, trace: str) -> ExecutionError:
    error = ExecutionError(text)
    if trace:
        error.add_note(trace)
    return error


# -- what workers do --


def _identity(value: Any) -> Any:
    return value


def _apply(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _function_of(module: Any, name: str) -> Any:
    return module[name]


def _empty(shape: ShapeTuple, dtype: str, device: Device | None, first_only: bool, in_group: bool) -> Tensor | None:
    worker = current_worker()
    if first_only and worker.rank != worker.group(in_group)[0]:
        return None
    return empty(shape, dtype, device)


def _load_vm(path: str, device: Device | None) -> VirtualMachine:
    return VirtualMachine(load_module(Path(path)), cpu() if device is None else device)


def _show(array: Any) -> Any:
    if not isinstance(array, Tensor):
        raise TypeMismatch(f"expected a tensor on the worker, found {type(array).__name__}")
    return current_worker().memory.show(np.asarray(array))


def _write(target: Any, shown: Any) -> None:
    if not isinstance(target, Tensor):
        raise TypeMismatch(f"expected a tensor on the worker, found {type(target).__name__}")
    target.copyfrom(current_worker().memory.see(shown))
