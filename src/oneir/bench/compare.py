"""Contestants with one model, in turns: one computes, the others wait, and a slow minute of the machine hits all."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .contestant import PEERS, Case
from .worker import Failed, Worker

PATIENCE = 900.0
"""Seconds that one command may take: compiling a model, in the slowest case."""

Step = Callable[[str], None]
"""Is told what begins."""


def environment(threads: int, folder: Path) -> dict[str, str]:
    """The variables of a process that computes with so many threads, and with all that the processor can do.

    Compilers keep what they cache in the folder, so that nothing is there that was not made for this comparison.
    """
    own = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    own |= {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL")}
    return own | {
        "ONEIR_CACHE_DIR": str(folder / "oneir"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor{threads}"),
    }


@dataclass
class Measured:
    """One contestant with one model. Times are in seconds; what does not apply is None."""

    model: str
    threads: int
    peer: str
    seconds: float | None = None
    shortest: float | None = None
    error: float | None = None
    compile_seconds: float | None = None
    load_seconds: float | None = None
    peak_bytes: int | None = None
    failure: str | None = None


def best_peer(results: Sequence[Measured], of: Measured) -> float | None:
    """The shortest median of another contestant than OneIR for the same model and threads."""
    same = [r for r in results if (r.model, r.threads) == (of.model, of.threads) and r.peer != "oneir"]
    return min((r.seconds for r in same if r.seconds is not None), default=None)


@dataclass
class _Contestant:
    """A peer with one model, ready to take its turns, and what has been measured."""

    worker: Worker
    result: Measured
    medians: list[float] = field(default_factory=list)
    shortest: list[float] = field(default_factory=list)

    def fail(self, reason: Failed) -> None:
        self.result.failure = str(reason)
        self.worker.close()


def preparations(peers: Sequence[str]) -> list[str]:
    """What `prepare` makes for some contestants."""
    return ["reference", *dict.fromkeys(p.__name__ for name in peers if (p := PEERS[name].prepare))]


def prepare(case: Case, wanted: Sequence[str], threads: int, step: Step) -> dict[str, float | Failed]:
    """Makes the files that contestants load, each in its own process: the seconds that took, or why it failed."""
    done: dict[str, float | Failed] = {}
    for what in wanted:
        step(f"preparing: {what.replace('_', ' ')}")
        with Worker(environment(threads, case.folder), case.folder / f"{what}.log", PATIENCE) as worker:
            try:
                done[what] = worker.ask("prepare", what=what, case=case.fields)
            except Failed as failure:
                done[what] = failure
    return done


def _loaded(case: Case, worker: Worker, result: Measured, prepared: dict[str, float | Failed]) -> _Contestant:
    """A contestant that has run its model once and told how wrong the result is."""
    contestant, peer = _Contestant(worker, result), PEERS[result.peer]
    cost = None if peer.prepare is None else prepared[peer.prepare.__name__]
    try:
        if isinstance(cost, Failed):
            raise cost
        seconds = worker.ask("load", peer=result.peer, case=case.fields)
        if peer.compiles:
            result.compile_seconds = seconds
        elif peer.prepare is not None:
            result.load_seconds = seconds
        if result.peer == "oneir":
            result.compile_seconds = cost
        if "reference" in prepared:
            result.error = worker.ask("error", case=case.fields)
    except Failed as failure:
        contestant.fail(failure)
    return contestant


def compare(
    model: str,
    case: Case,
    peers: Sequence[str],
    threads: int,
    rounds: int,
    prepared: dict[str, float | Failed],
    step: Step,
) -> list[Measured]:
    """Runs one model with so many threads in all contestants, in turns."""
    with ExitStack() as stack:
        contestants: list[_Contestant] = []
        for peer in peers:
            step(f"{PEERS[peer].name} loads, {threads} threads")
            log = case.folder / f"{peer}{threads}.log"
            # What it takes to load counts, so nothing of it may lie in the cache.
            own = environment(threads, case.folder) | {"ONEIR_CACHE_DIR": ""}
            worker = stack.enter_context(Worker(own, log, PATIENCE))
            contestants.append(_loaded(case, worker, Measured(model, threads, peer), prepared))
        for number in range(rounds):
            step(f"round {number + 1} of {rounds}, {threads} threads")
            # Nobody always follows the same one.
            for contestant in contestants[number % len(peers) :] + contestants[: number % len(peers)]:
                _turn(contestant)
        for contestant in contestants:
            if contestant.result.failure is None:
                contestant.result.seconds = statistics.median(contestant.medians)
                contestant.result.shortest = min(contestant.shortest)
    return [contestant.result for contestant in contestants]


def _turn(contestant: _Contestant) -> None:
    if contestant.result.failure is not None:
        return
    try:
        median, shortest = contestant.worker.ask("turn", seconds=0.3)
        peak = contestant.worker.ask("peak_memory")
    except Failed as failure:
        contestant.fail(failure)
        return
    contestant.medians.append(median)
    contestant.shortest.append(shortest)
    contestant.result.peak_bytes = peak
    time.sleep(0.05)  # threads that wait for more work spin for a while


def profile(case: Case, threads: int, rounds: int) -> dict[str, Any]:
    """Where OneIR's time for a model goes with so many threads; see `kernels.profile`. Raises `Failed`."""
    with Worker(environment(threads, case.folder), case.folder / f"profile{threads}.log", PATIENCE) as worker:
        return worker.ask("profile", case=case.fields, rounds=rounds)
