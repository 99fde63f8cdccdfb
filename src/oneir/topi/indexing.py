"""Elements picked by indices that are themselves tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Select, as_int, const
from ..runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.expr import expr_array
from . import tag
from .broadcast import broadcast_to
from .index import (
    Shape,
    broadcast_shape,
    is_equal,
    require_axis,
    require_int,
    require_ndim,
    shape_text,
    size_of,
    unravel,
)

_MODES = ("fast", "clip", "wrap", "nan")


def take(
    a: Tensor, indices: Tensor | PrimExpr, axis: int | None = None, batch_dims: int = 0, mode: str = "fast"
) -> Tensor:
    """The elements of `a` at `indices` along an axis, or (None) of its elements in row-major order.

    A number takes its axis away.

    The first `batch_dims` dimensions are common to `a` and `indices`. `mode` says what an index outside gives: "clip"
    the nearest element, "wrap" the one that many times around, "nan" NaN; with "fast", there must be none.
    """
    if mode not in _MODES:
        raise InvalidValue(f"topi.take: expected a mode of {_MODES}, found {mode!r}")
    if mode == "nan" and not a.dtype.is_float:
        raise TypeMismatch(f'topi.take: the mode "nan" needs a tensor of floats, found {a.dtype}')
    if isinstance(indices, PrimExpr):
        axis = require_axis(0 if axis is None else axis, a.ndim, "take")
        return te.compute(
            [*a.shape[:axis], *a.shape[axis + 1 :]],
            lambda *ax: _taken(a, indices, a.shape[axis], mode, lambda i: a(*ax[:axis], i, *ax[axis:])),
            name="T_take",
            tag=tag.INJECTIVE,
        )
    _require_integers(indices, "take")
    if axis is None:
        size = size_of(a.shape)
        return te.compute(
            indices.shape,
            lambda *ax: _taken(a, indices(*ax), size, mode, lambda i: a(*unravel(i, a.shape))),
            name="T_take",
            tag=tag.INJECTIVE,
        )
    axis = require_axis(axis, a.ndim, "take")
    batch = _batch_dims(a, indices, axis, batch_dims)
    inner = axis + indices.ndim - batch

    def element(*ax: PrimExpr) -> PrimExpr:
        index = indices(*ax[:batch], *ax[axis:inner])
        return _taken(a, index, a.shape[axis], mode, lambda i: a(*ax[:axis], i, *ax[inner:]))

    target = [*a.shape[:axis], *indices.shape[batch:], *a.shape[axis + 1 :]]
    return te.compute(target, element, name="T_take", tag=tag.INJECTIVE)


def _taken(a: Tensor, index: PrimExpr, extent: PrimExpr, mode: str, at: Any) -> PrimExpr:
    limit = extent
    if mode != "fast" and index.dtype.is_uint and index.dtype.bits >= extent.dtype.bits:
        # As signed numbers, the largest unsigned ones would be negative.
        limit = ops.cast(index.dtype, extent)

    def element(place: PrimExpr) -> PrimExpr:
        return at(place if limit is extent else ops.cast(extent.dtype, place))

    if mode == "clip":
        return element(ops.minimum(ops.maximum(0, index), ops.subtract(limit, 1)))
    if mode == "wrap":
        return element(ops.truncmod(ops.add(ops.truncmod(index, limit), limit), limit))
    if mode == "nan":
        inside = ops.logical_and(ops.greater_equal(index, 0), ops.less(index, limit))
        return tir_op.if_then_else(inside, element(index), const(math.nan, a.dtype))
    return at(index)


def _batch_dims(a: Tensor, indices: Tensor, axis: int, batch_dims: int) -> int:
    if not -indices.ndim <= batch_dims <= indices.ndim:
        raise InvalidValue(
            f"topi.take: expected batch_dims in [{-indices.ndim}, {indices.ndim}] for indices of shape "
            f"{shape_text(indices.shape)}, found {batch_dims}"
        )
    batch = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    if batch > axis:
        raise InvalidValue(f"topi.take: expected batch_dims of at most the axis, {axis}, found {batch}")
    for x, y in zip(a.shape[:batch], indices.shape[:batch], strict=True):
        if None not in (as_int(x), as_int(y)) and not is_equal(x, y):
            raise ShapeMismatch(
                f"topi.take: the first {batch} extents of {shape_text(a.shape)} and {shape_text(indices.shape)} differ"
            )
    return batch


def _require_integers(indices: Tensor, function: str) -> None:
    if not indices.dtype.is_int:
        raise TypeMismatch(f"topi.{function}: expected indices that are integers, found {indices.dtype}")


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """out[i][j][k] = data[i][indices[i][j][k]][k], for axis 1 of 3; as many dimensions as `indices`."""
    if not data.ndim:
        raise InvalidValue("topi.gather: expected data of at least one dimension, found a scalar")
    axis = require_axis(axis, data.ndim, "gather")
    _require_integers(indices, "gather")
    if indices.ndim != data.ndim:
        raise ShapeMismatch(
            f"topi.gather: expected indices of {data.ndim} dimensions like the data {shape_text(data.shape)}, found "
            f"{shape_text(indices.shape)}"
        )
    return te.compute(
        indices.shape,
        lambda *ax: data(*ax[:axis], indices(*ax), *ax[axis + 1 :]),
        name="T_gather",
        tag=tag.INJECTIVE,
    )


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Elements or parts of `a` whose indices are the columns of `indices`, along its first dimension.

    The first `batch_dims` dimensions are common to `a` and to `indices` after its first one.
    """
    if not indices.ndim:
        raise ShapeMismatch("topi.gather_nd: expected indices of at least one dimension, found a scalar")
    count = require_int(indices.shape[0], "gather_nd", "the first extent of indices")
    if count + batch_dims > a.ndim or not 0 <= batch_dims < indices.ndim:
        raise ShapeMismatch(
            f"topi.gather_nd: {count} indices with batch_dims={batch_dims} for a tensor of shape {shape_text(a.shape)} "
            f"and indices of shape {shape_text(indices.shape)}"
        )

    def element(*ax: PrimExpr) -> PrimExpr:
        place = list(ax[:batch_dims])
        for i in range(count):
            index = indices(i, *ax[: indices.ndim - 1])
            place.append(index if index.dtype.is_int else ops.cast("int32", index))
        return a(*place, *ax[indices.ndim - 1 :])

    target = [*indices.shape[1:], *a.shape[count + batch_dims :]]
    return te.compute(target, element, name="T_gather_nd", tag=tag.INJECTIVE)


