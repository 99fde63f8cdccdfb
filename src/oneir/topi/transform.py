"""Operators that move elements: shapes, orders and layouts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from .. import te
from ..arith import Analyzer
from ..ir import operators as ops
from ..ir.container import Array
from ..ir.expr import PrimExpr, as_int, const
from ..runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.data_layout import BijectiveLayout, Layout
from ..tir.expr import expr_array
from . import tag
from .broadcast import where
from .contraction import matmul, tensordot
from .generate import arange, hamming_window, meshgrid, one_hot, shape, tensor_size, trilu
from .index import (
    Axes,
    Shape,
    is_empty,
    is_equal,
    ravel,
    require_axis,
    require_int,
    require_ndim,
    shape_text,
    size_of,
    unravel,
)
from .indexing import (
    adv_index,
    gather,
    gather_nd,
    index_tensor,
    matrix_set_diag,
    sparse_to_dense,
    take,
    unravel_index,
)
from .slicing import dynamic_strided_slice, sliding_window, split, strided_set, strided_slice

__all__ = [
    "adv_index",
    "arange",
    "concatenate",
    "dynamic_strided_slice",
    "expand_dims",
    "expand_like",
    "flip",
    "gather",
    "gather_nd",
    "hamming_window",
    "index_tensor",
    "layout_transform",
    "matmul",
    "matrix_set_diag",
    "meshgrid",
    "one_hot",
    "repeat",
    "reshape",
    "reverse_sequence",
    "sequence_mask",
    "shape",
    "sliding_window",
    "sparse_to_dense",
    "split",
    "squeeze",
    "stack",
    "strided_set",
    "strided_slice",
    "take",
    "tensor_size",
    "tensordot",
    "tile",
    "transpose",
    "trilu",
    "unravel_index",
    "where",
]


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Tensor:
    """`a` with dimensions of extent 1 inserted before `axis`, which may count from the end of the result."""
    axis = require_axis(axis, a.ndim + 1, "expand_dims")
    if num_newaxis < 0:
        raise InvalidValue(f"topi.expand_dims: expected num_newaxis >= 0, found {num_newaxis}")
    return te.compute(
        [*a.shape[:axis], *[1] * num_newaxis, *a.shape[axis:]],
        lambda *ax: a(*ax[:axis], *ax[axis + num_newaxis :]),
        name="T_expand_dims",
        tag=tag.BROADCAST,
    )


def expand_like(a: Tensor, shape_like: Tensor, axis: int | Sequence[int]) -> Tensor:
    """`a` with the dimensions `axis` of `shape_like` inserted, along which its elements repeat."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    if len(axes) + a.ndim != shape_like.ndim:
        # A scalar written as a tensor of one dimension.
        if a.ndim == 1 and len(axes) == shape_like.ndim:
            return te.compute(shape_like.shape, lambda *i: a(0))
        raise ShapeMismatch(
            f"topi.expand_like: {shape_text(a.shape)} with {len(axes)} more axes does not have the "
            f"{shape_like.ndim} dimensions of {shape_text(shape_like.shape)}"
        )
    new = {require_axis(i, shape_like.ndim, "expand_like") for i in axes}
    return te.compute(shape_like.shape, lambda *i: a(*[v for n, v in enumerate(i) if n not in new]))


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """`a` with its dimensions in the order `axes`, reversed unless given."""
    order = list(axes) if axes is not None and len(axes) else list(range(a.ndim))[::-1]
    order = [require_axis(i, a.ndim, "transpose", "axes") for i in order]
    if sorted(order) != list(range(a.ndim)):
        raise InvalidValue(
            f"topi.transpose: expected each axis of {shape_text(a.shape)} once, found {tuple(axes or ())}"
        )
    place = [order.index(i) for i in range(a.ndim)]
    return te.compute(
        [a.shape[i] for i in order], lambda *ax: a(*[ax[i] for i in place]), name="T_transpose", tag=tag.INJECTIVE
    )


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """`a` with the order along an axis reversed."""
    axis = require_axis(axis, a.ndim, "flip")

    def element(*ax: PrimExpr) -> Any:
        last = ops.subtract(a.shape[axis], 1)
        return a(*[ops.subtract(last, v) if i == axis else v for i, v in enumerate(ax)])

    return te.compute(a.shape, element, name="T_reverse_sequence", tag=tag.INJECTIVE)


