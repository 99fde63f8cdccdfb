"""Tensors of which some elements are replaced by, or combined with, updates at given indices.

Updates are applied in row-major order: of several at one place, the last one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, as_expr, as_int
from ..runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.buffer import decl_buffer
from ..tir.stmt import Stmt, flat_seq
from . import tag
from .broadcast import add, divide
from .index import (
    broadcast_index,
    broadcast_shape,
    is_equal,
    require_axis,
    require_int,
    shape_text,
)
from .loops import for_each, loop, store

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": add,
    "mul": ops.multiply,
    "mean": lambda old, new: divide(add(old, new), 2),
    "min": ops.minimum,
    "max": ops.maximum,
}


def _combination(name: str, allowed: tuple[str, ...], function: str, what: str) -> Callable[[Any, Any], Any]:
    if name not in allowed:
        raise InvalidValue(f"topi.{function}: expected {what} to be one of {allowed}, found {name!r}")
    return _COMBINE[name]


def _from_front(index: PrimExpr, extent: PrimExpr) -> PrimExpr:
    """An index that counts from the end where it is negative."""
    if index.dtype.is_uint:
        return index
    wide = ops.add(index, ops.cast(index.dtype, extent))
    return tir_op.if_then_else(ops.less(index, 0), wide, index)


def _copy(data: Tensor, source: Any, out: Any) -> Stmt:
    return for_each(data.shape, lambda i: store(out, i, source[tuple(i)]), parallel=True)


def _require_integers(indices: Tensor, function: str) -> None:
    if not indices.dtype.is_int:
        raise TypeMismatch(f"topi.{function}: expected indices that are integers, found {indices.dtype}")


def _scattered(data: Tensor, inputs: list[Tensor], body: Callable[[Any, Any], Stmt], name: str) -> Tensor:
    """A copy of the data, changed by the body, which gets the buffers of the inputs and of the output."""
    return te.extern(
        [list(data.shape)],
        [data, *inputs],
        lambda ins, outs: flat_seq([_copy(data, ins[0], outs[0]), body(ins[1:], outs[0])]),
        name=name,
        dtype=data.dtype,
        out_buffers=[decl_buffer(data.shape, data.dtype, "out_buf")],
        tag=name,
    )


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """out[i][indices[i][j]] = f(out[i][indices[i][j]], updates[i][j]), for axis 1 of 2.

    `reduction` names f: "update" takes the update, "add", "mul", "mean", "min" and "max" combine both. `indices` and
    `updates` have one shape, and as many dimensions as `data`; indices below zero count from the end.
    """
    axis = require_axis(axis, data.ndim, "scatter_elements")
    combine = _combination(reduction, tuple(_COMBINE), "scatter_elements", "reduction")
    _require_integers(indices, "scatter_elements")
    known = zip(indices.shape, updates.shape, strict=False)
    differ = any(None not in (as_int(x), as_int(y)) and not is_equal(x, y) for x, y in known)
    if differ or not indices.ndim == updates.ndim == data.ndim:
        raise ShapeMismatch(
            f"topi.scatter_elements: expected indices and updates of one shape, with the {data.ndim} dimensions of the "
            f"data, found {shape_text(indices.shape)} and {shape_text(updates.shape)}"
        )

    def body(ins: Any, out: Any) -> Stmt:
        index, update = ins

        def lane(rest: list[Any]) -> Stmt:
            def element(k: PrimExpr) -> Stmt:
                place = (*rest[:axis], k, *rest[axis:])
                target = (*rest[:axis], _from_front(index[place], data.shape[axis]), *rest[axis:])
                return store(out, target, combine(out[target], update[place]))

            return loop(0, indices.shape[axis], element, "k")

        # Elements of different lanes go to different places.
        return for_each([*indices.shape[:axis], *indices.shape[axis + 1 :]], lane, parallel=True)

    return _scattered(data, [indices, updates], body, "scatter_elements.generic")


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str) -> Tensor:
    """out[indices[0, y], ..., indices[M - 1, y], x] = f(out[...], updates[y, x]), for all indices y and x.

    `mode` names f: "update" takes the update, "add", "mul", "min" and "max" combine both. Indices below zero count
    from the end.
    """
    combine = _combination(mode, ("update", "add", "mul", "min", "max"), "scatter_nd", "mode")
    _require_integers(indices, "scatter_nd")
    count = require_int(indices.shape[0], "scatter_nd", "the first extent of indices") if indices.ndim else 0
    expected = [*indices.shape[1:], *data.shape[count:]]
    known = zip(expected, updates.shape, strict=False)
    differ = any(None not in (as_int(x), as_int(y)) and not is_equal(x, y) for x, y in known)
    if not 1 <= count <= data.ndim or differ or len(expected) != updates.ndim:
        raise ShapeMismatch(
            f"topi.scatter_nd: indices of shape {shape_text(indices.shape)} into {shape_text(data.shape)} do not fit "
            f"updates of shape {shape_text(updates.shape)}"
        )

    def body(ins: Any, out: Any) -> Stmt:
        index, update = ins

        def element(y: list[Any], x: list[Any]) -> Stmt:
            where = [_from_front(index[(i, *y)], data.shape[i]) for i in range(count)]
            target = (*where, *x)
            return store(out, target, combine(out[target], update[(*y, *x)]))

        inner = data.shape[count:]
        return for_each(indices.shape[1:], lambda y: for_each(inner, lambda x: element(y, x), "j"), "i")

    return _scattered(data, [indices, updates], body, "scatter_nd.generic")


def index_put(data: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """data[i0, i1, ...] = values, or with `accumulate` += values.

    The index tensors broadcast to one shape, which takes the place of the axes they index; `values` broadcasts to the
    result. Indices below zero count from the end.
    """
    indices = list(indices) if isinstance(indices, (list, tuple)) else [indices]
    if not 1 <= len(indices) <= data.ndim:
        raise InvalidValue(
            f"topi.index_put: expected 1 to {data.ndim} index tensors for data of shape {shape_text(data.shape)}, "
            f"found {len(indices)}"
        )
    common = list(indices[0].shape)
    for index in indices:
        _require_integers(index, "index_put")
        common = broadcast_shape(common, index.shape, "index_put")
    target_shape = [*common, *data.shape[len(indices) :]]
    whole = broadcast_shape(target_shape, values.shape, "index_put")
    if len(whole) != len(target_shape) or not all(
        is_equal(x, y) for x, y in zip(whole, target_shape, strict=True) if as_int(y) is not None
    ):
        raise ShapeMismatch(
            f"topi.index_put: values of shape {shape_text(values.shape)} do not broadcast to {shape_text(target_shape)}"
        )
    combine = _COMBINE["add" if accumulate else "update"]

    def body(ins: Any, out: Any) -> Stmt:
        *places, value = ins

        def element(i: list[Any]) -> Stmt:
            head = i[: len(common)]
            where = [place[tuple(broadcast_index(head, place.shape, common))] for place in places]
            fronted = [_from_front(index, extent) for index, extent in zip(where, data.shape, strict=False)]
            target = (*fronted, *i[len(common) :])
            new = value[tuple(broadcast_index(i, values.shape, target_shape))]
            return store(out, target, combine(out[target], new))

        return for_each(target_shape, element, "k")

    return _scattered(data, [*indices, values], body, "index_put.generic")


def slice_scatter(input_tensor: Tensor, src: Tensor, start: Any, end: Any, step: int, axis: int) -> list[Tensor]:
    """`input_tensor` with the slice start:end:step along an axis replaced by `src`; a list of one tensor.

    Bounds that are no constants count from the front and lie in the tensor.
    """
    axis = require_axis(axis, input_tensor.ndim, "slice_scatter")
    by = require_int(step, "slice_scatter", "a bound")
    if by < 1:
        raise InvalidValue(f"topi.slice_scatter: expected a step of at least 1, found {by}")
    first, beyond, length = as_expr(start), as_expr(end), None
    extent, low, high = (as_int(v) for v in (input_tensor.shape[axis], first, beyond))
    if extent is not None and low is not None and high is not None:
        low, high, _ = slice(low, high, by).indices(extent)
        first, beyond, length = as_expr(low), as_expr(high), len(range(low, high, by))
    else:
        first, beyond = (
            ops.add(input_tensor.shape[axis], bound) if (as_int(bound) or 0) < 0 else bound for bound in (first, beyond)
        )
    if src.ndim != input_tensor.ndim or (length is not None and length != as_int(src.shape[axis])):
        raise ShapeMismatch(
            f"topi.slice_scatter: src of shape {shape_text(src.shape)} is no slice {start}:{end}:{step} along axis "
            f"{axis} of {shape_text(input_tensor.shape)}"
        )

    def element(*ax: PrimExpr) -> PrimExpr:
        distance = ops.subtract(ax[axis], first)
        inside = ops.logical_and(ops.greater_equal(ax[axis], first), ops.less(ax[axis], beyond))
        inside = ops.logical_and(inside, ops.equal(ops.floormod(distance, by), 0))
        new = src(*ax[:axis], ops.floordiv(distance, by), *ax[axis + 1 :])
        return tir_op.if_then_else(inside, new, input_tensor(*ax))

    return [te.compute(input_tensor.shape, element, name="slice_scatter", tag=tag.INJECTIVE)]
