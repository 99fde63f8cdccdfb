"""Running a function from the outside."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ...ir.module import IRModule
from ...ir.visitor import deep_recursion
from ...runtime.error import NotRegistered, TypeMismatch
from ...tir.function import PrimFunc
from . import threads
from .approximate import ApproximateArithmetic
from .arguments import bind_parameters
from .arithmetic import Arithmetic
from .memory import Memory, writable_array
from .statements import Execution


def interpret(
    func_or_module: PrimFunc | IRModule,
    *args: Any,
    entry: str = "main",
    check: bool = True,
    outputs: Collection[int] = (),
) -> Any:
    """Runs a function on NumPy arrays, tensors of any library, and numbers; arrays are written in place.

    Returns what the function returns with `T.ret`, or None.

    Parameters
    ----------
    func_or_module: a `PrimFunc`, or a module of which the function `entry` is run (the only one, if it has one).
    check: whether to check more than bounds: initialisation, block regions, races.
    outputs: positions of arguments whose contents count as uninitialised until they are written.

    Raises `InterpreterError` for what is undefined, `AssertionFailure` for an assertion of the program, `TypeMismatch`
    and `ShapeMismatch` for arguments that the function cannot take.
    """
    return _run(func_or_module, args, entry, check, outputs, Arithmetic())[0]


def tolerances(func_or_module: PrimFunc | IRModule, *args: Any, entry: str = "main") -> list[Any]:
    """Runs a function, writing arrays in place, and says how far each float may be off.

    Returns for each argument an array of float64 of the same shape; None for numbers and for arrays that hold no
    floats. A correct implementation may differ by 4 eps times the sum of the magnitudes that were added, by an eps for
    each product, and by 4 ulp for each mathematical function, and by what follows from that.
    """
    arithmetic = ApproximateArithmetic()
    _, memories = _run(func_or_module, args, entry, False, (), arithmetic)
    return [_tolerance(arithmetic, memory, arg) for memory, arg in zip(memories, args, strict=True)]


def _tolerance(arithmetic: ApproximateArithmetic, memory: Memory | None, arg: Any) -> np.ndarray | None:
    if memory is None:
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


def _run(
    func_or_module: Any, args: Any, entry: str, check: bool, outputs: Collection[int], arithmetic: Arithmetic
) -> tuple[Any, list[Memory | None]]:
    name, func, functions = _entry(func_or_module, entry)
    run = Execution(functions, arithmetic, check, name)
    with np.errstate(all="ignore"), deep_recursion():
        memories = bind_parameters(run, func, args, outputs)
        return threads.drive(run.run_function(func)), memories


def _entry(func_or_module: Any, entry: str) -> tuple[str, PrimFunc, dict[str, PrimFunc]]:
    if isinstance(func_or_module, PrimFunc):
        return func_or_module.attrs.get("global_symbol", "main"), func_or_module, {}
    if not isinstance(func_or_module, IRModule):
        raise TypeMismatch(f"expected a PrimFunc or an IRModule, found {type(func_or_module).__name__}")
    functions = {v.name_hint: f for v, f in func_or_module.functions.items() if isinstance(f, PrimFunc)}
    name = next(iter(functions)) if len(functions) == 1 else entry
    if name not in functions:
        raise NotRegistered(f"the module has no function {entry!r}; it has {', '.join(sorted(functions)) or 'none'}")
    return name, functions[name], functions
