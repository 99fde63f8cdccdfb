"""How big things are: elements, loops, blocks of threads."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr
from ...target.target import Target
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import For

# How many threads of a block a rule may share out among loops; 64 elsewhere.
_SUGGESTED_THREADS = {"cuda": 1024, "rocm": 256, "metal": 256, "opencl": 256}
_THREADS_FOR_DYNAMIC_LOOP = 32


def get_bytes(dtype: DataType | str) -> int:
    """The bytes of one element of a dtype; a part of a byte counts as a byte."""
    return DataType(dtype).itemsize


def get_extent(sch: Schedule, loop_rv: LoopRV) -> int | PrimExpr:
    """The extent of a loop, a Python int where it is a number."""
    extent = sch.get(loop_rv).extent
    return extent.value if isinstance(extent, IntImm) else extent


def auto_vectorize(sch: Schedule, loop: LoopRV, max_vec: int) -> None:
    """Makes vectors of at most `max_vec` elements of a loop; leaves one of symbolic extent alone."""
    extent = get_extent(sch, loop)
    if isinstance(extent, int):
        sch.vectorize(loop if extent <= max_vec else sch.split(loop, [None, max_vec])[-1])


def max_threads_per_block(target: Target) -> int:
    """The most threads in a block: what the target says, or 1024 for CUDA and 256 elsewhere."""
    for name in ("max_threads_per_block", "max_num_threads"):
        if target.attrs.get(name) is not None:
            return int(target.attrs[name])
    return 1024 if target.kind.name == "cuda" else 256


def suggest_threads_per_block(
    target: Target, loops: Sequence[For], max_threads_for_dynamic_loop: int = _THREADS_FOR_DYNAMIC_LOOP
) -> list[int]:
    """Threads for each of several loops: powers of two, which multiply to no more than the target's block.

    Loops of known extent come first and get no more threads than steps. Those of symbolic extent share the rest, at
    most `max_threads_for_dynamic_loop` each; what is then left goes to the first of them.
    """
    left = _SUGGESTED_THREADS.get(target.kind.name, 64)
    suggested = [0] * len(loops)
    dynamic = []
    for position, loop in enumerate(loops):
        if isinstance(loop.extent, IntImm):
            suggested[position] = _power_of_two(min(loop.extent.value, left))
            left //= suggested[position]
        else:
            dynamic.append(position)
    for position in dynamic:
        suggested[position] = _power_of_two(min(max_threads_for_dynamic_loop, left))
        left //= suggested[position]
    if dynamic:
        suggested[dynamic[0]] *= left
    return suggested


def _power_of_two(most: int) -> int:
    """The largest power of two up to a number, at least 1."""
    return 1 << max(most.bit_length() - 1, 0)
