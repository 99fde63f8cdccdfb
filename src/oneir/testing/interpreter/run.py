"""Running a function from the outside."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ...ir.module import IRModule
from ...ir.visitor import deep_recursion
from ...relax.expr import Function
from ...runtime.error import InvalidValue, NotRegistered, TypeMismatch
from ...tir.function import PrimFunc
from .approximate import ApproximateArithmetic
from .arithmetic import Arithmetic
from .graph import Graph
from .graph_values import argument, result
from .loops import Loops
from .rounding import RUNS, Exact, Nudged, spread


def interpret(
    func_or_module: PrimFunc | Function | IRModule,
    *args: Any,
    entry: str = "main",
    check: bool = True,
    outputs: Collection[int] = (),
) -> Any:
    """Runs a function on NumPy arrays, tensors of any library, numbers, and tuples of these; arrays are written in
    place.

    Returns what the function returns: of loops, what `T.ret` says, or None; of graphs, arrays, numbers, shapes and
    tuples of these.

    Parameters
    ----------
    func_or_module: a function, or a module of which the function `entry` is run (the only one, if it has one).
    check: whether to check more of loops than bounds: initialisation, block regions, races.
    outputs: of loops, positions of arguments whose contents count as uninitialised until they are written.

    Raises `InterpreterError` for what is undefined and for values of graphs that are not what their struct info says,
    `AssertionFailure` for an assertion of the program, `TypeMismatch` and `ShapeMismatch` for arguments that the loops
    cannot take.
    """
    name, func, functions = _entry(func_or_module, entry)
    with deep_recursion:
        if isinstance(func, PrimFunc):
            return Loops(_loops(functions), Arithmetic(), check).run(name, func, args, outputs)[0]
        if outputs:
            raise InvalidValue(f"`{name}` is a graph, which returns its outputs; `outputs` are arguments of loops")
        return _run_graph(name, func, functions, args, Exact(), check)


def tolerances(func_or_module: PrimFunc | Function | IRModule, *args: Any, entry: str = "main") -> Any:
    """Runs a function and says how far each float may be off.

    Of loops, which write arrays in place: for each argument an array of float64 of the same shape; None for numbers and
    for arrays that hold no floats. A correct implementation may differ by 4 eps times the sum of the magnitudes that
    were added, by an eps for each product, and by 4 ulp for each mathematical function, and by what follows from that.

    Of graphs: the same for what is returned, tuples as they are returned; `rounding.py` says how it is found. Integers
    have 0, or infinity where they may change.
    """
    name, func, functions = _entry(func_or_module, entry)
    with deep_recursion:
        if isinstance(func, PrimFunc):
            loops = Loops(_loops(functions), ApproximateArithmetic(), False)
            memories = loops.run(name, func, args)[1]
            return [loops.tolerance(memory, arg) for memory, arg in zip(memories, args, strict=True)]
        base = _run_graph(name, func, functions, copy.deepcopy(args), Exact(), False)
        runs = [_run_graph(name, func, functions, copy.deepcopy(args), Nudged(seed), False) for seed in range(RUNS)]
        return spread(base, runs)


def _run_graph(
    name: str, func: Function, functions: dict[str, Any], args: Sequence[Any], rounding: Exact, check: bool
) -> Any:
    infos = [param.struct_info_ for param in func.params]
    values = [argument(a, i) for a, i in zip(args, [*infos, *[None] * len(args)], strict=False)]
    with np.errstate(all="ignore"):
        return result(Graph(functions, rounding, check).run_function(name, func, values))


def _loops(functions: dict[str, Any]) -> dict[str, PrimFunc]:
    return {name: func for name, func in functions.items() if isinstance(func, PrimFunc)}


def _entry(func_or_module: Any, entry: str) -> tuple[str, PrimFunc | Function, dict[str, Any]]:
    if isinstance(func_or_module, (PrimFunc, Function)):
        return func_or_module.attrs.get("global_symbol", "main"), func_or_module, {}
    if not isinstance(func_or_module, IRModule):
        raise TypeMismatch(f"expected a function or an IRModule, found {type(func_or_module).__name__}")
    functions = {v.name_hint: f for v, f in func_or_module.functions.items()}
    runnable = {name: func for name, func in functions.items() if isinstance(func, (PrimFunc, Function))}
    name = next(iter(runnable)) if len(runnable) == 1 else entry
    if name not in runnable:
        raise NotRegistered(f"the module has no function {entry!r}; it has {', '.join(sorted(runnable)) or 'none'}")
    return name, runnable[name], functions
