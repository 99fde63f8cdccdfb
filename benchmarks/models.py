"""Whole models against other compilers and libraries: `python -m benchmarks.models [--models NAME ...]`.

What `oneir bench` does with a file, for the models of the zoo. Printed is a table in Markdown; `--write-docs` writes it
as a page, with a chart, into docs/. `--profile NAME` tells where OneIR's time for one model goes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.report import write_docs
from benchmarks.zoo import MODELS
from oneir.bench.compare import Measured, compare, preparations, prepare, profile
from oneir.bench.contestant import PEERS, Case
from oneir.bench.table import comparison, failures, profiled
from oneir.bench.worker import Failed


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


def show_profile(name: str, options: argparse.Namespace, case: Case) -> None:
    """Prints where OneIR's time for a model goes."""
    case.save_inputs(case.subject().inputs())
    for threads in options.threads:
        found = profile(case, threads, options.rounds)
        print(f"{name}, batch {options.batch}. {profiled(threads, found)}\n", flush=True)


def measure(name: str, options: argparse.Namespace, case: Case, header: bool) -> list[Measured]:
    """Measures all contestants with one model, and prints the rows of each number of threads as soon as it can."""
    prepared = prepare(case, preparations(options.peers), max(options.threads), lambda text: None)
    if isinstance(prepared["reference"], Failed):
        raise prepared["reference"]
    results: list[Measured] = []
    for threads in options.threads:
        rows = compare(name, case, options.peers, threads, options.rounds, prepared, lambda text: None)
        print(comparison(rows, header=header and not results), flush=True)
        results += rows
    return results


def main() -> None:
    options = arguments()
    results: list[Measured] = []
    for name in [options.profile] if options.profile else options.models:
        with tempfile.TemporaryDirectory() as folder:
            case = Case("benchmarks.zoo:Subject", (name, options.batch, options.seq), Path(folder))
            if options.profile:
                show_profile(name, options, case)
            else:
                results += measure(name, options, case, header=not results)
    print(failures(results), end="")
    if options.write_docs and results:
        print(f"written: {write_docs(results, options.batch, options.seq, options.rounds)}")


if __name__ == "__main__":
    main()