def reverse_sequence(a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Tensor:
    """`a` with the first `seq_lengths[b]` elements along `seq_axis` reversed, for each index b of `batch_axis`."""
    seq_axis = require_axis(seq_axis, a.ndim, "reverse_sequence", "seq_axis")
    batch_axis = require_axis(batch_axis, a.ndim, "reverse_sequence", "batch_axis")
    require_ndim(seq_lengths, 1, "reverse_sequence", "seq_lengths")
    if not is_equal(seq_lengths.shape[0], a.shape[batch_axis]):
        raise ShapeMismatch(
            f"topi.reverse_sequence: expected a length for each of the {a.shape[batch_axis]} indices of axis "
            f"{batch_axis}, found {seq_lengths.shape[0]} lengths"
        )

    def element(*ax: PrimExpr) -> Any:
        length, index, extent = seq_lengths(ax[batch_axis]), ax[seq_axis], a.shape[seq_axis]
        from_end = tir_op.if_then_else(
            ops.greater(length, extent),
            ops.subtract(ops.subtract(extent, 1), index),
            ops.subtract(ops.subtract(length, 1), index),
        )
        kept = ops.logical_or(ops.less_equal(length, 1), ops.less_equal(length, index))
        place = tir_op.if_then_else(kept, index, from_end)
        return a(*[place if i == seq_axis else v for i, v in enumerate(ax)])

    return te.compute(a.shape, element, name="T_reverse_sequence", tag=tag.INJECTIVE)


def reshape(a: Tensor, newshape: Shape) -> Tensor:
    """The elements of `a` in row-major order in another shape of as many elements."""
    target = expr_array(newshape)
    have, want = as_int(size_of(a.shape)), as_int(size_of(target))
    if have is not None and want is not None and have != want:
        raise ShapeMismatch(f"topi.reshape: {shape_text(a.shape)} has {have} elements, {shape_text(target)} has {want}")
    if is_empty(target) or is_empty(a.shape):
        return te.compute(target, lambda *ax: const(0, a.dtype), name="T_reshape", tag=tag.INJECTIVE)
    return te.compute(target, lambda *ax: a(*unravel(ravel(ax, target), a.shape)), name="T_reshape", tag=tag.INJECTIVE)


def squeeze(a: Tensor, axis: Axes = None) -> Tensor:
    """`a` without dimensions of extent 1: those of `axis`, or (None) all that are known to be 1."""
    if axis is None:
        removed = {i for i, extent in enumerate(a.shape) if as_int(extent) == 1}
    else:
        axes = axis if isinstance(axis, (list, tuple)) else (axis,)
        removed = {require_axis(i, a.ndim, "squeeze") for i in axes}
        for i in removed:
            if as_int(a.shape[i]) not in (1, None):
                raise ShapeMismatch(f"topi.squeeze: axis {i} of {shape_text(a.shape)} is not of extent 1")

    def element(*ax: PrimExpr) -> Any:
        kept = iter(ax)
        return a(*[0 if i in removed else next(kept) for i in range(a.ndim)])

    kept_shape = [extent for i, extent in enumerate(a.shape) if i not in removed]
    return te.compute(kept_shape, element, name="T_squeeze", tag=tag.INJECTIVE)


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis; their other extents are equal."""
    first, axis = _joined(a_tuple, axis, "concatenate", new_axis=False)
    size = a_tuple[0].shape[axis]
    for other in a_tuple[1:]:
        size = ops.add(size, other.shape[axis])

    def element(*ax: PrimExpr) -> Any:
        value, index = first(*ax), ax[axis]
        for before, other in itertools.pairwise(a_tuple):
            index = ops.subtract(index, before.shape[axis])
            value = tir_op.if_then_else(ops.greater_equal(index, 0), other(*ax[:axis], index, *ax[axis + 1 :]), value)
        return value

    target = [*first.shape[:axis], Analyzer().simplify(size), *first.shape[axis + 1 :]]
    return te.compute(target, element, name="T_concat", tag=tag.INJECTIVE)


def stack(a: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors of one shape along a new axis."""
    first, axis = _joined(a, axis, "stack", new_axis=True)

    def element(*ax: PrimExpr) -> Any:
        place = (*ax[:axis], *ax[axis + 1 :])
        value = first(*place)
        for i, other in enumerate(a[1:], 1):
            value = tir_op.if_then_else(ops.equal(ax[axis], i), other(*place), value)
        return value

    return te.compute([*first.shape[:axis], len(a), *first.shape[axis:]], element, name="T_stack", tag=tag.INJECTIVE)


def _joined(tensors: Sequence[Tensor], axis: int, function: str, new_axis: bool) -> tuple[Tensor, int]:
    """The first tensor, and the axis counted from the front. Raises where dtypes or shapes do not fit together."""
    if not tensors:
        raise InvalidValue(f"topi.{function}: expected at least one tensor, found none")
    first = tensors[0]
    axis = require_axis(axis, first.ndim + new_axis, function)
    for other in tensors[1:]:
        if other.dtype != first.dtype:
            raise TypeMismatch(f"topi.{function}: expected tensors of one dtype, found {first.dtype} and {other.dtype}")
        extents = zip(first.shape, other.shape, strict=False)
        differ = [
            i
            for i, (x, y) in enumerate(extents)
            if (new_axis or i != axis) and None not in (as_int(x), as_int(y)) and not is_equal(x, y)
        ]
        if other.ndim != first.ndim or differ:
            raise ShapeMismatch(
                f"topi.{function}: {shape_text(first.shape)} and {shape_text(other.shape)} do not fit together "
                f"along axis {axis}"
            )
    return first, axis


def repeat(a: Tensor, repeats: int, axis: int) -> Tensor:
    """Each element along an axis `repeats` times in a row."""
    axis = require_axis(axis, a.ndim, "repeat")
    repeats = require_int(repeats, "repeat", "repeats")
    if repeats < 0:
        raise InvalidValue(f"topi.repeat: expected repeats >= 0, found {repeats}")
    return te.compute(
        [*a.shape[:axis], ops.multiply(repeats, a.shape[axis]), *a.shape[axis + 1 :]],
        lambda *ax: a(*ax[:axis], ops.floordiv(ax[axis], max(repeats, 1)), *ax[axis + 1 :]),
        name="T_repeat",
        tag=tag.BROADCAST,
    )


def tile(a: Tensor, reps: Any) -> Tensor:
    """`a` as a whole repeated `reps[i]` times along dimension i; the shorter of shape and reps is filled with ones."""
    times = expr_array(reps)
    ndim = max(a.ndim, len(times))
    extents = [*[1] * (ndim - a.ndim), *a.shape]
    times = [*[1] * (ndim - len(times)), *times]
    target = [ops.multiply(extent, t) for extent, t in zip(extents, times, strict=True)]
    if is_empty(target):
        return te.compute(target, lambda *ax: const(0, a.dtype), name="T_tile", tag=tag.BROADCAST)
    return te.compute(
        target,
        lambda *ax: a(*[ops.floormod(v, d) for v, d in zip(ax[ndim - a.ndim :], a.shape, strict=True)]),
        name="T_tile",
        tag=tag.BROADCAST,
    )


def layout_transform(array: Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None") -> Tensor:
    """`array` in another layout; where a factor does not divide an axis, the rest is filled with zeros."""
    if src_layout == dst_layout:
        return array
    src, dst = Layout(src_layout), Layout(dst_layout)
    if len(src) != array.ndim:
        raise ShapeMismatch(
            f"topi.layout_transform: the layout {src_layout!r} has {len(src)} axes, "
            f"the tensor has the shape {shape_text(array.shape)}"
        )
    converter = BijectiveLayout(src, dst)
    attrs = {
        "schedule_rule": schedule_rule,
        "src_layout": src_layout,
        "dst_layout": dst_layout,
        "input_shape": array.shape,
    }

    def element(*ax: PrimExpr) -> Any:
        indices = converter.backward_index(Array(ax))
        inside = const(True)
        for index, extent in zip(indices, array.shape, strict=True):
            inside = ops.logical_and(inside, ops.less(index, extent))
        return tir_op.if_then_else(inside, array(*indices), const(0, array.dtype))

    return te.compute(
        converter.forward_shape(array.shape), element, name="T_layout_trans", tag=tag.INJECTIVE, attrs=attrs
    )


def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Tensor:
    """`data` with `mask_value` from index `valid_length[b]` of `axis` on, for index b of the other of axes 0 and 1."""
    if data.ndim < 2:
        raise ShapeMismatch(f"topi.sequence_mask: expected at least 2 dimensions, found {shape_text(data.shape)}")
    if axis not in (0, 1):
        raise InvalidValue(f"topi.sequence_mask: expected axis 0 or 1, found {axis}")
    require_ndim(valid_length, 1, "sequence_mask", "valid_length")
    mask = const(mask_value, data.dtype)

    def element(*ax: PrimExpr) -> Any:
        beyond = ops.greater_equal(ops.cast(valid_length.dtype, ax[axis]), valid_length(ax[1 - axis]))
        return tir_op.if_then_else(beyond, mask, data(*ax))

    return te.compute(data.shape, element, name="T_sequence_mask", tag=tag.INJECTIVE)
