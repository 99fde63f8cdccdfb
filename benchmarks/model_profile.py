"""Where the time of a model goes, kernel by kernel: what `python -m benchmarks.models --profile NAME` prints."""

from __future__ import annotations

import statistics
from typing import NamedTuple

import numpy as np

import oneir
from benchmarks.zoo import MODELS, exported
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.vm.profile import Report


class Kernel(NamedTuple):
    """Calls of one kernel with tensors of the same shapes, in one run of the model. Times are in seconds."""

    name: str
    shapes: str
    count: int
    seconds: float
    gflops: float | None
    """Billions of floating-point operations a second; None where their number is unknown."""
    gigabytes: float | None
    """Billions of bytes read and written a second."""


def kernels_of(reports: list[Report]) -> list[Kernel]:
    """The kernels that several profiles of one call measured, each with its median time; slowest first.

    What the virtual machine does by itself, and native programs do not, is left out.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for i, call in enumerate(reports[0].calls):
        if not call.name.startswith("vm.builtin."):
            groups.setdefault((call.name, call.shapes), []).append(i)
    found = []
    for (name, shapes), calls in groups.items():
        seconds = statistics.median(sum(report.calls[i].duration for i in calls) for report in reports)
        costs = [cost for i in calls if (cost := reports[0].calls[i].cost) is not None]
        known = len(costs) == len(calls)
        found.append(
            Kernel(
                name,
                " ".join(map(_short, shapes)),
                len(calls),
                seconds,
                sum(cost.flops for cost in costs) / seconds / 1e9 if known else None,
                sum(cost.bytes for cost in costs) / seconds / 1e9 if known else None,
            )
        )
    return sorted(found, key=lambda kernel: -kernel.seconds)


def _short(shape: str) -> str:
    """A shape without its dtype, where that is float32: "float32[1, 3, 8, 8]" as "1x3x8x8"."""
    dtype, _, extents = shape.rstrip("]").partition("[")
    text = extents.replace(", ", "x") or "scalar"
    return text if dtype == "float32" else f"{dtype}:{text}"


def profile(name: str, batch: int, seq: int, rounds: int) -> str:
    """The table of a model's kernels. How many threads run is the process's affair."""
    module, inputs = MODELS[name].make(batch, seq)
    mod = from_exported_program(exported(module, inputs), unwrap_unit_return_tuple=True)
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    arguments = [oneir.runtime.tensor(np.ascontiguousarray(x.numpy())) for x in inputs]
    kernels = kernels_of([machine.profile("main", *arguments) for _ in range(rounds)])
    total = sum(kernel.seconds for kernel in kernels)
    lines = [f"{'ms':>9} {'share':>6} {'count':>5} {'GFLOP/s':>8} {'GB/s':>7}  kernel, shapes"]
    for kernel in kernels:
        rates = [f"{rate:.1f}" if rate else "" for rate in (kernel.gflops, kernel.gigabytes)]
        lines.append(
            f"{kernel.seconds * 1e3:9.3f} {kernel.seconds / total:6.1%} {kernel.count:5} {rates[0]:>8} {rates[1]:>7}"
            f"  {kernel.name}  {kernel.shapes}"
        )
    lines.append(f"{total * 1e3:9.3f} {1:6.1%} {sum(k.count for k in kernels):5}  all")
    return "\n".join(lines)
