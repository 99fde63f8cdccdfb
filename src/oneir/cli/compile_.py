"""`oneir compile`: a model as a file that runs with `oneir.runtime` alone."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..ir.instrument import PassTimingInstrument
from ..ir.transform import PassContext
from ..target.target import Target
from .model import add_model_argument, add_target_argument, load_model


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compile",
        help="compile a model to a file",
        description="Compiles a model. The file holds machine code, the program and the weights; `oneir run` and "
        "oneir.runtime.load_module read it.",
    )
    add_model_argument(parser)
    parser.add_argument("-o", "--output", type=Path, help="the file to write; the model's name with .so")
    add_target_argument(parser)
    parser.add_argument("--time-passes", action="store_true", help="show where the time goes; nothing is cached")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..driver.graph import compile_stages

    output = options.output or options.model.with_suffix(".so")
    timing = PassTimingInstrument()
    with progress(f"compiling {options.model.name}", 2 + len(compile_stages)) as step:
        step("reading the model")
        value: Any = load_model(options.model)
        with PassContext(instruments=[timing] if options.time_passes else []):
            start = time.perf_counter()
            for name, stage in compile_stages:
                step(name)
                value = stage(value, Target(options.target))
            seconds = time.perf_counter() - start
        step(f"writing {output}")
        start = time.perf_counter()
        value.export_library(output)
        timing.run_after_stage("public forms and linking", time.perf_counter() - start)
    if options.time_passes:
        print(time_table(timing))
    size = output.stat().st_size
    print(f"{output}: {size / 1e6:.3g} MB, functions {', '.join(value.vm_functions)}, compiled in {seconds:.2f} s")


_STAGES = ("the graph", "schedules", "loops", "code")


def _stage_of(name: str) -> str:
    """The stage of compiling that a pass belongs to."""
    if name == "ApplyDefaultSchedule":
        return "schedules"
    if name in ("writing LLVM IR", "LLVM", "public forms and linking"):
        return "code"
    return "loops" if name.startswith("tir.") or name == "default" else "the graph"


def time_table(timing: PassTimingInstrument) -> str:
    """The seconds that each stage and each of its passes took by itself, how often it ran, and its share.

    Passes that took less than a hundredth of the whole are one line.
    """
    times = timing.own_times()
    total = sum(seconds for _, seconds in times.values()) or 1.0
    lines = [f"{'':<44}{'count':>7}{'seconds':>10}{'share':>9}"]

    def line(name: str, count: int, seconds: float) -> None:
        lines.append(f"{name:<44}{count:>7}{seconds:>10.3f}{seconds / total:>9.1%}")

    for stage in _STAGES:
        passes = {name: entry for name, entry in times.items() if _stage_of(name) == stage}
        line(stage, sum(count for count, _ in passes.values()), sum(seconds for _, seconds in passes.values()))
        shown = {name: entry for name, entry in passes.items() if entry[1] >= total / 100}
        for name, (count, seconds) in sorted(shown.items(), key=lambda item: -item[1][1]):
            line(f"  {name}", count, seconds)
        rest = [entry for name, entry in passes.items() if name not in shown]
        if rest:
            line(f"  {len(rest)} others", sum(count for count, _ in rest), sum(seconds for _, seconds in rest))
    line("total", sum(count for count, _ in times.values()), total)
    return "\n".join(lines)


@contextmanager
def progress(what: str, steps: int) -> Iterator[Any]:
    """A progress bar, where the terminal can show one; calling what it gives begins the next step."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[step]}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=steps, step="")
        begun = False

        def step(name: str) -> None:
            nonlocal begun
            bar.update(task, advance=1 if begun else 0, step=name)
            begun = True

        yield step
