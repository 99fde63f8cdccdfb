"""Whole models against other compilers and libraries: `python -m benchmarks.models [--models NAME ...]`.

What `oneir bench` does with a file, for models of the zoo: eight of them, or with `--models all` some fifty. Printed is
a table in Markdown, row by row as it is measured, and at the end the mean of OneIR's times over those of the best
others; `--write-docs` writes the table as a page, with a chart, into docs/. `--keep FILE` also writes each row into a
file as it comes, and takes from there what an earlier run with the same batch, length and rounds has measured.
`--profile NAME` tells where OneIR's time for one model goes.

With `--isa avx2` nobody is to use more than AVX2: OneIR compiles for `llvm -mcpu=haswell`, and variables tell oneDNN,
which PyTorch and OpenVINO compute with, MKL, and PyTorch's own kernels. ONNX Runtime has no switch: it looks at the
processor, so its figures are those of all that the processor can do. `--write-docs` then writes the table into
docs/speed.md. `--dtype bfloat16` compares models whose weights and values are that; ONNX Runtime lacks most operators
for it. Errors are from float32 weights; its table is a section of docs/speed.md, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.page import write_section
from benchmarks.report import write_docs
from benchmarks.zoo import FEW, MODELS
from oneir.bench.compare import Measured, best_peer, compare, preparations, prepare, profile
from oneir.bench.contestant import PEERS, Case
from oneir.bench.table import comparison, failures, profiled
from oneir.bench.worker import Failed

HELD_TO = {
    "avx2": (
        "llvm -mcpu=haswell",
        {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    ),
}
"""Instruction sets: the target of OneIR, and the variables that tell others."""


DTYPES = ("float32", "bfloat16", "float16")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=["all", *MODELS], default=list(FEW))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of weights, and of what is computed")
    parser.add_argument("--seq", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--rounds", type=int, default=7, help="turns that each contestant gets")
    parser.add_argument(
        "--isa", choices=HELD_TO, help="the instructions that contestants are held to, where they can be"
    )
    parser.add_argument("--keep", type=Path, metavar="FILE", help="what is measured, a line of JSON for each row")
    parser.add_argument("--write-docs", action="store_true", help="write the page, or the section of it, in docs/")
    parser.add_argument("--profile", choices=MODELS, help="list the kernels of a model by their time instead")
    return parser.parse_args()


def show_profile(name: str, options: argparse.Namespace, case: Case) -> None:
    """Prints where OneIR's time for a model goes."""
    case.save_inputs(case.subject().inputs())
    for threads in options.threads:
        found = profile(case, threads, options.rounds)
        print(f"{name}, batch {options.batch}. {profiled(threads, found)}\n", flush=True)


class Kept:
    """Rows in a file, of which a run that was broken off leaves those that it has measured."""

    def __init__(self, path: Path | None, options: argparse.Namespace):
        self.path, self.how = path, [options.batch, options.seq, options.rounds]
        if options.isa:
            self.how.append(options.isa)
        if options.dtype != "float32":
            self.how.append(options.dtype)
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        found = [json.loads(line) for line in lines]
        self.rows = [Measured(**row["measured"]) for row in found if row["how"] == self.how]

    def of(self, model: str, threads: int, peers: Sequence[str]) -> list[Measured]:
        """The rows of a model, those of all peers or none."""
        rows = {r.peer: r for r in self.rows if (r.model, r.threads) == (model, threads)}
        return [rows[peer] for peer in peers] if set(peers) <= set(rows) else []

    def add(self, rows: Sequence[Measured]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                for row in rows:
                    file.write(json.dumps({"how": self.how, "measured": dataclasses.asdict(row)}) + "\n")


def measure(name: str, options: argparse.Namespace, case: Case, kept: Kept, header: bool) -> list[Measured]:
    """Measures all contestants with one model, and prints the rows of each number of threads as soon as it can."""
    prepared = None
    results: list[Measured] = []
    for threads in options.threads:
        rows = kept.of(name, threads, options.peers)
        if not rows:
            if prepared is None:
                prepared = prepare(case, preparations(options.peers), max(options.threads), lambda text: None)
                if isinstance(prepared["reference"], Failed):
                    raise prepared["reference"]
            rows = compare(name, case, options.peers, threads, options.rounds, prepared, lambda text: None)
            kept.add(rows)
        print(comparison(rows, header=header and not results), flush=True)
        results += rows
    return results


def summary(results: Sequence[Measured], threads: int) -> str:
    """OneIR's times over those of the best others: their geometric mean, how many are shorter, and the longest."""
    ours = [r for r in results if r.peer == "oneir" and r.threads == threads]
    ratios = {r.model: r.seconds / best for r in ours if r.seconds and (best := best_peer(results, r))}
    counted = f"{threads} thread{'s' * (threads > 1)}"
    if not ratios:
        return f"{counted}: nothing to compare"
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    longest = ", ".join(f"{m} {ratios[m]:.2f}" for m in sorted(ratios, key=ratios.__getitem__, reverse=True)[:8])
    shorter = sum(ratio < 1 for ratio in ratios.values())
    failed = len(ours) - len(ratios)
    return (
        f"{counted}: {mean:.2f} of the best other's time (geometric mean of {len(ratios)} models, "
        f"{failed} without figures), shorter for {shorter}; the most: {longest}"
    )


def main() -> None:
    options = arguments()
    target, variables = HELD_TO[options.isa] if options.isa else ("llvm", {})
    os.environ.update(variables)  # which the contestants' processes inherit
    section = [f"--isa {options.isa}"] * bool(options.isa) + [f"--dtype {options.dtype}"] * (options.dtype != "float32")
    kept = Kept(options.keep, options)
    results: list[Measured] = []
    models = list(MODELS) if "all" in options.models else options.models
    for name in [options.profile] if options.profile else models:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(
                "benchmarks.zoo:Subject", (name, options.batch, options.seq, options.dtype), Path(folder), target
            )
            if options.profile:
                show_profile(name, options, case)
                continue
            try:
                results += measure(name, options, case, kept, header=not results)
            except Failed as error:
                print(f"{name}: PyTorch itself does not run it: {error}", flush=True)
    print(failures(results), end="")
    summaries = [summary(results, threads) for threads in options.threads if results]
    print("\n".join(summaries))
    if options.write_docs and results and section:
        told = " ".join(f"{name}={value}" for name, value in variables.items())
        held = f"OneIR for `{target}`, the others with `{told}`; " if told else ""
        how = f"{held}{options.rounds} rounds.\n\n{comparison(results)}"
        write_section(f"benchmarks.models {' '.join(section)} --write-docs", how)
    elif options.write_docs and results:
        print(f"written: {write_docs(results, options.batch, options.seq, options.rounds, summaries)}")


if __name__ == "__main__":
    main()
