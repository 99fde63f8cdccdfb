"""Reductions over axes.

The stage of a reduction of `A` is called `A_red`; its reduction axes k0, k1, ... are named after the axes of `A`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Select, as_expr, const
from ..runtime.error import ShapeMismatch, TypeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.reduction import comm_reducer
from . import tag
from .index import Axes, Shape, is_empty, is_equal, is_one, ravel, require_axis, shape_text

_ALL = comm_reducer(lambda x, y: ops.logical_and(x, y), lambda dtype: const(True, dtype), name="all")
_ANY = comm_reducer(lambda x, y: ops.logical_or(x, y), lambda dtype: const(False, dtype), name="any")


def _real_axes(ndim: int, axis: Axes, function: str) -> list[int]:
    """The axes, sorted and each once; all of them for None."""
    if axis is None:
        return list(range(ndim))
    return sorted({require_axis(a, ndim, function) for a in (axis if isinstance(axis, (list, tuple)) else (axis,))})


def _reduce_axes(data: Tensor, axes: list[int]) -> dict[int, Any]:
    return {i: te.reduce_axis((0, data.shape[i]), f"k{i}") for i in axes}


def _target_shape(data: Tensor, axes: list[int], keepdims: bool) -> list[Any]:
    return [1 if i in axes else extent for i, extent in enumerate(data.shape) if keepdims or i not in axes]


def _read_indices(ax: tuple[Any, ...], ndim: int, iterators: dict[int, Any], squeezed: list[int]) -> list[Any]:
    """The indices at which a reduction reads: reduction axes, and between them the indices of the output."""
    rest = iter(ax)
    indices = []
    for i in range(ndim):
        index = None if i in squeezed else next(rest)
        indices.append(iterators[i].var if i in iterators else index)
    return indices


def _reduce(data: Tensor, reducer: Callable[..., Any], shape: Shape, axes: list[int], squeezed: list[int]) -> Tensor:
    iterators = _reduce_axes(data, axes)
    return te.compute(
        shape,
        lambda *ax: reducer(data(*_read_indices(ax, data.ndim, iterators, squeezed)), list(iterators.values())),
        name=f"{data.op.name}_red",
        tag=tag.COMM_REDUCE,
    )


def _comm_reduce(data: Tensor, axis: Axes, keepdims: bool, reducer: Callable[..., Any], function: str) -> Tensor:
    if not data.shape:
        _real_axes(0, axis, function)
        return te.compute((), lambda: data(), name=f"{data.op.name}_red", tag=tag.COMM_REDUCE)
    axes = _real_axes(data.ndim, axis, function)
    return _reduce(data, reducer, _target_shape(data, axes, keepdims), axes, [] if keepdims else axes)


def sum(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum over an axis, several or (None) all; of bools, whether any holds."""
    return _comm_reduce(data, axis, keepdims, _ANY if data.dtype.is_bool else te.sum, "sum")


