"""Where OneIR's time for a model goes, kernel by kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..codegen.program.bytecode import cost_of
from ..driver.graph import build_graph, lower_graph
from ..ir.expr import Var, const
from ..ir.module import IRModule
from ..runtime.device import cpu
from ..runtime.profiling import Count, Duration, Metric, Report
from ..runtime.tensor import tensor
from ..runtime.vm.footprint import footprint
from ..runtime.vm.machine import VirtualMachine
from ..runtime.vm.profile import of_kernels
from ..runtime.vm.program import Cost
from ..target.target import Target
from ..tir.function import PrimFunc
from ..tir.stmt_functor import substitute
from .roofline import MachineSpeed, machine_speed


class Kernel(NamedTuple):
    """Calls of one kernel with tensors of the same shapes, in one run of the model. Times are in seconds."""

    name: str
    shapes: tuple[str, ...]
    calls: int
    seconds: float
    share: float
    """Of the time of all kernels."""
    flops: float | None
    """Operations; None, as for what follows, where their number is unknown."""
    bytes: float | None
    """Bytes read and written, each tensor of a call once."""
    gflops: float | None
    """Billions of operations a second."""
    gigabytes: float | None
    """Billions of bytes a second."""
    roofline: float | None
    """Share of the attainable speed of this machine; see `MachineSpeed.share`."""


def profile(graph: IRModule, inputs: Sequence[np.ndarray], rounds: int) -> dict[str, Any]:
    """The kernels of a model, measured in this process, what the machine can do, and what a run takes, as JSON."""
    executable = build_graph(graph, "llvm")
    machine, tensors = VirtualMachine(executable, cpu()), [tensor(x) for x in inputs]
    speed = machine_speed()
    reports = [machine.profile("main", *tensors) for _ in range(rounds)]
    # Kernels of unknown extents have no costs; these are worked out for the extents of the calls.
    known = all(_known_cost(call) is not None for call in of_kernels(reports).calls)
    loops = IRModule() if known else lower_graph(graph, Target("llvm"), None, "default")
    return {
        "machine": speed._asdict(),
        "footprint": footprint(executable.program)._asdict(),
        "kernels": [kernel._asdict() for kernel in kernels_of(reports, loops, speed)],
    }


def kernels_of(reports: Sequence[Report], loops: IRModule, speed: MachineSpeed) -> list[Kernel]:
    """The kernels that several profiles of one run measured, slowest first; see `of_kernels`.

    `loops` has those whose costs are not known.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Mapping[str, Metric]]] = {}
    for call in of_kernels(reports).calls:
        groups.setdefault((str(call["Name"]), _shapes(call)), []).append(call)
    times = [sum(map(_seconds, calls)) for calls in groups.values()]
    found = []
    for ((name, shapes), calls), seconds in zip(groups.items(), times, strict=True):
        share, cost = seconds / sum(times), _cost(calls[0], loops)
        if cost is None:
            found.append(Kernel(name, shapes, len(calls), seconds, share, None, None, None, None, None))
            continue
        flops, moved = cost.flops * len(calls), cost.bytes * len(calls)
        rates = flops / seconds / 1e9, moved / seconds / 1e9, speed.share(flops, moved, seconds)
        found.append(Kernel(name, shapes, len(calls), seconds, share, flops, moved, *rates))
    return sorted(found, key=lambda kernel: -kernel.seconds)


def _seconds(call: Mapping[str, Metric]) -> float:
    duration = call["Duration (us)"]
    assert isinstance(duration, Duration)
    return duration.microseconds / 1e6


def _shapes(call: Mapping[str, Metric]) -> tuple[str, ...]:
    """The shape of each tensor argument: `float32[2, 3]`."""
    return tuple(re.findall(r"\w+\[[^]]*\]", str(call.get("Argument Shapes", ""))))


def _known_cost(call: Mapping[str, Metric]) -> Cost | None:
    match call:
        case {"FLOP": Count(value=flops), "Bytes": Count(value=moved)}:
            return Cost(flops, moved)
    return None


def _cost(call: Mapping[str, Metric], loops: IRModule) -> Cost | None:
    """The cost of a call; for a kernel of symbolic extents, with the extents of the call."""
    cost, func = _known_cost(call), {v.name_hint: f for v, f in loops.functions.items()}.get(str(call["Name"]))
    if cost is not None or not isinstance(func, PrimFunc):
        return cost
    values: dict[Var, Any] = {}
    tensors = [func.buffer_map[param] for param in func.params if param in func.buffer_map]
    for buffer, text in zip(tensors, _shapes(call), strict=True):
        extents = [int(e) for e in text.partition("[")[2].rstrip("]").split(", ") if e]
        for declared, extent in zip(buffer.shape, extents, strict=True):
            if isinstance(declared, Var):
                values[declared] = const(extent, declared.dtype)
    return cost_of(substitute(func, values))