def adv_index(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """data[i0, i1, ...]: the index tensors broadcast to one shape, which takes the place of the axes they index.

    Indices count from the front.
    """
    return _advanced_index(data, list(indices), lambda index, extent: index)


def index_tensor(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """data[i0, i1, ...] as in NumPy and PyTorch: `adv_index` where indices below zero count from the end."""
    return _advanced_index(data, list(indices), _from_front)


def _from_front(index: PrimExpr, extent: PrimExpr) -> PrimExpr:
    if index.dtype.is_uint:
        return index
    wrapped = ops.add(index, extent)
    return Select(ops.less(index, 0), wrapped, ops.cast(wrapped.dtype, index))


def _advanced_index(data: Tensor, indices: list[Tensor], place: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Tensor:
    if not 1 <= len(indices) <= data.ndim:
        raise InvalidValue(
            f"topi.adv_index: expected 1 to {data.ndim} index tensors for data of shape {shape_text(data.shape)}, "
            f"found {len(indices)}"
        )
    common = list(indices[0].shape)
    for index in indices:
        _require_integers(index, "adv_index")
        common = broadcast_shape(common, index.shape, "adv_index")
    if len(indices) > 1:
        indices = [broadcast_to(index, common) for index in indices]
    ndim = len(common)
    return te.compute(
        [*common, *data.shape[len(indices) :]],
        lambda *ax: data(
            *[place(index(*ax[:ndim]), extent) for index, extent in zip(indices, data.shape, strict=False)], *ax[ndim:]
        ),
        name="advanced_index",
        tag=tag.INJECTIVE,
    )


def unravel_index(indices: Tensor, shape: Tensor) -> Tensor:
    """The coordinates of positions in row-major order, a row for each dimension of the shape."""
    require_ndim(shape, 1, "unravel_index", "shape")
    if indices.ndim > 1:
        raise ShapeMismatch(
            f"topi.unravel_index: expected a scalar or a vector of indices, found {shape_text(indices.shape)}"
        )
    count = require_int(shape.shape[0], "unravel_index", "the length of shape")

    def element(*ax: PrimExpr) -> PrimExpr:
        position, value = indices(*ax[1:]), const(0)
        for i in reversed(range(count)):
            value = tir_op.if_then_else(ops.equal(ax[0], i), ops.floormod(position, shape(i)), value)
            position = ops.floordiv(position, shape(i))
        return value

    return te.compute([shape.shape[0], *indices.shape], element, name="T_unravel", tag=tag.INJECTIVE)


def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Shape, sparse_values: Tensor, default_value: Any = 0
) -> Tensor:
    """A tensor of `default_value` with `sparse_values` at `sparse_indices`: a scalar, a vector or rows of indices."""
    _require_integers(sparse_indices, "sparse_to_dense")
    if sparse_indices.ndim > 2 or sparse_values.ndim > 1:
        raise ShapeMismatch(
            f"topi.sparse_to_dense: expected indices of at most 2 dimensions and values of at most 1, found "
            f"{shape_text(sparse_indices.shape)} and {shape_text(sparse_values.shape)}"
        )
    extents = [require_int(d, "sparse_to_dense", "the shape of the indices") for d in sparse_indices.shape]
    rows = extents[0] if extents else 1
    columns = extents[1] if len(extents) == 2 else 1

    def element(*ax: PrimExpr) -> PrimExpr:
        value = ops.cast(sparse_values.dtype, default_value() if isinstance(default_value, Tensor) else default_value)
        for j in range(rows):
            here = const(True)
            for k in range(columns):
                here = ops.logical_and(here, ops.equal(ax[k], sparse_indices(*(j, k)[: len(extents)])))
            value = tir_op.if_then_else(here, sparse_values(*[j] if sparse_values.ndim else []), value)
        return value

    return te.compute(expr_array(output_shape), element, name="T_sparse_to_dense", tag=tag.INJECTIVE)


def matrix_set_diag(data: Tensor, diagonal: Tensor, k: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """`data` with the diagonals k, or k[0] to k[1], of each matrix replaced by the rows of `diagonal`.

    The highest comes first. Of several diagonals, shorter ones fill their row from one side: `align` names that of the
    upper and lower ones.
    """
    low, high = (k, k) if not isinstance(k, (list, tuple)) else (k[0], k[-1])
    low, high = (require_int(v, "matrix_set_diag", "k") for v in (low, high))
    sides = align.split("_")
    if len(sides) != 2 or not set(sides) <= {"LEFT", "RIGHT"}:
        raise InvalidValue(f"topi.matrix_set_diag: expected align such as RIGHT_LEFT, found {align!r}")
    if data.ndim < 2 or low > high:
        raise InvalidValue(
            f"topi.matrix_set_diag: expected matrices and k in order, found {shape_text(data.shape)} and {k}"
        )
    rows, columns = data.shape[-2:]

    def offset(upper: bool, which: PrimExpr) -> PrimExpr:
        """How far a diagonal is moved to the right in its row."""
        if sides[0 if upper else 1] == "LEFT":
            return const(0)
        length = (
            ops.minimum(rows, ops.subtract(columns, which)) if upper else ops.minimum(columns, ops.add(rows, which))
        )
        return ops.subtract(diagonal.shape[-1], length)

    def element(*ax: PrimExpr) -> PrimExpr:
        row, column = ax[-2:]
        which = ops.subtract(column, row)
        upper = ops.greater_equal(low if low == high else which, 0)
        place = tir_op.if_then_else(upper, row, column)
        if low == high:
            value = diagonal(*ax[:-2], place)
        else:
            moved = tir_op.if_then_else(ops.greater_equal(which, 0), offset(True, which), offset(False, which))
            value = diagonal(*ax[:-2], ops.subtract(high, which), ops.add(place, moved))
        below_high = tir_op.if_then_else(ops.less_equal(which, high), value, data(*ax))
        return tir_op.if_then_else(ops.greater_equal(which, low), below_high, data(*ax))

    return te.compute(data.shape, element, name="T_matrix_set_diag", tag=tag.INJECTIVE)
