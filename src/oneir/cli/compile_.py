"""`oneir compile`: a model as a file that runs with `oneir.runtime` alone."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..driver.graph import compile_stages

    output = options.output or options.model.with_suffix(".so")
    with progress(f"compiling {options.model.name}", 2 + len(compile_stages)) as step:
        step("reading the model")
        value: Any = load_model(options.model)
        start = time.perf_counter()
        for name, stage in compile_stages:
            step(name)
            value = stage(value, Target(options.target))
        seconds = time.perf_counter() - start
        step(f"writing {output}")
        value.export_library(output)
    size = output.stat().st_size
    print(f"{output}: {size / 1e6:.3g} MB, functions {', '.join(value.vm_functions)}, compiled in {seconds:.2f} s")


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
