"""A process in which one contestant runs one model, on command: `python -m benchmarks.worker`.

Commands are lines of JSON on its input, answers are lines of JSON on its output. `Worker` is the other end.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import PEERS, PREPARATIONS, Case, Run


class Failed(Exception):
    """A contestant's reason why there is no result."""


class Worker:
    """A process that waits for commands; it computes only while one is carried out."""

    def __init__(self, environment: Mapping[str, str], log: Path, patience: float):
        self.log, self.patience = log, patience
        command = [sys.executable, "-m", "benchmarks.worker"]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def ask(self, command: str, **arguments: Any) -> Any:
        """The answer to a command; raises `Failed` where it fails, ends or takes longer than `patience` seconds."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps([command, arguments]).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._last_words()) from None
        if not select.select([process.stdout], [], [], self.patience)[0]:
            self.close()
            raise Failed(f"took more than {self.patience:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise Failed(self._last_words())
        answer, failure = json.loads(line)
        if failure:
            raise Failed(failure)
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"ended with status {status}: {lines[-1] if lines else 'it said nothing'}"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Commands:
    """What a worker can do; each method is a command."""

    run: Run

    def prepare(self, what: str, case: list[Any]) -> float:
        return PREPARATIONS[what](_case(case))

    def load(self, peer: str, case: list[Any]) -> float:
        """Loads the model and runs it once; gives the seconds that took, without importing the peer's package.

        Of one that compiles when it runs first, they are those of that run.
        """
        importlib.import_module(PEERS[peer].package)
        start = time.perf_counter()
        self.run = PEERS[peer].load(_case(case))
        if PEERS[peer].compiles:
            start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def error(self, case: list[Any]) -> float:
        """The largest difference from the reference, as a part of the reference's largest element."""
        exact = np.load(_case(case).folder / "reference.npy")
        found = self.run()
        if found.shape != exact.shape:
            raise ValueError(f"the result has the shape {found.shape}, the reference {exact.shape}")
        return float(np.abs(found - exact).max() / np.abs(exact).max())

    def turn(self, seconds: float) -> list[float]:
        """The median and the shortest time of one run, over about so many seconds of runs, at least three."""
        self.run()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - start)
        return [statistics.median(times), min(times)]

    def peak_memory(self) -> int:
        """The most memory that the process has had, in bytes."""
        # What getrusage gives counts what the parent had before this process began.
        (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(peak) * 1024


def _case(fields: list[Any]) -> Case:
    return Case(*fields[:3], Path(fields[3]))


def main() -> None:
    # What libraries print goes elsewhere than the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    commands = _Commands()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer, failure = getattr(commands, name)(**arguments), None
        except Exception as error:  # whatever a contestant raises is its result
            answer, failure = None, f"{type(error).__name__}: {str(error).strip() or 'no reason given'}"
        print(json.dumps([answer, failure]), file=answers, flush=True)


if __name__ == "__main__":
    main()
