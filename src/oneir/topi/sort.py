"""Sorting along an axis: stable, by merging, with NaN greater than any number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, StringImm, as_int, const
from ..runtime.error import InvalidValue
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.buffer import Buffer, decl_buffer
from ..tir.stmt import AssertStmt, IfThenElse, Stmt, While, flat_seq
from .index import is_equal, ravel, require_axis, require_ndim, shape_text
from .loops import allocate, for_each, let, loop, scalar, store


def sort(data: Tensor, axis: int = -1, is_ascend: Any = 1) -> Tensor:
    """The elements along an axis in ascending or descending order."""
    axis = require_axis(axis, data.ndim, "sort")
    out = decl_buffer(data.shape, data.dtype, "out_buf")
    return _sorted(data, axis, bool(is_ascend), [out], [], "sort_cpu")[0]


def argsort(
    data: Tensor, valid_count: Tensor | None = None, axis: int = -1, is_ascend: Any = 1, dtype: str = "float32"
) -> Tensor:
    """The indices of the elements along an axis in ascending or descending order.

    With `valid_count`, a vector over the dimensions before the axis, only so many elements take part; the indices of
    the others follow as they are, and the dtype is int32.
    """
    axis = require_axis(axis, data.ndim, "argsort")
    if valid_count is not None:
        require_ndim(valid_count, 1, "argsort", "valid_count")
        dtype = "int32"
    out = decl_buffer(data.shape, dtype, "out_buf")
    name = "argsort_cpu" if valid_count is None else "argsort_nms_cpu"
    return _sorted(data, axis, bool(is_ascend), [], [out], name, valid_count)[0]


def topk(
    data: Tensor, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """The k largest elements along an axis, the smallest with `is_ascend`, in order; all for k below 1.

    `ret_type` says whether "values", "indices" or "both" are returned. A tensor k leaves the extent open.
    """
    shape, axis = topk_shape(data, k, axis, ret_type)
    values = [] if ret_type == "indices" else [decl_buffer(shape, data.dtype, "value_buf")]
    indices = [] if ret_type == "values" else [decl_buffer(shape, dtype, "indices_buf")]
    outputs = _sorted(data, axis, bool(is_ascend), values, indices, "topk_cpu")
    return outputs if ret_type == "both" else outputs[0]


def topk_shape(data: Tensor, k: Any, axis: int, ret_type: str) -> tuple[list[Any], int]:
    """The shape of what `topk` returns, and the axis, counted from the first; raises `InvalidValue` as `topk` does."""
    if ret_type not in ("both", "values", "indices"):
        raise InvalidValue(f'topi.topk: expected ret_type "both", "values" or "indices", found {ret_type!r}')
    axis = require_axis(axis, data.ndim, "topk")
    shape: list[Any] = list(data.shape)
    if isinstance(k, Tensor):
        shape[axis] = te.size_var("k")
    elif as_int(k) is None or (as_int(k) or 0) >= 1:
        have, want = as_int(shape[axis]), as_int(k)
        if have is not None and want is not None and want > have:
            raise InvalidValue(
                f"topi.topk: expected k of at most {have} for {shape_text(data.shape)} along axis {axis}, found {want}"
            )
        shape[axis] = k
    return shape, axis


def precedes(x: PrimExpr, y: PrimExpr, is_ascend: bool) -> PrimExpr:
    """Whether x must stand before y."""
    if x.dtype.is_bool:
        x, y = ops.cast("int8", x), ops.cast("int8", y)
    lesser, greater = (x, y) if is_ascend else (y, x)
    holds = ops.less(lesser, greater)
    if x.dtype.is_float:
        holds = ops.logical_or(holds, ops.logical_and(tir_op.isnan(greater), ops.logical_not(tir_op.isnan(lesser))))
    return holds


def _sorted(
    data: Tensor,
    axis: int,
    is_ascend: bool,
    values: list[Buffer],
    indices: list[Buffer],
    name: str,
    valid_count: Tensor | None = None,
) -> list[Tensor]:
    """Tensors of the sorted elements and of their indices, cut to the extents of the given output buffers."""
    extent = data.shape[axis]
    others = [*data.shape[:axis], *data.shape[axis + 1 :]]
    outputs = [*values, *indices]

    def body(ins: Any, outs: Any) -> Stmt:
        def row(rest: list[Any]) -> Stmt:
            def at(i: PrimExpr) -> tuple[Any, ...]:
                return (*rest[:axis], i, *rest[axis:])

            def write(count: PrimExpr, nth: Callable[[Any], PrimExpr]) -> Stmt:
                stmts = []
                for n, out in enumerate(outs):

                    def element(i: PrimExpr, n: int = n, out: Buffer = out) -> Stmt:
                        which = nth(i) if valid_count is None else tir_op.if_then_else(ops.less(i, count), nth(i), i)
                        return store(out, at(i), ins[0][at(which)] if n < len(values) else which)

                    stmts.append(loop(0, out.shape[axis], element))
                return flat_seq(stmts)

            def compare(i: PrimExpr, j: PrimExpr) -> PrimExpr:
                return precedes(ins[0][at(i)], ins[0][at(j)], is_ascend)

            count = extent
            if valid_count is not None:
                before = ravel(rest[:axis], data.shape[:axis])
                count = ops.minimum(ops.cast(extent.dtype, ins[1][before]), extent)
            wanted = as_int(outputs[0].shape[axis])
            if valid_count is None and wanted is not None and 0 < wanted <= _FEW:
                return _insertion(extent, wanted, compare, write)
            return let("count", count, lambda n: _merge_sort(extent, n, compare, write))

        rows = for_each(others, row, parallel=True)
        wanted = outputs[0].shape[axis]
        if as_int(extent) is not None or is_equal(wanted, extent):
            return rows
        enough = f"topk: expected k of at most the number of elements along axis {axis}, found {wanted}"
        return AssertStmt(ops.less_equal(wanted, extent), StringImm(enough), rows)

    made = te.extern(
        [b.shape for b in outputs] if len(outputs) > 1 else [list(outputs[0].shape)],
        [data] if valid_count is None else [data, valid_count],
        body,
        name=name,
        dtype=[b.dtype for b in outputs],
        out_buffers=outputs,
        tag=name,
    )
    return made if isinstance(made, list) else [made]


_FEW = 32
"""Up to so many elements are found by insertion into a list of the best ones; most elements are not inserted."""


def _insertion(
    extent: PrimExpr,
    wanted: int,
    precedes: Callable[[Any, Any], PrimExpr],
    write: Callable[[PrimExpr, Callable[[Any], PrimExpr]], Stmt],
) -> Stmt:
    """Finds the indices of the first few elements in order, then writes."""
    dtype = extent.dtype
    order = decl_buffer((wanted,), dtype, "order", scope="local")
    found, place = scalar("found", dtype), scalar("place", dtype)

    def candidate(i: PrimExpr) -> Stmt:
        before = ops.subtract(place[0], 1)
        ahead = tir_op.if_then_else(ops.greater(place[0], 0), precedes(i, order[before]), const(False))
        insert = [
            store(place, (0,), ops.minimum(found[0], wanted - 1)),
            While(ahead, flat_seq([store(order, (place[0],), order[before]), store(place, (0,), before)])),
            store(order, (place[0],), i),
            store(found, (0,), ops.minimum(found[0] + 1, wanted)),
        ]
        full = ops.equal(found[0], wanted)
        enters = tir_op.if_then_else(full, precedes(i, order[wanted - 1]), const(True))
        return IfThenElse(enters, flat_seq(insert))

    return allocate(
        [order, found, place],
        store(found, (0,), 0),
        loop(0, extent, candidate),
        write(extent, lambda i: order[i]),
    )


def _merge_sort(
    extent: PrimExpr,
    count: PrimExpr,
    precedes: Callable[[Any, Any], PrimExpr],
    write: Callable[[PrimExpr, Callable[[Any], PrimExpr]], Stmt],
) -> Stmt:
    """Sorts the indices below `count`, then writes; runs of twice the width are merged from one half of the memory
    into the other until there is one run.
    """
    dtype = extent.dtype
    order = decl_buffer((2, extent), dtype, "order")
    half, width, begin, left, right = (scalar(n, dtype) for n in ("half", "width", "begin", "left", "right"))

    def merge(middle: PrimExpr, end: PrimExpr) -> Stmt:
        first, second = order[half[0], left[0]], order[half[0], right[0]]
        exhausted = ops.greater_equal(right[0], end)
        # Equal elements keep their order: the second goes first only where it must.
        ordered = tir_op.if_then_else(
            ops.greater_equal(left[0], middle), const(False), ops.logical_not(precedes(second, first))
        )

        def place(k: PrimExpr) -> Stmt:
            other = ops.subtract(1, half[0])
            return IfThenElse(
                tir_op.if_then_else(exhausted, const(True), ordered),
                flat_seq([store(order, (other, k), first), store(left, (0,), left[0] + 1)]),
                flat_seq([store(order, (other, k), second), store(right, (0,), right[0] + 1)]),
            )

        return flat_seq([store(left, (0,), begin[0]), store(right, (0,), middle), loop(begin[0], end, place, "k")])

    def pair() -> Stmt:
        middle = ops.minimum(begin[0] + width[0], count)
        end = ops.minimum(begin[0] + width[0] * 2, count)
        both = let("middle", middle, lambda m: let("end", end, lambda e: merge(m, e)))
        return flat_seq([both, store(begin, (0,), begin[0] + width[0] * 2)])

    sweep = [
        store(begin, (0,), 0),
        While(ops.less(begin[0], count), pair()),
        store(half, (0,), ops.subtract(1, half[0])),
        store(width, (0,), width[0] * 2),
    ]
    return allocate(
        [order, half, width, begin, left, right],
        loop(0, count, lambda i: store(order, (0, i), i)),
        store(half, (0,), 0),
        store(width, (0,), 1),
        While(ops.less(width[0], count), flat_seq(sweep)),
        write(count, lambda i: order[half[0], i]),
    )
