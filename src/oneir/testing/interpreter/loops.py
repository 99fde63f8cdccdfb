"""Running one TensorIR function on arrays and numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...tir.function import PrimFunc
from . import threads
from .approximate import ApproximateArithmetic
from .arguments import bind_parameters
from .arithmetic import Arithmetic
from .memory import Memory, Violation, writable_array
from .statements import Execution


class Loops:
    """Runs the TensorIR functions of a module: `functions`, by name, which may call one another."""

    def __init__(self, functions: Mapping[str, PrimFunc], arithmetic: Arithmetic, check: bool):
        self.functions, self.arithmetic, self.check = functions, arithmetic, check

    def run(
        self, name: str, func: PrimFunc, args: Sequence[Any], outputs: Collection[int] = ()
    ) -> tuple[Any, list[Memory | None]]:
        """What a function returns, and the memory of each argument, None for a number.

        The arguments at the positions `outputs` count as unwritten at the beginning.
        """
        execution = Execution(self.functions, self.arithmetic, self.check, name)
        with np.errstate(all="ignore"):
            memories = bind_parameters(execution, func, args, outputs)
            return threads.drive(execution.run_function(func)), memories

    def tolerance(self, memory: Memory | None, arg: Any) -> np.ndarray | None:
        """How far off each float of an argument may be after a run with `ApproximateArithmetic`; None for others."""
        arithmetic = self.arithmetic
        if memory is None or not isinstance(arithmetic, ApproximateArithmetic):
            return None
        array = writable_array(arg)
        if np.issubdtype(array.dtype, np.integer) or array.dtype == bool or array.dtype.name in ("int4", "uint4"):
            return None
        out = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            offset = sum(i * stride for i, stride in zip(index, array.strides, strict=True))
            error = memory.errors.get(offset)
            if error is not None:
                out[index] = arithmetic.tolerance_of(array.dtype, error)
        return out


def check_written(name: str, func: PrimFunc, position: int, memory: Memory | None, array: np.ndarray) -> None:
    """Raises `Violation` unless every byte of an argument that was unwritten has been written."""
    where = -1 if memory is None else memory.first_unwritten()
    if where < 0:
        return
    param = func.params[position]
    buffer = func.buffer_map[param].name if param in func.buffer_map else param.name
    index = [int(i) for i in np.unravel_index(where // array.itemsize, array.shape)]
    raise Violation(f"`{name}` leaves `{buffer}{index}` of its output unwritten")
