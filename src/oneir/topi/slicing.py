"""Parts of tensors: slices, splits and windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..arith import Analyzer
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Select, Var, as_expr, as_int, const
from ..runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.expr import ProducerLoad
from . import tag
from .index import Shape, constants, require_axis, require_int, require_ndim, shape_text


def strided_slice(
    a: Tensor,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Any = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> Tensor:
    """a[begin:end:strides] along the leading dimensions, or along `axes`.

    Bounds count from the end where negative; None leaves a side open. With `slice_mode="size"`, `end` holds lengths
    instead, -1 for all that follows, and strides are not used. Where an extent or a bound is not known,
    `assume_inbound` says that no bound needs to be cut to the extent. Bounds given as tensors make a result whose
    extents are new variables.
    """
    if slice_mode not in ("end", "size"):
        raise InvalidValue(f'topi.strided_slice: expected slice_mode "end" or "size", found {slice_mode!r}')
    if any(isinstance(v, Tensor) for v in (begin, end, strides)):
        if axes is not None:
            raise InvalidValue("topi.strided_slice: axes cannot be given together with bounds in tensors")
        return _slice_by_tensors(a, begin, end, strides)
    begin, end = list(begin), list(end)
    count = len(axes) if axes else max(len(begin), len(end))
    if count > a.ndim or (axes and (len(begin), len(end)) != (count, count)):
        raise ShapeMismatch(
            f"topi.strided_slice: {len(begin)} begins, {len(end)} ends and axes {axes} for a tensor of shape "
            f"{shape_text(a.shape)}"
        )
    where = [require_axis(i, a.ndim, "strided_slice", "an axis") for i in axes] if axes else list(range(count))
    strides = list(strides or ())
    strides += [1] * (count - len(strides))
    begin += [None] * (count - len(begin))
    end += [None] * (count - len(end))
    if any(as_int(s) == 0 for s in strides):
        raise InvalidValue("topi.strided_slice: expected strides other than 0")
    known = [v for v in (*begin, *end, *strides, *a.shape) if v is not None]
    if constants(known) is not None:
        name = "T_strided_slice_with_axes" if axes else "T_strided_slice"
        return _static_slice(a, begin, end, strides, where, slice_mode, name)
    name = "T_dynamic_strided_slice_with_axes" if axes else "T_dynamic_strided_slice"
    return _symbolic_slice(a, begin, end, strides, where, slice_mode, assume_inbound, name)


def _sliced(a: Tensor, shape: Sequence[Any], begins: dict[int, Any], strides: dict[int, Any], name: str) -> Tensor:
    def element(*ax: PrimExpr) -> PrimExpr:
        place = list(ax)
        for axis, first in begins.items():
            place[axis] = ops.add(ops.multiply(ax[axis], strides[axis]), first)
        return a(*place)

    return te.compute(shape, element, name=name, tag=tag.INJECTIVE)


def _static_slice(
    a: Tensor, begin: list[Any], end: list[Any], strides: list[Any], axes: list[int], mode: str, name: str
) -> Tensor:
    shape = list(a.shape)
    begins: dict[int, Any] = {}
    steps: dict[int, Any] = {}
    for axis, b, e, s in zip(axes, begin, end, strides, strict=True):
        extent = require_int(a.shape[axis], "strided_slice", "an extent")
        first = None if b is None else as_int(b)
        step, last = (1 if mode == "size" else as_int(s)), None if e is None else as_int(e)
        if mode == "size" and last is not None:
            start = slice(first, None).indices(extent)[0]
            last = None if last < 0 else start + last
        taken = range(*slice(first, last, step).indices(extent))
        dtype = a.shape[axis].dtype
        shape[axis] = const(len(taken), dtype)
        begins[axis], steps[axis] = const(taken.start, dtype), const(taken.step, dtype)
    return _sliced(a, shape, begins, steps, name)


def _symbolic_slice(
    a: Tensor,
    begin: list[Any],
    end: list[Any],
    strides: list[Any],
    axes: list[int],
    mode: str,
    assume_inbound: bool,
    name: str,
) -> Tensor:
    analyzer = Analyzer()
    shape = list(a.shape)
    begins: dict[int, Any] = {}
    steps: dict[int, Any] = {}
    for axis, b, e, s in zip(axes, begin, end, strides, strict=True):
        extent, step = a.shape[axis], const(1) if mode == "size" else as_expr(s)
        backwards = ops.less(step, 0)
        first = last = None
        if b is not None:
            first = _from_front(b, extent, step, assume_inbound)
        if mode == "size" and e is not None and (as_int(e) or 0) >= 0:
            last = ops.add(0 if first is None else first, e)
        elif mode == "end" and e is not None:
            last = _from_front(e, extent, step, assume_inbound)
        if first is None:
            first = tir_op.if_then_else(backwards, ops.subtract(extent, 1), const(0, extent.dtype))
        if last is None:
            last = tir_op.if_then_else(backwards, const(-1, extent.dtype), extent)
        length = _length(first, last, step)
        if mode == "end" and not assume_inbound and not _in_order(b, e, step, extent):
            length = ops.maximum(length, 0)
        shape[axis] = analyzer.simplify(length)
        # Where nothing is read unless the begin lies inside, it does not have to be cut.
        known = None if b is None else as_int(b)
        if b is not None and known is not None and known >= 0 and (as_int(step) or 0) > 0:
            first = as_expr(b)
        begins[axis], steps[axis] = first, step
    return _sliced(a, shape, begins, steps, name)


def _from_front(bound: Any, extent: PrimExpr, step: PrimExpr, assume_inbound: bool) -> PrimExpr:
    """A bound counted from the front, and cut to what a slice in the direction of the step can have.

    A bound in order is only moved to the front where it is known to be negative.
    """
    value = as_int(bound)
    if assume_inbound:
        return ops.add(extent, bound) if value is not None and value < 0 else as_expr(bound)
    if bound is extent:
        return bound
    if value is None or value < 0:
        bound = tir_op.if_then_else(ops.less(bound, 0), ops.add(bound, extent), bound)
    backwards = ops.less(step, 0)
    low = tir_op.if_then_else(backwards, -1, 0)
    high = tir_op.if_then_else(backwards, ops.subtract(extent, 1), extent)
    return ops.minimum(ops.maximum(bound, low), high)


def slice_length(begin: Any, end: Any, stride: Any, extent: Any, assume_inbound: bool = True) -> PrimExpr:
    """The number of elements of begin:end:stride of an axis; with `assume_inbound`, of bounds that are in order."""
    stride, extent = as_expr(stride), as_expr(extent)
    first, last = (_from_front(bound, extent, stride, assume_inbound) for bound in (begin, end))
    length = _length(first, last, stride)
    return length if assume_inbound or _in_order(begin, end, stride, extent) else ops.maximum(length, 0)


def _in_order(begin: Any, end: Any, step: Any, extent: Any) -> bool:
    """Whether bounds, cut to the extent, are in the order of the step whatever a symbolic extent is."""
    sign = as_int(step)
    if begin is None or end is None or sign is None:
        return sign is not None
    first, last = as_int(begin), as_int(end)
    if first is not None and last is not None and (first < 0) == (last < 0):
        return first <= last if sign > 0 else first >= last
    # One of the bounds is an end of the axis; no extent reaches the largest int32.
    far = 2**31 - 1
    if sign > 0:
        return first == 0 or end is extent or (last is not None and last >= far)
    return first == -1 or (first is not None and first >= far) or (last is not None and last <= -far)


def _length(first: PrimExpr, last: PrimExpr, step: PrimExpr) -> PrimExpr:
    forwards = tir_op.ceildiv(ops.subtract(last, first), step)
    if (as_int(step) or 0) > 0:
        return forwards
    backwards = tir_op.ceildiv(ops.subtract(first, last), ops.negative(step))
    return tir_op.if_then_else(ops.less(step, 0), backwards, forwards)


def _slice_by_tensors(a: Tensor, begin: Any, end: Any, strides: Any) -> Tensor:
    given = next(v for v in (begin, end, strides) if isinstance(v, Tensor))
    require_ndim(given, 1, "strided_slice", "bounds in a vector")
    count = require_int(given.shape[0], "strided_slice", "the number of bounds")
    if count > a.ndim:
        raise ShapeMismatch(f"topi.strided_slice: {count} bounds for a tensor of shape {shape_text(a.shape)}")

    def values(vector: Any) -> list[PrimExpr]:
        if isinstance(vector, Tensor):
            return [vector(const(i, given.shape[0].dtype)) for i in range(count)]
        return [as_expr(v) for v in vector]

    first, last, step = values(begin), values(end), values([1] * count if strides is None else strides)
    if not len(first) == len(last) == len(step) == count:
        raise ShapeMismatch(
            f"topi.strided_slice: expected as many begins, ends and strides, found {len(first)}, {len(last)}, "
            f"{len(step)}"
        )
    shape = list(a.shape)
    for i, bounds in enumerate(zip(first, last, step, strict=True)):
        read = any(isinstance(v, ProducerLoad) for v in bounds)
        shape[i] = Var("dim", a.shape[i].dtype) if read else slice_length(*bounds, a.shape[i])
    begins = {i: _inside(v, a.shape[i]) for i, v in enumerate(first)}
    return _sliced(a, shape, begins, dict(enumerate(step)), "T_strided_slice_dynamic")


def _inside(begin: PrimExpr, extent: PrimExpr) -> PrimExpr:
    """The first element of a slice that has any: a begin counted from the front, and cut to the axis."""
    known = as_int(begin)
    if known is not None and known >= 0:
        return ops.minimum(begin, ops.subtract(extent, 1))
    from_front = Select(ops.less(begin, 0), ops.add(begin, extent), begin)
    return ops.maximum(ops.minimum(from_front, ops.subtract(extent, 1)), 0)


def dynamic_strided_slice(a: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Shape) -> Tensor:
    """A slice whose bounds are in vectors, one element for each dimension; the caller gives the resulting shape.

    Begins count from the end where negative, and are cut to the tensor.
    """
    for vector, what in ((begin, "begin"), (end, "end"), (strides, "strides")):
        require_ndim(vector, 1, "dynamic_strided_slice", what)
        if as_int(vector.shape[0]) != a.ndim:
            raise ShapeMismatch(
                f"topi.dynamic_strided_slice: expected {what} of {a.ndim} elements for a tensor of shape "
                f"{shape_text(a.shape)}, found {vector.shape[0]}"
            )

    def element(*ax: PrimExpr) -> PrimExpr:
        place = []
        for i, extent in enumerate(a.shape):
            at = const(i, "int64")
            place.append(ops.add(ops.multiply(ax[i], strides(at)), _inside(begin(at), extent)))
        return a(*place)

    return te.compute(output_shape, element, name="T_strided_slice_dynamic", tag=tag.INJECTIVE)


def strided_set(a: Tensor, v: Tensor, begin: Tensor, end: Tensor, strides: Tensor | None = None) -> Tensor:
    """`a` with the elements of a[begin:end:strides] replaced by those of `v`; bounds are vectors of int32."""
    for vector, what in ((begin, "begin"), (end, "end"), (strides, "strides")):
        if vector is None:
            continue
        require_ndim(vector, 1, "strided_set", what)
        if vector.dtype != "int32":
            raise TypeMismatch(f"topi.strided_set: expected {what} of int32, found {vector.dtype}")

    def entry(vector: Tensor | None, i: int, otherwise: Any) -> PrimExpr:
        if vector is None or i >= require_int(vector.shape[0], "strided_set", "the number of bounds"):
            return as_expr(otherwise)
        return vector(i)

    bounds = []
    for i, extent in enumerate(a.shape):
        step = entry(strides, i, 1)
        forwards = ops.greater(step, 0)
        first = entry(begin, i, Select(forwards, as_expr(0), ops.subtract(extent, 1)))
        last = entry(end, i, Select(forwards, extent, ops.subtract(-1, extent)))
        first, last = (Select(ops.less(b, 0), ops.add(b, extent), b) for b in (first, last))
        bounds.append((first, last, step, forwards))

    def element(*i: PrimExpr) -> PrimExpr:
        inside = const(True)
        place = []
        for index, (first, last, step, forwards) in zip(i, bounds, strict=True):
            ahead = ops.logical_and(ops.greater_equal(index, first), ops.less(index, last))
            behind = ops.logical_and(ops.less_equal(index, first), ops.greater(index, last))
            distance = ops.subtract(index, first)
            inside = ops.logical_and(inside, Select(forwards, ahead, behind))
            inside = ops.logical_and(inside, ops.equal(ops.floormod(distance, step), 0))
            place.append(ops.floordiv(distance, step))
        return tir_op.if_then_else(inside, v(*place), a(*i))

    return te.compute(a.shape, element, name="strided_set", tag=f"{tag.INJECTIVE},strided_set")


def split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """A tensor cut along an axis: into an int number of equal parts, or before each of the given indices."""
    axis = require_axis(axis, ary.ndim, "split")
    extent = ary.shape[axis]
    name = "T_split"
    if isinstance(indices_or_sections, (list, tuple)):
        cuts = [as_expr(i) for i in indices_or_sections]
    else:
        name = "T_split_sections"
        parts = require_int(indices_or_sections, "split", "the number of parts")
        if parts < 1 or (as_int(extent) or 0) % parts:
            raise InvalidValue(f"topi.split: cannot cut {extent} elements along axis {axis} into {parts} equal parts")
        each = ops.floordiv(extent, parts)
        cuts = [ops.multiply(each, i) for i in range(1, parts)]
    known = [c for c in map(as_int, cuts) if c is not None]
    if known != sorted(known) or (known and known[0] < 0):
        raise InvalidValue(f"topi.split: expected ascending indices, found {known}")
    begins = [const(0), *cuts]
    ends = [*cuts, extent]

    def part(begin: PrimExpr, end: PrimExpr) -> Tensor:
        return te.compute(
            [*ary.shape[:axis], ops.subtract(end, begin), *ary.shape[axis + 1 :]],
            lambda *ax: ary(*ax[:axis], ops.add(ax[axis], begin), *ax[axis + 1 :]),
            name=name,
            tag=tag.INJECTIVE,
        )

    return [part(begin, end) for begin, end in zip(begins, ends, strict=True)]


def sliding_window(data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]) -> Tensor:
    """All windows over `axis` and the axes after it, `strides` apart; their own dimensions come last."""
    axis = require_axis(axis, data.ndim, "sliding_window")
    window, steps = list(window_shape), list(strides)
    count = data.ndim - axis
    if not len(window) == len(steps) == count:
        raise ShapeMismatch(
            f"topi.sliding_window: expected {count} window extents and strides for {shape_text(data.shape)} from axis "
            f"{axis} on, found {window} and {steps}"
        )

    def element(*ax: PrimExpr) -> PrimExpr:
        which, inside = ax[axis : axis + count], ax[axis + count :]
        place = [ops.add(ops.multiply(w, s), i) for w, s, i in zip(which, steps, inside, strict=True)]
        return data(*ax[:axis], *place)

    counts = [
        ops.floordiv(ops.subtract(ops.add(ops.subtract(d, w - 1), s), 1), s)
        for d, w, s in zip(data.shape[axis:], window, steps, strict=True)
    ]
    return te.compute([*data.shape[:axis], *counts, *window], element, name="T_sliding_window")
