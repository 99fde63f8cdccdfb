"""Tensors made from positions and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..arith import Analyzer
from ..ir import operators as ops
from ..ir.expr import LE, PrimExpr, Select, as_expr, const
from ..runtime.error import InvalidValue, ShapeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from . import tag
from .index import require_int, shape_text, size_of


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Tensor:
    """start, start + step, ... up to but not including stop; from 0 when only one bound is given."""
    if stop is None:
        start, stop = 0, start
    start, stop, step = as_expr(start), as_expr(stop), as_expr(step)
    analyzer = Analyzer()
    integers = all(v.dtype.code == "int" for v in (start, stop, step))
    if integers and analyzer.can_prove_greater_equal(step, 1):
        count = ops.floordiv(ops.subtract(ops.add(ops.subtract(stop, start), step), 1), step)
    elif integers and analyzer.can_prove_less(step, 0):
        count = ops.floordiv(ops.subtract(ops.subtract(ops.subtract(start, stop), step), 1), ops.negative(step))
    elif getattr(step, "value", None) == 0:
        raise InvalidValue("topi.arange: expected a step other than 0")
    else:
        span = ops.cast("float32", ops.subtract(stop, start))
        count = ops.cast("int64", tir_op.ceil(ops.divide(span, ops.cast("float32", step))))
    return te.compute(
        (analyzer.simplify(count),),
        lambda *ax: ops.cast(dtype, ops.add(start, ops.multiply(step, ax[0]))),
        name="T_arange",
        tag=tag.INJECTIVE,
    )


def meshgrid(a_tuple: Sequence[Tensor], indexing: str) -> list[Tensor]:
    """Vectors or scalars as tensors over all their combinations; "xy" exchanges the first two dimensions, "ij" not."""
    if indexing not in ("ij", "xy"):
        raise InvalidValue(f'topi.meshgrid: expected indexing "ij" or "xy", found {indexing!r}')
    for vector in a_tuple:
        if vector.ndim > 1:
            raise ShapeMismatch(f"topi.meshgrid: expected vectors or scalars, found {shape_text(vector.shape)}")
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) >= 2:
        order[:2] = 1, 0
    target = [a_tuple[i].shape[0] if a_tuple[i].ndim else 1 for i in order]

    def grid(vector: Tensor, axis: int) -> Tensor:
        return te.compute(
            target,
            lambda *ax: vector(*[ax[axis]] if vector.ndim else ()),
            name="T_meshgrid",
            tag=tag.INJECTIVE,
        )

    return [grid(vector, axis) for vector, axis in zip(a_tuple, order, strict=True)]


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The shape of a tensor as a vector."""

    def element(*ax: PrimExpr) -> PrimExpr:
        value = const(0)
        for i, extent in enumerate(array.shape):
            value = tir_op.if_then_else(ops.equal(ax[0], i), extent, value)
        return ops.cast(dtype, value)

    return te.compute((array.ndim,), element, name="T_shape", tag=tag.INJECTIVE)


def tensor_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements of a tensor as a scalar."""
    return te.compute((), lambda: ops.cast(dtype, size_of(array.shape)), name="tensor_size", tag=tag.INJECTIVE)


def one_hot(indices: Tensor, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> Tensor:
    """A new axis of extent `depth` (-1: the last one), with `on_value` where its index is that in `indices`."""
    if not -1 <= axis <= indices.ndim:
        raise InvalidValue(f"topi.one_hot: expected axis in [-1, {indices.ndim}], found {axis}")
    true_axis = indices.ndim if axis == -1 else axis
    on, off = ops.cast(dtype, on_value), ops.cast(dtype, off_value)
    return te.compute(
        [*indices.shape[:true_axis], depth, *indices.shape[true_axis:]],
        lambda *ax: Select(ops.equal(indices(*ax[:true_axis], *ax[true_axis + 1 :]), ax[true_axis]), on, off),
        name="T_one_hot",
        tag=tag.INJECTIVE,
    )


def trilu(data: Tensor, k: Any, upper: bool) -> Tensor:
    """The triangle of each matrix above or below its k-th diagonal, which belongs to it; zeros elsewhere."""
    if data.ndim < 2:
        raise ShapeMismatch(f"topi.trilu: expected at least 2 dimensions, found {shape_text(data.shape)}")
    diagonal = ops.cast("int32", k)

    def element(*i: PrimExpr) -> PrimExpr:
        row, column = ops.match_types(i[-2], i[-1])
        edge = ops.subtract(column, diagonal)
        inside = LE(row, edge) if upper else ops.greater_equal(row, edge)
        return Select(inside, data(*i), const(0, data.dtype))

    return te.compute(data.shape, element, name="trilu", tag=tag.ELEMWISE)


def hamming_window(window_size: Any, periodic: Any, alpha: Any, beta: Any, dtype: str) -> Tensor:
    """alpha - beta * cos(2 pi i / n) for i below the window's size; n is the size if periodic, else one less."""
    size = require_int(window_size, "hamming_window", "window_size")
    if size == 1:
        return te.compute((1,), lambda *ax: const(1, dtype), name="hamming_window", tag=tag.INJECTIVE)
    period = size if require_int(periodic, "hamming_window", "periodic") else size - 1
    wide = "float64" if dtype == "float64" else "float32"
    first, second = ops.cast(wide, alpha), ops.cast(wide, beta)

    def element(*ax: PrimExpr) -> PrimExpr:
        angle = ops.multiply(ops.cast(wide, ax[0]), const(2 * math.pi / period, wide))
        return ops.cast(dtype, ops.subtract(first, ops.multiply(second, tir_op.cos(angle))))

    return te.compute((size,), element, name="hamming_window", tag=tag.INJECTIVE)
