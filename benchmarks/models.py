"""Whole models against other compilers and libraries: `python -m benchmarks.models [--models NAME ...]`.

Each contestant runs each model in a process of its own. The processes stay, and take turns: one computes, the others
wait, and a slow minute of the machine hits all of them. Printed is a table in Markdown; `--write-docs` writes it as a
page, with a chart, into docs/. `--profile NAME` tells where OneIR's time for one model goes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers import PEERS, Case
from benchmarks.report import Measured, table, write_docs
from benchmarks.worker import Failed, Worker
from benchmarks.zoo import MODELS

# Seconds that one command may take: compiling a model, in the slowest case.
PATIENCE = 900.0


def environment(threads: int, folder: Path | None = None) -> dict[str, str]:
    """The variables of a process that computes with so many threads, and with all that the processor can do.

    With a folder, compilers keep what they cache in it, so that they find nothing there.
    """
    own = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    own |= {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL")}
    if folder is not None:
        own |= {"ONEIR_CACHE_DIR": "", "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor{threads}")}
    return own


@dataclass
class Contestant:
    """A peer with one model, ready to take its turns, and what has been measured."""

    peer: str
    worker: Worker
    result: Measured
    medians: list[float] = field(default_factory=list)
    shortest: list[float] = field(default_factory=list)

    def fail(self, reason: Failed) -> None:
        self.result.failure = str(reason)
        self.worker.close()


def prepare(case: Case, peers: list[str], threads: int) -> dict[str, float | Failed]:
    """Makes the files that contestants load, each in its own process: the seconds that took, or why it failed."""
    done: dict[str, float | Failed] = {}
    wanted = ["reference", *dict.fromkeys(p.__name__ for name in peers if (p := PEERS[name].prepare))]
    for what in wanted:
        worker = Worker(environment(threads, case.folder), case.folder / f"{what}.log", PATIENCE)
        try:
            done[what] = worker.ask("prepare", what=what, case=_fields(case))
        except Failed as failure:
            done[what] = failure
        worker.close()
    return done


def _fields(case: Case) -> list[object]:
    return [case.model, case.batch, case.seq, str(case.folder)]


def loaded(case: Case, peer: str, threads: int, prepared: dict[str, float | Failed]) -> Contestant:
    """A contestant that has run its model once and told how wrong the result is."""
    worker = Worker(environment(threads, case.folder), case.folder / f"{peer}{threads}.log", PATIENCE)
    contestant = Contestant(peer, worker, Measured(case.model, threads, peer))
    needs = PEERS[peer].prepare
    cost = None if needs is None else prepared[needs.__name__]
    try:
        if isinstance(cost, Failed):
            raise cost
        seconds = worker.ask("load", peer=peer, case=_fields(case))
        if PEERS[peer].compiles:
            contestant.result.compile_seconds = seconds
        elif needs is not None:
            contestant.result.load_seconds = seconds
        if peer == "oneir":
            contestant.result.compile_seconds = cost
        contestant.result.error = worker.ask("error", case=_fields(case))
    except Failed as failure:
        contestant.fail(failure)
    return contestant


def compare(
    case: Case, peers: list[str], threads: int, rounds: int, prepared: dict[str, float | Failed]
) -> list[Measured]:
    """Runs one model with so many threads in all contestants, in turns."""
    contestants = [loaded(case, peer, threads, prepared) for peer in peers]
    for i in range(rounds):
        # Nobody always follows the same one.
        for contestant in contestants[i % len(contestants) :] + contestants[: i % len(contestants)]:
            if contestant.result.failure is None:
                try:
                    median, shortest = contestant.worker.ask("turn", seconds=0.3)
                except Failed as failure:
                    contestant.fail(failure)
                    continue
                contestant.medians.append(median)
                contestant.shortest.append(shortest)
                time.sleep(0.05)  # threads that wait for more work spin for a while
    for contestant in contestants:
        if contestant.result.failure is None:
            contestant.result.seconds = statistics.median(contestant.medians)
            contestant.result.shortest = min(contestant.shortest)
            contestant.result.peak_bytes = contestant.worker.ask("peak_memory")
            contestant.worker.close()
    return [contestant.result for contestant in contestants]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--rounds", type=int, default=7, help="turns that each contestant gets")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md and docs/benchmarks.png")
    parser.add_argument("--profile", choices=MODELS, help="list the kernels of a model by their time instead")
    return parser.parse_args()


PROFILE = "import sys; from benchmarks.model_profile import profile; print(profile({!r}, {}, {}, {}))"


def main() -> None:
    options = arguments()
    if options.profile:
        for threads in options.threads:
            print(f"{options.profile}, batch {options.batch}, {threads} threads", flush=True)
            code = PROFILE.format(options.profile, options.batch, options.seq, options.rounds)
            subprocess.run([sys.executable, "-c", code], env=environment(threads), check=True)
        return
    results: list[Measured] = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, options.batch, options.seq, Path(folder))
            prepared = prepare(case, options.peers, max(options.threads))
            if isinstance(prepared["reference"], Failed):
                raise prepared["reference"]
            for threads in options.threads:
                measured = compare(case, options.peers, threads, options.rounds, prepared)
                print(table(measured, header=not results), flush=True)
                results += measured
    if options.write_docs:
        print(f"written: {write_docs(results, options.batch, options.seq, options.rounds)}")


if __name__ == "__main__":
    main()