def prod(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product over an axis, several or (None) all."""
    return _comm_reduce(data, axis, keepdims, te.prod, "prod")


def min(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element over an axis, several or (None) all; of none, the dtype's greatest value."""
    if data.dtype.is_float and _is_of_nothing(data, axis, "min"):
        return _full(data, axis, keepdims, tir_op.infinity(data.dtype))
    return _comm_reduce(data, axis, keepdims, te.min, "min")


def max(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element over an axis, several or (None) all; of none, the dtype's least value."""
    if data.dtype.is_float and _is_of_nothing(data, axis, "max"):
        return _full(data, axis, keepdims, ops.negative(tir_op.infinity(data.dtype)))
    return _comm_reduce(data, axis, keepdims, te.max, "max")


def all(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements over an axis, several or (None) all hold; of bools."""
    return _comm_reduce(_bools(data, "all"), axis, keepdims, _ALL, "all")


def any(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element over an axis, several or (None) all holds; of bools."""
    return _comm_reduce(_bools(data, "any"), axis, keepdims, _ANY, "any")


def _is_of_nothing(data: Tensor, axis: Axes, function: str) -> bool:
    """Whether an axis to reduce is known to be empty."""
    return is_empty([data.shape[i] for i in _real_axes(data.ndim, axis, function)])


def _full(data: Tensor, axis: Axes, keepdims: bool, value: Any) -> Tensor:
    """One value in the shape of a reduction."""
    shape = _target_shape(data, _real_axes(data.ndim, axis, "reduction"), keepdims)
    return te.compute(shape, lambda *ax: value, name=f"{data.op.name}_red", tag=tag.COMM_REDUCE)


def _bools(data: Tensor, function: str) -> Tensor:
    if not data.dtype.is_bool:
        raise TypeMismatch(f"topi.{function}: expected a tensor of bools, found {data.dtype}; compare it with a value")
    return data


def index_reducer(name: str, beats: Callable[[Any, Any], Any], worst: Callable[[str], Any], last: bool) -> Any:
    """A reducer of pairs (index, value) that keeps the best value, and the first or last index of equal ones."""

    def combine(x: Sequence[PrimExpr], y: Sequence[PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        better = beats(x[1], y[1])
        nearer = ops.greater(x[0], y[0]) if last else ops.less(x[0], y[0])
        keep = ops.logical_or(better, ops.logical_and(ops.equal(x[1], y[1]), nearer))
        return Select(keep, x[0], y[0]), Select(better, x[1], y[1])

    return comm_reducer(combine, lambda index, value: (const(-1, index), worst(value)), name=name)


def _arg_reduce(data: Tensor, axis: Axes, keepdims: bool, reducer: Any, function: str) -> Tensor:
    axes = _real_axes(data.ndim, axis, function)
    if not data.shape or _is_of_nothing(data, axis, function):
        return _full(data, axis, keepdims, const(0, "int64"))
    iterators = _reduce_axes(data, axes)
    shape = _target_shape(data, axes, keepdims)

    def element(*ax: PrimExpr) -> Any:
        indices = _read_indices(ax, data.ndim, iterators, [] if keepdims else axes)
        position = ravel([iterators[i].var for i in axes], [data.shape[i] for i in axes])
        return reducer((position, data(*indices)), list(iterators.values()))

    name = f"{data.op.name}_red"
    best, _ = te.compute(shape, element, name=f"{name}_temp", tag=tag.COMM_REDUCE_IDX)
    return te.compute(shape, lambda *ax: best(*ax), name=name, tag=tag.COMM_REDUCE_IDX)


def argmax(data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False) -> Tensor:
    """The index of the largest element, over several axes the position in row-major order; the first one of
    equals, and 0 of none.
    """
    reducer = index_reducer("argmax", ops.greater, tir_op.min_value, select_last_index)
    return _arg_reduce(data, axis, keepdims, reducer, "argmax")


def argmin(data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False) -> Tensor:
    """The index of the smallest element, over several axes the position in row-major order; the first one of
    equals, and 0 of none.
    """
    reducer = index_reducer("argmin", ops.less, tir_op.max_value, select_last_index)
    return _arg_reduce(data, axis, keepdims, reducer, "argmin")


def collapse_sum(data: Tensor, target_shape: Any) -> Tensor:
    """The sum over the dimensions that a broadcast of `target_shape` to the shape of `data` repeats."""
    target = [as_expr(extent) for extent in target_shape]
    axes: list[int] = []
    squeezed: list[int] = []
    o = len(target) - 1
    for i in reversed(range(data.ndim)):
        if o >= 0 and is_equal(data.shape[i], target[o]):
            o -= 1
            continue
        axes.insert(0, i)
        if o < 0:
            squeezed.insert(0, i)
        elif is_one(target[o]):
            o -= 1
        else:
            break
    if o >= 0:
        raise ShapeMismatch(
            f"topi.collapse_sum: {shape_text(target)} does not broadcast to {shape_text(data.shape)}, "
            "the shape of the data"
        )
    if not axes:
        return te.compute(data.shape, lambda *ax: data(*ax), name="tensor", tag=tag.COMM_REDUCE)
    return _reduce(data, te.sum, target, axes, squeezed)
