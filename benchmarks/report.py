"""What `benchmarks.models` measured, as a page in Markdown and a chart."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks.zoo import MODELS
from oneir.bench.compare import Measured, best_peer
from oneir.bench.contestant import PEERS
from oneir.bench.table import comparison, machine

DOCS = Path(__file__).parent.parent / "docs"

PAGE = """# Whole models

{machine}. Python {python}, {versions}.

Batch {batch}, sequences of {seq} tokens, float32, random seeded weights (the two classifiers of clothes are trained).
Each contestant runs in a process of its own, and the processes take turns, {rounds} each, so that a slow minute of the
machine hits all of them. PyTorch's models come from `transformers` {transformers}; ONNX Runtime and OpenVINO run what
`torch.onnx` exports. `python -m benchmarks.models --write-docs` makes this page.

![Speed relative to the best of the others]({chart})

- *Best peer / this*: the time of the fastest contestant other than OneIR, over this one's. Above 1 is faster.
- *Error*: the largest difference from PyTorch in float64, over the largest element.
- *Compile*: from PyTorch's program to a file or a function, with nothing cached. ONNX Runtime and OpenVINO compile when
  they load; exporting to ONNX is not counted.
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
            table=comparison(results),
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
            bars = axes.bar(where, speeds, width, label=PEERS[peer].name)
            axes.bar_label(bars, fmt="%.2f", fontsize=6, padding=1)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(models)), models)
        axes.set_ylabel("speed, higher is better\n(the best peer = 1)")
        axes.set_title(f"{threads} thread{'s' * (threads > 1)}")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(peers))
    figure.supxlabel(f"{machine()}, {date.today().isoformat()}", fontsize=8)
    figure.savefig(path, dpi=110)
