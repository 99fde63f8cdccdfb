"""What commands print with: tables, sizes, colours where a terminal shows them, and the progress of long work. What
several of them read: numbers, ports and output files.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..runtime.library import expect_directory_of


def table(rows: Sequence[Sequence[object]], align: str, indent: str = "") -> str:
    """Rows as lines with aligned columns; `align` has `<` or `>` for each column. Nothing pads the last column."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(align))] if cells else []
    lines = []
    for row in cells:
        parts = [f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)]
        lines.append((indent + "  ".join(parts)).rstrip())
    return "\n".join(lines)


def size_text(size: float) -> str:
    """A number of bytes, as people read it: `814 kB`."""
    for unit in ("bytes", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def time_text(milliseconds: float) -> str:
    """A time, as people read it: `0.0123 ms`, `1.5 s`."""
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:.3g} s"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number and its noun: `1 function`, `2 functions`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def print_code(text: str, language: str) -> None:
    """Prints the text of a program, coloured on a terminal; `language` is one that Pygments knows."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    # Plain text keeps the terminal's own colour; what is wider than the terminal goes on in its next line.
    Console().print(Syntax("", language, theme="ansi_dark").highlight(text), soft_wrap=True, end="")


def positive(text: str) -> int:
    """The type of an argument that is a number from 1 on. Raises `ArgumentTypeError`."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return int(text)


def natural(text: str) -> int:
    """The type of an argument that is a number from 0 on. Raises `ArgumentTypeError`."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, found {text!r}")
    return int(text)


def port(text: str) -> int:
    """The type of an argument that is a port. Raises `ArgumentTypeError`."""
    if not (text.isascii() and text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, found {text!r}")
    return int(text)


def expect_directories_of(*paths: Path | None) -> None:
    """Raises `LibraryError` for a file to be written whose directory does not exist: before the work is done for it."""
    for path in paths:
        if path is not None:
            expect_directory_of(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """While a file is written: errors of the system, such as that of a full disk, name it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


@contextmanager
def progress(what: str, steps: int, *, between: bool = False) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, if that is a terminal; calling what it gives begins the next step.

    It is drawn when a step begins, and each second, since it shows how many there were: terminals may be recorded.

    With `between`, nothing is drawn but between steps, so that it takes no time from what is measured in them.
    """
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[step]}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, auto_refresh=not between, refresh_per_second=1) as bar:
        task = bar.add_task(what, total=steps, step="")
        begun, drawn = False, 0.0

        def step(name: str) -> None:
            nonlocal begun, drawn
            bar.update(task, advance=1 if begun else 0, step=name)
            begun = True
            if time.monotonic() - drawn > 0.1:
                bar.refresh()
                drawn = time.monotonic()

        yield step
