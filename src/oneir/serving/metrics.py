"""Numbers in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How many values were at most as large as each of some bounds."""

    def __init__(self, *bounds: float):
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self._counts[next((i for i, bound in enumerate(self._bounds) if value <= bound), -1)] += 1
        self._sum += value

    def lines(self, name: str, **labels: str) -> Iterator[str]:
        """The lines of its values."""
        totals = list(accumulate(self._counts))
        for bound, total in zip([*map(str, self._bounds), "+Inf"], totals, strict=True):
            yield f"{name}_bucket{_labels({**labels, 'le': bound})} {total}"
        yield f"{name}_sum{_labels(labels)} {self._sum}"
        yield f"{name}_count{_labels(labels)} {totals[-1]}"


def head(name: str, kind: str, what: str) -> Iterator[str]:
    """The lines that say what a name means; `kind` is counter, gauge or histogram."""
    yield from (f"# HELP {name} {what}.", f"# TYPE {name} {kind}")


def line(name: str, value: float, **labels: str) -> str:
    """The line of a value."""
    return f"{name}{_labels(labels)} {value}"


def responses(counts: Mapping[tuple[str, int], int]) -> Iterator[str]:
    """The lines of how many responses there were, by path and status."""
    yield from head("oneir_responses_total", "counter", "Responses")
    for (path, status), count in sorted(counts.items()):
        yield line("oneir_responses_total", count, path=path, status=str(status))


def text(lines: Iterable[str]) -> str:
    """What a server answers with."""
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
