"""Runs tensor expressions natively on NumPy arrays, so that tests can compare them with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import oneir
from oneir import te, tir
from oneir.ir.dtype import DataType
from oneir.te.tensor import ExternOp
from oneir.testing import interpret


def run(
    make: Callable[..., Any],
    *arrays: Any,
    shapes: dict[int, tuple[Any, ...]] | None = None,
    interpreted: bool = False,
) -> Any:
    """What `make` computes from the arrays: an array, or a list of them where it returns several tensors.

    `shapes` gives the placeholders at some positions another shape than the array's, with variables by name ("n").
    Loops that are written by hand are interpreted as well, and with `interpreted` all: that finds accesses out of
    bounds, and iterations that conflict.
    """
    arrays = tuple(np.asarray(a) for a in arrays)
    values: dict[tir.Var, int] = {}
    variables: dict[str, tir.Var] = {}

    def extent(dim: Any, actual: int) -> Any:
        if not isinstance(dim, str):
            return dim
        var = variables.setdefault(dim, tir.Var(dim, "int64"))
        values[var] = actual
        return var

    inputs = []
    for i, array in enumerate(arrays):
        wanted = (shapes or {}).get(i, array.shape)
        dims = [extent(d, a) for d, a in zip(wanted, array.shape, strict=True)]
        inputs.append(te.placeholder(dims, dtype=array.dtype.name, name=f"A{i}"))
    made = make(*inputs)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    results = [np.zeros([_known(d, values) for d in t.shape], DataType(t.dtype).to_numpy()) for t in outputs]
    for result in results:
        result.view(np.uint8).fill(0xA5) if result.ndim and result.size else None
    func = te.create_prim_func([*inputs, *outputs])
    given = [np.ascontiguousarray(a) if a.ndim else a for a in arrays]
    oneir.build(func)(*given, *results)
    by_hand = any(isinstance(t.op, ExternOp) for t in outputs)
    if interpreted or by_hand:
        again = [np.zeros_like(r) for r in results]
        interpret(func, *given, *again)
        for native, other in zip(results, again, strict=True):
            if by_hand or native.dtype.kind in "biu":
                np.testing.assert_array_equal(native, other)
    return results if isinstance(made, (list, tuple)) else results[0]


def _known(dim: Any, values: dict[tir.Var, int]) -> int:
    found = oneir.arith.Analyzer().simplify(
        tir.stmt_functor.substitute(dim, {v: tir.const(n, "int64") for v, n in values.items()})
    )
    return int(found.value)
