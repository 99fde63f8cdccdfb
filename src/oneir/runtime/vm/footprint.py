"""Kernel calls, operations and bytes of one run of a compiled graph, without running it.

footprint(relax.build(mod, "llvm").program)   # Footprint(kernels=28, flops=663040.0, bytes=218968.0, allocated=12288)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..dtype import numpy_dtype
from ..error import InvalidValue, NotRegistered
from ..object import ShapeTuple
from .program import Arg, ArgKind, Call, Cost, Goto, If, PackedFunction, Program, VMFunction


class Footprint(NamedTuple):
    """Sums over the calls of one run; None for one that depends on the extents of the arguments."""

    kernels: int
    """Calls of kernels."""
    flops: float | None
    """Operations, as the graph's loops have them before schedules change them."""
    bytes: float | None
    """Bytes that kernels read and write, each argument of a call once."""
    allocated: int | None
    """Bytes of memory for intermediate tensors, which share one arena, and for results."""


def footprint(program: Program, function: str = "main") -> Footprint:
    """The footprint of a function of a graph.

    Raises `NotRegistered` where there is no such function, `InvalidValue` for one that branches or calls another: what
    such a function calls depends on the values of its arguments.
    """
    costs: list[Cost | None] = []
    sizes: list[int | None] = []
    for instruction in _found(program, function).instructions:
        if isinstance(instruction, (If, Goto)):
            raise InvalidValue(f"what `{function}` calls depends on the values of its arguments: it branches")
        if not isinstance(instruction, Call):
            continue
        callee = program.functions[instruction.callee]
        if isinstance(callee, VMFunction) or callee.name == "vm.builtin.invoke_closure":
            raise InvalidValue(f"`{function}` calls a function of the graph, whose calls are not counted with its own")
        if callee.name == "vm.builtin.alloc_storage":
            sizes.append(_size(program, instruction.args))
        elif _is_kernel(callee):
            costs.append(callee.cost)
    known = [cost for cost in costs if cost is not None]
    static = len(known) == len(costs)
    allocated = [size for size in sizes if size is not None]
    return Footprint(
        len(costs),
        sum(cost.flops for cost in known) if static else None,
        sum(cost.bytes for cost in known) if static else None,
        sum(allocated) if len(allocated) == len(sizes) else None,
    )


def _found(program: Program, name: str) -> VMFunction:
    functions = {f.name: f for f in program.functions if isinstance(f, VMFunction)}
    if name not in functions:
        raise NotRegistered(f"the program has no function {name!r}; it has {', '.join(functions) or 'none'}")
    return functions[name]


def _is_kernel(callee: PackedFunction) -> bool:
    """Whether a callee is a kernel: builtins of the machine and shape functions access no elements."""
    own = callee.name.startswith("vm.builtin.") and callee.name != "vm.builtin.call_tir_dyn"
    return not own and callee.cost != Cost()


def _size(program: Program, args: Sequence[Arg]) -> int | None:
    """The bytes that a call of `vm.builtin.alloc_storage` allocates, where its arguments are constants."""
    _, shape, _, dtype, *_ = (program.constants[a.value] if a.kind is ArgKind.CONSTANT else None for a in args)
    if not isinstance(shape, ShapeTuple) or not isinstance(dtype, str):
        return None
    return math.prod(shape) * numpy_dtype(dtype).itemsize
