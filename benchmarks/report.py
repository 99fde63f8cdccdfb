"""What `benchmarks.models` measured, as a table, a page in Markdown and a chart."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import PEERS
from benchmarks.zoo import MODELS

DOCS = Path(__file__).parent.parent / "docs"


@dataclass
class Measured:
    """One contestant with one model. Times are in seconds; what does not apply is None."""

    model: str
    threads: int
    peer: str
    seconds: float | None = None
    shortest: float | None = None
    error: float | None = None
    compile_seconds: float | None = None
    load_seconds: float | None = None
    peak_bytes: int | None = None
    failure: str | None = None


HEADER = ("Model", "Threads", "Contestant", "Median ms", "Shortest ms", "Best peer / this", "Error")
HEADER += ("Compile s", "Load s", "Memory MiB")


def table(results: Sequence[Measured], header: bool = True) -> str:
    """The results as rows in Markdown."""
    lines = []
    if header:
        lines = [_row(HEADER), _row(["---"] * 3 + ["---:"] * (len(HEADER) - 3))]
    return "\n".join([*lines, *(_row(_cells(r, best_peer(results, r))) for r in results)])


def best_peer(results: Sequence[Measured], of: Measured) -> float | None:
    """The shortest median of another contestant than OneIR for the same model and threads."""
    same = [r for r in results if (r.model, r.threads) == (of.model, of.threads) and r.peer != "oneir"]
    return min((r.seconds for r in same if r.seconds is not None), default=None)


def _cells(r: Measured, best: float | None) -> list[str]:
    first = [r.model, str(r.threads), PEERS[r.peer].name]
    if r.failure is not None or r.seconds is None or r.shortest is None:
        reason = " ".join((r.failure or "was not measured").replace("|", "/").split())
        return [*first, "failed", reason[:200], *[""] * (len(HEADER) - 5)]
    return [
        *first,
        _digits(r.seconds * 1e3),
        _digits(r.shortest * 1e3),
        "" if best is None else f"{best / r.seconds:.2f}",
        "" if r.error is None else f"{r.error:.1e}",
        "" if r.compile_seconds is None else f"{r.compile_seconds:.1f}",
        "" if r.load_seconds is None else f"{r.load_seconds:.2f}",
        "" if r.peak_bytes is None else f"{r.peak_bytes / 2**20:.0f}",
    ]


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.{2 if value >= 1 else 4}f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """The processor, how many of them, and the system."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {count} logical processors, {platform.system()}"


PAGE = """# Whole models

{machine}. Python {python}, {versions}.

Batch {batch}, sequences of {seq} tokens, float32, random seeded weights (the two classifiers of clothes are trained).
Each contestant runs in a process of its own, and the processes take turns, {rounds} each, so that a slow minute of the
machine hits all of them. PyTorch's models come from `transformers` {transformers}; ONNX Runtime and OpenVINO run what
`torch.onnx` exports. `python -m benchmarks.models --write-docs` makes this page.

![Speed relative to the best of the others]({chart})

- *Best peer / this*: the time of the fastest contestant other than OneIR, over this one's. Above 1 is faster.
- *Error*: the largest difference from PyTorch in float64, over the largest element.
- *Compile*: from PyTorch's program to a file or a function, with no cache. ONNX Runtime and OpenVINO compile when they
  load; exporting to ONNX is not counted.
- *Load*: from the file to the first result.
- *Memory*: the most that the process had, libraries included.

{table}

| Model | What it is |
| --- | --- |
{models}
"""


def write_docs(results: Sequence[Measured], batch: int, seq: int, rounds: int) -> Path:
    """Writes the page and its chart into docs/; gives the page's path."""
    page, picture = DOCS / "benchmarks.md", DOCS / "benchmarks.png"
    draw(results, picture)
    packages = ["torch", "onnxruntime", "openvino", "numpy", "llvmlite"]
    page.write_text(
        PAGE.format(
            machine=machine(),
            python=platform.python_version(),
            versions=", ".join(f"{package} {version(package)}" for package in packages),
            transformers=version("transformers"),
            batch=batch,
            seq=seq,
            rounds=rounds,
            chart=picture.name,
            table=table(results),
            models="\n".join(
                f"| {name} | {MODELS[name].description} |" for name in dict.fromkeys(r.model for r in results)
            ),
        )
    )
    return page


def draw(results: Sequence[Measured], path: Path) -> None:
    """A chart for each number of threads: bars of speed, where 1 is the fastest contestant other than OneIR."""
    from matplotlib.figure import Figure

    counts = sorted({r.threads for r in results})
    models = list(dict.fromkeys(r.model for r in results))
    peers = list(dict.fromkeys(r.peer for r in results))
    figure = Figure(figsize=(max(7, 1.5 + 1.25 * len(models)), 0.6 + 2.9 * len(counts)), layout="constrained")
    width = 0.8 / len(peers)
    for threads, axes in zip(counts, figure.subplots(len(counts), 1, squeeze=False)[:, 0], strict=True):
        for place, peer in enumerate(peers):
            shown = {r.model: r for r in results if r.threads == threads and r.peer == peer and r.seconds}
            speeds = [(best_peer(results, r) or 0) / (r.seconds or 1) for r in shown.values()]
            where = [models.index(model) + (place - (len(peers) - 1) / 2) * width for model in shown]
            axes.bar(where, speeds, width, label=PEERS[peer].name)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(models)), models)
        axes.set_ylabel("speed, best peer = 1")
        axes.set_title(f"{threads} thread{'s' * (threads > 1)}")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(peers))
    figure.savefig(path, dpi=110)
