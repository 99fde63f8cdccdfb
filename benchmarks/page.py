"""docs/speed.md: a page that several benchmarks write, each its own section.

A section stands between `<!-- written by python -m benchmarks.NAME ... -->` and `<!-- end -->`; what is around it is
written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from oneir.bench.table import machine

PAGE = Path(__file__).parent.parent / "docs" / "speed.md"


def write_section(command: str, text: str) -> None:
    """Writes what a command found, and on which machine, into its section.

    Raises `ValueError` if the page has no section of the command.
    """
    begin, end = f"<!-- written by python -m {command} -->\n", "<!-- end -->"
    before, found, rest = PAGE.read_text().partition(begin)
    if not found or end not in rest:
        raise ValueError(f"{PAGE} has no section that `python -m {command}` writes; expected the line {begin!r}")
    after = rest.partition(end)[2]
    PAGE.write_text(f"{before}{begin}{machine()}.\n\n{text.strip()}\n{end}{after}")
    print(f"written: {PAGE}")


ABOUT_AS_GOOD = 0.5
"""The part of another's speed that no case of ours may be below."""


def slowest(found: Sequence[tuple[float, str]], whose: str, what: str, head: str, count: int) -> str:
    """The cases that take longest beside another's time, of pairs of a ratio of times and a row of the table `head`."""
    ordered = sorted(found, reverse=True)
    mean = math.exp(sum(math.log(ratio) for ratio, _ in found) / len(found))
    slow = sum(ratio > 1 / ABOUT_AS_GOOD for ratio, _ in found)
    return (
        f"One thread: {mean:.2f} of {whose} time (geometric mean of {len(found)} {what}), {slow} below half of its "
        f"speed. Those that take longest beside it:\n\n{head}\n" + "\n".join(row for _, row in ordered[:count])
    )


def draw_bars(names: Sequence[str], speeds: Mapping[str, Sequence[float]], unit: str, picture: str) -> str:
    """Draws a bar for each name and contestant into a picture beside the page, NaN as none; returns what shows it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1 + 0.3 * len(names)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(speeds)
    for place, (contestant, values) in enumerate(speeds.items()):
        axes.barh(
            [i + (place - (len(speeds) - 1) / 2) * height for i in range(len(names))], values, height, label=contestant
        )
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.legend(fontsize=7)
    figure.savefig(PAGE.with_name(picture), dpi=100)
    return f"![{unit} of each shape]({picture})"
