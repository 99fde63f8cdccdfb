"""What was measured, as text: tables in Markdown whose columns are aligned, so that they are read as they stand."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compare import Measured, best_peer
from .contestant import DECODERS, PEERS
from .kernels import Kernel
from .roofline import MachineSpeed

if TYPE_CHECKING:
    from .language_model import Generated

COMPARED = ("Model", "Threads", "Contestant", "Median ms", "Shortest ms", "Best peer / this", "Error")
COMPARED += ("Compile s", "Load s", "Memory MiB")
GENERATED = (
    "Threads",
    "Contestant",
    "Prompt",
    "Prefill token/s",
    "First token ms",
    "Decode token/s",
    "GB/s",
    "Roofline",
)
GENERATED += ("Compile s", "Load s", "Memory MiB")
KERNELS = ("ms", "Share", "Calls", "GFLOP", "MB", "GFLOP/s", "GB/s", "Roofline", "Kernel", "Shapes")


def comparison(results: Sequence[Measured], header: bool = True) -> str:
    """The results of contestants, a row each; without the header, rows that follow others."""
    rows = [_compared(r, best_peer(results, r)) for r in results]
    return table(COMPARED, rows, texts=(0, 2), header=header)


def failures(results: Sequence[Measured]) -> str:
    """Why contestants failed, a line each."""
    failed = [r for r in results if r.failure is not None or r.seconds is None]
    reasons = (" ".join((r.failure or "was not measured").split()) for r in failed)
    return "".join(
        f"{r.model}, {r.threads} thread{'s' * (r.threads > 1)}, {PEERS[r.peer].name} failed: {reason[:500]}\n"
        for r, reason in zip(failed, reasons, strict=True)
    )


def _compared(r: Measured, best: float | None) -> list[str]:
    first = [r.model.ljust(12), str(r.threads), PEERS[r.peer].name]
    if r.failure is not None or r.seconds is None or r.shortest is None:
        return [*first, "failed", *[""] * (len(COMPARED) - 4)]
    return [
        *first,
        digits(r.seconds * 1e3),
        digits(r.shortest * 1e3),
        "" if best is None else f"{best / r.seconds:.2f}",
        "" if r.error is None else f"{r.error:.1e}",
        "" if r.compile_seconds is None else f"{r.compile_seconds:.1f}",
        "" if r.load_seconds is None else f"{r.load_seconds:.2f}",
        "" if r.peak_bytes is None else f"{r.peak_bytes / 2**20:.0f}",
    ]


def generated(results: Sequence[Generated]) -> str:
    """How fast contestants read prompts and generate, a row each, and why some failed."""
    rows = [
        [
            str(r.threads),
            DECODERS[r.peer][0],
            str(r.prompt),
            "failed" if r.prefill_seconds is None else digits(r.prompt / r.prefill_seconds),
            "" if r.prefill_seconds is None else digits(1e3 * r.prefill_seconds),
            "" if r.token_seconds is None else digits(1 / r.token_seconds),
            ""
            if r.token_seconds is None or r.bytes_of_token is None
            else digits(r.bytes_of_token / r.token_seconds / 1e9),
            "" if r.roofline is None else f"{r.roofline:.0%}",
            "" if r.compile_seconds is None else f"{r.compile_seconds:.1f}",
            "" if r.load_seconds is None else f"{r.load_seconds:.2f}",
            "" if r.peak_bytes is None else f"{r.peak_bytes / 2**20:.0f}",
        ]
        for r in results
    ]
    reasons = {(r.threads, r.peer): " ".join(r.failure.split()) for r in results if r.failure is not None}
    failed = [
        f"{DECODERS[peer][0]} failed with {threads} thread{'s' * (threads > 1)}: {reason[:500]}"
        for (threads, peer), reason in reasons.items()
    ]
    return "\n".join([table(GENERATED, rows, texts=(1,)), *([""] if failed else []), *failed])


def kernels(found: Sequence[Kernel]) -> str:
    """The kernels of a model, a row each, and their sum."""
    rows = [
        [
            digits(k.seconds * 1e3),
            f"{k.share:.1%}",
            str(k.calls),
            "" if k.flops is None else digits(k.flops / 1e9),
            "" if k.bytes is None else digits(k.bytes / 1e6),
            "" if k.gflops is None else digits(k.gflops),
            "" if k.gigabytes is None else digits(k.gigabytes),
            "" if k.roofline is None else f"{k.roofline:.0%}",
            k.name,
            " ".join(map(_short, k.shapes)),
        ]
        for k in found
    ]
    whole = digits(sum(k.seconds for k in found) * 1e3), "100%", str(sum(k.calls for k in found))
    return table(KERNELS, [*rows, [*whole, *[""] * 5, "all", ""]], texts=(8, 9))


def profiled(threads: int, profile: dict[str, Any]) -> str:
    """What `kernels.profile` found, with the limits of the machine that the table's `Roofline` refers to."""
    speed, run = MachineSpeed(**profile["machine"]), profile["footprint"]
    memory = (
        "" if run["allocated"] is None else f" and {digits(run['allocated'] / 2**20)} MiB of intermediates and results"
    )
    return (
        f"OneIR with {threads} thread{'s' * (threads > 1)}: {run['kernels']} calls of kernels{memory}.\n"
        f"The machine computes {digits(speed.flops / 1e9)} GFLOP/s and reads {digits(speed.bandwidth / 1e9)} GB/s.\n\n"
        + kernels([Kernel(**kernel) for kernel in profile["kernels"]])
    )


def _short(shape: str) -> str:
    """A shape without its dtype, where that is float32: "float32[1, 3, 8, 8]" as "1x3x8x8"."""
    dtype, _, extents = shape.rstrip("]").partition("[")
    text = extents.replace(", ", "x") or "scalar"
    return text if dtype == "float32" else f"{dtype}:{text}"


def digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.{2 if value >= 1 else 4}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[int], header: bool = True) -> str:
    """Rows in Markdown; columns of `texts` are aligned to the left, those of numbers to the right.

    The last column is as wide as each of its cells, so that long texts there do not make all lines long.
    """
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    widths[-1] = max(len(head[-1]), 4)
    lines = [
        [c.ljust(w) if i in texts else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))] for r in rows
    ]
    if header:
        rule = ["-" * w if i in texts else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
        named = [c.ljust(w) if i in texts else c.rjust(w) for i, (c, w) in enumerate(zip(head, widths, strict=True))]
        lines = [named, rule, *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """The processor, how many of them, and the system."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {count} logical processors, {platform.system()}"
