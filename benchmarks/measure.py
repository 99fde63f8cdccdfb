"""Timing that can be compared: contestants take turns, so that a slow minute of the machine hits all of them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from oneir.relax import VirtualMachine
from oneir.runtime.vm.native import NativeGraph


def interleaved(
    contestants: Mapping[str, Callable[[], object]], rounds: int = 15, seconds: float = 0.02
) -> dict[str, float]:
    """The median time in seconds of one call of each contestant, over rounds in which each gets its turn.

    A turn repeats the call until it has taken about `seconds`.
    """
    repeats = {}
    for name, call in contestants.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            count = repeats[name]
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count)
    return {name: statistics.median(values) for name, values in times.items()}


@contextmanager
def general_code() -> Iterator[None]:
    """What is compiled inside keeps its code for all extents."""
    before = os.environ.get("ONEIR_SPECIALIZE")
    os.environ["ONEIR_SPECIALIZE"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["ONEIR_SPECIALIZE"]
        else:
            os.environ["ONEIR_SPECIALIZE"] = before


def often_called(machine: VirtualMachine, *args: object) -> Callable[[], object]:
    """A call of `main` with arguments that it was called with until its graph was compiled for their extents."""
    main, graph = machine["main"], machine.executable.natives["main"]
    assert isinstance(graph, NativeGraph) and graph.specialized is not None, (
        "the graph is compiled for all extents only"
    )
    known = len(graph.specialized.modules)
    while len(graph.specialized.modules) == known:
        main(*args)
    return lambda: main(*args)


def verdict(value: float, bar: float, at_least: bool) -> str:
    """Whether a figure meets its bar, for the end of a line."""
    return "ok" if (value >= bar if at_least else value <= bar) else f"MISSED (bar {bar:g})"
