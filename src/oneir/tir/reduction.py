"""Reductions as expressions: sums, extremes and user-defined combinations over iteration variables.

k = te.reduce_axis((0, n), "k")
sum(A[i, k], axis=k)       # a Reduce node
max(a, b)                  # of two values, the larger one
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..ir import operators as ops
from ..ir.container import Array, is_sequence
from ..ir.dtype import BOOL
from ..ir.expr import IntImm, PrimExpr, Var, as_expr, const
from ..runtime.error import InvalidValue
from .expr import CommReducer, IterVar, Reduce
from .op import max_value, min_value


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reduction from its combination of two values (or tuples of values) and its neutral element.

    `fcombine(x, y)` takes two values, or two tuples for a reduction of several values at once; `fidentity(dtype, ...)`
    gives the neutral element for the dtypes. The reducer is called as `reducer(source, axis, where=None, init=None)`.
    """

    def make(source: Any, axis: Any, where: Any, init: Any) -> Any:
        values = Array(as_expr(s) for s in (source if is_sequence(source) else (source,)))
        names = list(inspect.signature(fcombine).parameters)
        pairs = [[Var(f"{n}{i}" if len(values) > 1 else n, v.dtype) for i, v in enumerate(values)] for n in names]
        lhs, rhs = pairs
        if len(values) == 1:
            result, identity = (fcombine(lhs[0], rhs[0]),), (fidentity(values[0].dtype),)
        else:
            result, identity = fcombine(lhs, rhs), fidentity(*(v.dtype for v in values))
        reducer = CommReducer(lhs, rhs, [as_expr(r) for r in result], [as_expr(i) for i in identity])
        condition = IntImm(BOOL, 1) if where is None else ops.as_bool(where)
        axes = axis if is_sequence(axis) else (axis,)
        inits = () if init is None else init if is_sequence(init) else (init,)
        outputs = [Reduce(reducer, values, axes, condition, i, inits) for i in range(len(values))]
        return outputs[0] if len(outputs) == 1 else Array(outputs)

    def reduce(expr: Any, axis: Any, where: Any = None, init: Any = None, *args: Any) -> Any:
        if isinstance(axis, (IterVar, list, tuple)):
            if args:
                raise InvalidValue(
                    f"{name} over an axis takes source, axis, where and init; found {len(args)} more values"
                )
            return make(expr, axis, where, init)
        result = fcombine(as_expr(expr), axis)
        for value in (where, init, *args):
            if value is not None:
                result = fcombine(result, value)
        return result

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"{name} of a source over one or several axes, or of two or more values."
    return reduce


def _zero(dtype: str) -> PrimExpr:
    return const(0, dtype)


def _one(dtype: str) -> PrimExpr:
    return const(1, dtype)


def _sum(x: Any, y: Any) -> Any:
    return x + y


def _product(x: Any, y: Any) -> Any:
    return x * y


def _smaller(x: Any, y: Any) -> Any:
    return ops.minimum(x, y)


def _larger(x: Any, y: Any) -> Any:
    return ops.maximum(x, y)


sum = comm_reducer(_sum, _zero, name="sum")
prod = comm_reducer(_product, _one, name="prod")
min = comm_reducer(_smaller, max_value, name="min")
max = comm_reducer(_larger, min_value, name="max")
