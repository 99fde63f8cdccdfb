"""A worker of a session: carries out calls, keeps their results in registers, and meets other workers in collectives.

A call is a tuple: registers that are not needed any more, a function or its registered name, arguments, and the
register of the result. If that is None, the result, or the error, is the answer, and the worker goes on. An error of
any other call ends the worker, since it would be out of step with the others: it tells the controller, and closes its
links, so that whoever meets it in a collective, then or later, is told as well.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..error import ExecutionError, InvalidValue, NotInitialized
from ..registry import get_global_func
from .link import Link, Memory


@dataclass(frozen=True)
class Register:
    """Stands, in a call, for what a register of the worker holds."""

    number: int


@dataclass(frozen=True)
class Answer:
    """The result of a call without a register."""

    value: Any


@dataclass(frozen=True)
class Failure:
    """An error. `lost` is the worker that had ended before, if that is what the error is about."""

    text: str
    trace: str
    lost: int | None
    fatal: bool


class WorkerLost(ExecutionError):
    """A worker has ended, whom another one would meet in a collective."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"worker {rank} has ended")
        self.rank = rank


class Worker:
    """One worker: its rank, those whom it meets, and its registers."""

    def __init__(self, rank: int, num_workers: int, num_groups: int, peers: Mapping[int, Link], memory: Memory) -> None:
        self.rank, self.num_workers, self.num_groups = rank, num_workers, num_groups
        self.memory = memory
        self.ccl = ""
        """The library of collectives; "" before `init_ccl`."""
        self._peers = peers
        self._registers: dict[int, Any] = {}

    def group(self, in_group: bool) -> range:
        """The ranks that meet: those of this worker's group, or all."""
        if not in_group:
            return range(self.num_workers)
        size = self.num_workers // self.num_groups
        first = self.rank // size * size
        return range(first, first + size)

    def exchange(self, group: range, what: str, value: Any = None) -> list[Any]:
        """The values that all of a group bring, in the order of ranks, once all have come.

        Raises `InvalidValue` where another worker is somewhere else, `WorkerLost` where it does not exist any more.
        """
        others = [rank for rank in group if rank != self.rank]
        met = {self.rank: (what, value)}
        for rank in others:
            self._meet(rank, lambda link: link.send((what, value)))
        for rank in others:
            met[rank] = self._meet(rank, lambda link: link.recv())
        for rank in others:
            if met[rank][0] != what:
                raise InvalidValue(
                    f"workers must meet in the same collective: worker {rank} is at {met[rank][0]}, and worker "
                    f"{self.rank} at {what}"
                )
        return [met[rank][1] for rank in group]

    def _meet(self, rank: int, act: Callable[[Link], Any]) -> Any:
        try:
            return act(self._peers[rank])
        except (EOFError, OSError):
            raise WorkerLost(rank) from None

    def serve(self, control: Link) -> None:
        """Carries out calls until the controller closes its end, or one fails."""
        _local.worker = self
        try:
            while True:
                freed, function, args, result = control.recv()
                for number in freed:
                    self._registers.pop(number, None)
                try:
                    called = get_global_func(function) if isinstance(function, str) else function
                    value = called(*map(self._value, args))
                    if result is None:
                        control.send(Answer(value))
                    else:
                        self._registers[result] = value
                except Exception as error:
                    lost = error.rank if isinstance(error, WorkerLost) else None
                    text, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
                    control.send(Failure(text, trace, lost, result is not None))
                    if result is not None:
                        return
                value = args = None  # nothing is kept while waiting
        except (EOFError, OSError):
            return
        finally:
            _local.worker = None
            for link in (*self._peers.values(), control):
                link.close()

    def _value(self, value: Any) -> Any:
        return self._registers[value.number] if isinstance(value, Register) else value


_local = threading.local()


def current_worker() -> Worker:
    """The worker that this thread is. Raises `NotInitialized` if it is none."""
    worker = getattr(_local, "worker", None)
    if worker is None:
        raise NotInitialized(
            "this is a function for the workers of a session, and no worker calls it: "
            "session.get_global_func(name) calls a function on all workers"
        )
    return worker
