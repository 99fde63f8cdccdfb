"""Sums, means, extremes and the like along axes, and what normalizes by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ....struct_info import TensorStructInfo
from ..context import Context
from ..dtypes import is_float
from ..registry import converter
from .given_axes import around, given_axes, spread_along

Reduction = Callable[..., Expr]


def _extreme(function: Reduction, neutral: float) -> Reduction:
    """The largest or smallest elements; infinite where all are, or where there are none.

    Loops start from the largest finite float, not from infinity.
    """

    def reduced(x: Expr, axes: list[int], keepdims: bool) -> Expr:
        info = x.struct_info
        assert isinstance(info, TensorStructInfo)
        if not is_float(info.dtype):
            return function(x, axes, keepdims)
        infinite = const(neutral, info.dtype)
        others = op.max(op.astype(op.not_equal(x, infinite), "int8"), axes, keepdims)
        return op.where(op.greater(others, const(0, "int8")), function(x, axes, keepdims), infinite)

    return reduced


def _log_sum_exp(x: Expr, axes: list[int] | None, keepdims: bool) -> Expr:
    """log(sum(exp(x))), from the largest element down, so that nothing overflows; infinities give themselves."""
    largest = op.max(x, axes, True)
    finite = op.where(op.isfinite(largest), largest, op.zeros_like(largest))
    total = op.log(op.sum(op.exp(op.subtract(x, finite)), axes, True))
    result = op.add(total, finite)
    return result if keepdims else op.squeeze(result, axes)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: op.sum(op.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: op.sqrt(op.sum(op.multiply(x, x), axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: op.log(op.sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(op.max, -math.inf),
    "ReduceMean": op.mean,
    "ReduceMin": _extreme(op.min, math.inf),
    "ReduceProd": op.prod,
    "ReduceSum": op.sum,
    "ReduceSumSquare": lambda x, axes, keep: op.sum(op.multiply(x, x), axes, keep),
}
_OF_ONE_ELEMENT: dict[str, Callable[[Expr], Expr]] = {
    "ReduceL1": op.abs,
    "ReduceL2": op.abs,
    "ReduceLogSum": op.log,
    "ReduceSumSquare": lambda x: op.multiply(x, x),
}
"""What a reduction over no axis gives, where it is not the tensor itself."""


def _reduced(g: Context, name: str, x: Expr, axes: list[int] | None, keepdims: int) -> Expr:
    axes = list(range(g.ndim(x))) if axes is None else [g.axis(a, g.ndim(x)) for a in axes]
    if not axes:
        function = _OF_ONE_ELEMENT.get(name)
        return x if function is None else g.emit(function(x))
    dtype = g.dtype(x)
    if dtype == "bool" and name in ("ReduceMax", "ReduceMin"):
        return g.emit(op.astype(_REDUCTIONS[name](g.cast(x, "uint8"), axes, bool(keepdims)), "bool"))
    through_floats = name in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean") and not is_float(dtype)
    result = _REDUCTIONS[name](g.cast(x, "float64") if through_floats else x, axes, bool(keepdims))
    return g.emit(op.astype(result, dtype) if through_floats else result)


def _reduced_along(g: Context, name: str, x: Expr, axes: Expr, keepdims: int) -> Expr:
    """A reduction along axes that are known only when the model runs."""
    ndim, dtype = g.ndim(x), g.dtype(x)
    spread, whole, kept = spread_along(g, x, axes, f"the axes of {name}")
    summed = list(range(ndim, 2 * ndim))
    if 0 in g.shape(x):
        # Nothing is left, or nothing is reduced: loops over unknown extents need one round.
        spread, summed = g.emit(op.zeros([*whole, 0], dtype)), [ndim]
    result = _reduced(g, name, spread, summed, 0)
    return result if keepdims else g.reshaped(result, kept)


def _register(name: str, since: int) -> None:
    @converter(name)
    def of_attribute(g: Context, x: Expr, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Expr:
        return _reduced(g, name, x, None if axes is None else list(axes), keepdims)

    @converter(name, since=since)
    def of_input(
        g: Context, x: Expr, axes: Expr | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Expr:
        known = [] if axes is None else given_axes(g, axes, f"the axes of {name}")
        if known is None:
            assert axes is not None
            return _reduced_along(g, name, x, axes, keepdims)
        return _reduced(g, name, x, known if known or noop_with_empty_axes else None, keepdims)


for _name in _REDUCTIONS:
    _register(_name, 13 if _name == "ReduceSum" else 18)


def _register_search(name: str, function: Reduction) -> None:
    @converter(name)
    def convert(g: Context, x: Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Expr:
        if not select_last_index:
            return g.emit(function(x, axis, bool(keepdims)))
        place = g.axis(axis, g.ndim(x))
        found = function(op.flip(x, place), axis, bool(keepdims))
        last = g.shape(x)[place] - 1
        return g.emit(op.subtract(g.of_elements(last, "int64"), found))


_register_search("ArgMax", op.argmax)
_register_search("ArgMin", op.argmin)


def _cumulative(name: str, function: Callable[..., Expr]) -> None:
    @converter(name)
    def convert(g: Context, x: Expr, axis: Expr, *, exclusive: int = 0, reverse: int = 0) -> Expr:
        dtype, extents = g.dtype(x), g.shape(x)
        known = given_axes(g, axis, f"the axis of {name}")
        if known is None:
            x, place = around(g, x, axis, f"the axis of {name}"), 1
        else:
            place = g.axis(known[0], g.ndim(x))
        source = op.flip(x, place) if reverse else x
        result = function(source, place, dtype, exclusive=bool(exclusive))
        return g.reshaped(g.emit(op.flip(result, place) if reverse else result), extents)


_cumulative("CumSum", op.cumsum)
_cumulative("CumProd", op.cumprod)


# -- softmax and the like --


def _flattened(g: Context, x: Expr, axis: int, function: Callable[[Expr], Expr]) -> Expr:
    """What a function of the rows of a matrix makes of all dimensions from an axis on, as before opset 13."""
    extents = g.shape(x)
    place = g.axis(axis, len(extents)) if axis != len(extents) else axis
    rows = g.reshaped(x, [math.prod(extents[:place]), math.prod(extents[place:])])
    return g.reshaped(g.emit(function(rows)), extents)


def _hardmax(g: Context, x: Expr, axis: int) -> Expr:
    """1 at the first largest element, 0 elsewhere."""
    place = g.axis(axis, g.ndim(x))
    first = g.emit(op.argmax(x, place, keepdims=True))
    numbers = g.along(g.emit(op.arange(0, g.shape(x)[place], 1, "int64")), place, g.ndim(x))
    return g.emit(op.astype(op.equal(numbers, first), g.dtype(x)))


def _register_softmax(name: str, function: Callable[[Context, Expr, int], Expr]) -> None:
    @converter(name)
    def of_rows(g: Context, x: Expr, *, axis: int = 1) -> Expr:
        return _flattened(g, x, axis, lambda rows: function(g, g.emit(rows), -1))

    @converter(name, since=13)
    def of_axis(g: Context, x: Expr, *, axis: int = -1) -> Expr:
        return g.emit(function(g, x, axis))


_register_softmax("Softmax", lambda g, x, axis: op.nn.softmax(x, axis))
_register_softmax("LogSoftmax", lambda g, x, axis: op.nn.log_softmax(x, axis))
_register_softmax("Hardmax", _hardmax)


@converter("LpNormalization")
def lp_normalization(g: Context, x: Expr, *, axis: int = -1, p: int = 2) -> Expr:
    """The tensor divided by its norm along an axis; 0 where that is 0."""
    total = op.sum(op.abs(x), axis, True) if p == 1 else op.sqrt(op.sum(op.multiply(x, x), axis, True))
    total = g.emit(total)
    zero = g.like(0, x)
    return g.emit(op.where(op.equal(total, zero), op.zeros_like(x), op.divide(x, total)))


@converter("Det")
def determinant(g: Context, x: Expr) -> Expr:
    """The determinant of matrices, by Gaussian elimination with the largest element of each column as pivot."""
    *batch, rows, columns = g.static_shape(x, "the shape of matrices whose determinant is taken")
    if rows != columns:
        raise UnsupportedError(f"matrices of {rows} rows and {columns} columns have no determinant")
    x, zero, one = g.reshaped(x, [math.prod(batch), rows, rows]), g.like(0, x), g.like(1, x)
    result = g.emit(op.broadcast_to(one, [math.prod(batch)]))
    for k in range(rows - 1, -1, -1):
        # The matrix that is left has k + 1 rows; its pivot row is exchanged with the first and taken away.
        pivot = g.emit(op.argmax(op.abs(op.strided_slice(x, [2], [0], [1])), 1, keepdims=True))
        chosen = g.emit(op.equal(g.reshaped(g.constant(np.arange(k + 1)), [1, k + 1, 1]), pivot))
        top = g.emit(op.sum(op.where(chosen, x, zero), 1, True))
        head = g.emit(op.strided_slice(top, [2], [0], [1]))
        moved = op.not_equal(g.reshaped(pivot, [math.prod(batch)]), const(0, "int64"))
        result = op.multiply(result, op.where(moved, op.negative(one), one))
        result = g.emit(op.multiply(result, g.reshaped(head, [math.prod(batch)])))
        if k:
            exchanged = op.where(chosen, op.strided_slice(x, [1], [0], [1]), x)
            rest = g.emit(op.strided_slice(exchanged, [1], [1], [k + 1]))
            safe = op.where(op.equal(head, zero), one, head)
            factor = op.divide(op.strided_slice(rest, [2], [0], [1]), safe)
            x = g.emit(op.strided_slice(op.subtract(rest, op.multiply(factor, top)), [2], [1], [k + 1]))
    return g.reshaped(result, batch)
