"""What `benchmarks.models` measured, as a page in Markdown and a chart."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks.zoo import MODELS
from oneir.bench.compare import Measured, best_peer
from oneir.bench.contestant import PEERS
from oneir.bench.table import digits, machine, table

DOCS = Path(__file__).parent.parent / "docs"

PAGE = """# Whole models

{machine}, {date}. Python {python}, {versions}.

Batch {batch}, sequences of {seq} tokens, float32, random seeded weights (the two classifiers of clothes are trained).
Each contestant runs in a process of its own, and the processes take turns, {rounds} each, so that a slow minute of the
machine hits all of them; a time is the median. PyTorch's models come from `transformers` {transformers}; ONNX Runtime
and OpenVINO run what `torch.onnx` exports. `python -m benchmarks.models --models all --write-docs` makes this page.

{summaries}

![OneIR's time over that of the best other]({chart})

*OneIR / best* is OneIR's time over that of the fastest other contestant: below 1 is faster.

{tables}

## What it takes to compile and to load

- *Error*: the largest difference from PyTorch in float64, over the largest element.
- *Compile*: from PyTorch's program to a file, with nothing cached, in wall time. ONNX Runtime and OpenVINO compile when
  they load; exporting to ONNX is not counted.
- *Load*: from the file to the first result.
- *Memory*: the most that the process had, libraries included.

{costs}

## The models

| Model | What it is |
| --- | --- |
{models}
"""


def write_docs(results: Sequence[Measured], batch: int, seq: int, rounds: int, summaries: Sequence[str]) -> Path:
    """Writes the page and its chart into docs/; gives the page's path. `summaries` are sentences above the chart."""
    page, picture = DOCS / "benchmarks.md", DOCS / "benchmarks.png"
    draw(results, picture)
    packages = ["torch", "onnxruntime", "openvino", "numpy", "llvmlite"]
    counts = sorted({r.threads for r in results})
    page.write_text(
        PAGE.format(
            machine=machine(),
            date=date.today().isoformat(),
            python=platform.python_version(),
            versions=", ".join(f"{package} {version(package)}" for package in packages),
            transformers=version("transformers"),
            batch=batch,
            seq=seq,
            rounds=rounds,
            chart=picture.name,
            summaries="\n".join(f"- {text}" for text in summaries),
            tables="\n\n".join(f"## {_threads(n)}\n\nMilliseconds.\n\n{times(results, n)}" for n in counts),
            costs=costs(results, max(counts)),
            models="\n".join(
                f"| {name} | {MODELS[name].description} |" for name in dict.fromkeys(r.model for r in results)
            ),
        )
    )
    return page


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _of(results: Sequence[Measured], threads: int) -> dict[str, dict[str, Measured]]:
    """The results with a number of threads, by model and contestant."""
    found: dict[str, dict[str, Measured]] = {}
    for r in results:
        if r.threads == threads:
            found.setdefault(r.model, {})[r.peer] = r
    return found


def times(results: Sequence[Measured], threads: int) -> str:
    """Each contestant's median milliseconds, a row for each model."""
    peers = list(dict.fromkeys(r.peer for r in results))
    rows = []
    for model, by_peer in _of(results, threads).items():
        seconds = [by_peer[peer].seconds if peer in by_peer else None for peer in peers]
        ours = by_peer.get("oneir")
        best = best_peer(results, ours) if ours is not None and ours.seconds else None
        ratio = "" if best is None or ours is None else f"{(ours.seconds or math.nan) / best:.2f}"
        rows.append([model, *("failed" if s is None else digits(s * 1e3) for s in seconds), ratio])
    return table(["Model", *(PEERS[peer].name for peer in peers), "OneIR / best"], rows, texts=(0,))


def costs(results: Sequence[Measured], threads: int) -> str:
    """Errors, seconds to compile and to load, and MiB of each model, beside ONNX Runtime and OpenVINO."""
    others = [peer for peer in ("onnxruntime", "openvino") if any(r.peer == peer for r in results)]
    shown = ["oneir", *others]
    head = ["Model", "Compile s"]
    for what in ("Load s", "MiB", "Error"):
        head += [f"{what}, {PEERS[peer].name}" for peer in shown]
    rows = []
    for model, by_peer in _of(results, threads).items():
        cells = [by_peer.get(peer, Measured(model, threads, peer)) for peer in shown]
        row = [model, _number(cells[0].compile_seconds, ".1f")]
        row += [_number(c.load_seconds, ".2f") for c in cells]
        row += [_number(None if c.peak_bytes is None else c.peak_bytes / 2**20, ".0f") for c in cells]
        row += [_number(c.error, ".1e") for c in cells]
        rows.append(row)
    return table(head, rows, texts=(0,))


def _number(value: float | None, how: str) -> str:
    return "" if value is None else format(value, how)


def draw(results: Sequence[Measured], path: Path) -> None:
    """A panel for each number of threads, with a line for each model: times over that of the fastest other contestant.

    Models are in the order of OneIR's ratio with the most threads, the shortest time on top.
    """
    from matplotlib.figure import Figure

    counts = sorted({r.threads for r in results})
    peers = list(dict.fromkeys(r.peer for r in results))
    ratios = {n: _ratios(results, n) for n in counts}
    last = ratios[counts[-1]]
    models = sorted(last, key=lambda model: last[model].get("oneir", math.inf))
    figure = Figure(figsize=(4.8 * len(counts) + 1.2, 1.5 + 0.19 * len(models)), layout="constrained")
    panels = figure.subplots(1, len(counts), squeeze=False, sharey=True)[0]
    colors = {peer: f"C{i}" for i, peer in enumerate(peers)}
    for threads, axes in zip(counts, panels, strict=True):
        for peer in reversed(peers):  # OneIR's on top of the others
            found = [(ratios[threads][m][peer], y) for y, m in enumerate(models) if peer in ratios[threads].get(m, {})]
            size = 34 if peer == "oneir" else 16
            x, y = [ratio for ratio, _ in found], [place for _, place in found]
            axes.scatter(x, y, size, colors[peer], label=PEERS[peer].name, zorder=3 if peer == "oneir" else 2)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        ticks = [0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlim(0.2, 10)
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.grid(axis="y", linewidth=0.3)
        axes.set_title(_threads(threads))
        axes.set_xlabel("time over that of the best other contestant, lower is better", fontsize=8)
    panels[0].set_yticks(range(len(models)), models, fontsize=7)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=len(peers))
    figure.supxlabel(f"{machine()}, {date.today().isoformat()}", fontsize=8)
    figure.savefig(path, dpi=110)


def _ratios(results: Sequence[Measured], threads: int) -> dict[str, dict[str, float]]:
    """Times over that of the fastest contestant other than OneIR, by model and contestant."""
    return {
        model: {peer: r.seconds / best for peer, r in by_peer.items() if r.seconds and (best := best_peer(results, r))}
        for model, by_peer in _of(results, threads).items()
    }
