"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.dtype import DataType
from ..ir.expr import PrimExpr
from ..te.tensor import Tensor
from ..tir.buffer import decl_buffer
from ..tir.stmt import Stmt, flat_seq
from .index import require_axis, size_of, unravel
from .loops import allocate, for_each, loop, store


def scanop(
    data: Tensor,
    binop: Callable[[PrimExpr, PrimExpr], PrimExpr],
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Tensor:
    """The running results of an associative operation along an axis.

    Without an axis, over the elements in row-major order as a vector. `dtype` is that of the result and of the
    computation, except that floats of 16 bits are computed in float32. With `exclusive`, an element is not part of its
    own result; the first one is `identity_value`.
    """
    dtype = dtype or data.dtype
    short = DataType(dtype).is_float and DataType(dtype).bits < 32
    shape = [size_of(data.shape)] if axis is None else list(data.shape)
    along = 0 if axis is None else require_axis(axis, data.ndim, op_name.removesuffix("_generic"))
    before, after = shape[:along], shape[along + 1 :]

    def body(ins: Any, outs: Any) -> Stmt:
        source, out = ins[0], outs[0]

        def element(index: list[Any]) -> PrimExpr:
            place = unravel(index[0], data.shape) if axis is None else index
            return ops.cast("float32" if short else dtype, source[tuple(place)])

        # Results of short floats are rounded; what goes on from one to the next is not.
        totals = decl_buffer(after or (1,), "float32", "totals") if short else None

        def keep(place: list[Any], suffix: list[Any], value: Any) -> Stmt:
            if totals is None:
                return store(out, place, value)
            at = suffix or [0]
            return flat_seq([store(totals, at, value), store(out, place, totals[tuple(at)])])

        def first(prefix: list[Any], suffix: list[Any]) -> Stmt:
            place = [*prefix, 0, *suffix]
            return keep(place, suffix, identity_value if exclusive else element(place))

        def next_one(prefix: list[Any], k: PrimExpr, suffix: list[Any]) -> Stmt:
            place, previous = [*prefix, k, *suffix], [*prefix, k - 1, *suffix]
            total = out[tuple(previous)] if totals is None else totals[tuple(suffix or [0])]
            return keep(place, suffix, binop(total, element(previous if exclusive else place)))

        def lane(prefix: list[Any]) -> Stmt:
            # The first step stands in a loop as well, so that an empty axis has none.
            begin = loop(0, ops.minimum(shape[along], 1), lambda _: for_each(after, lambda s: first(prefix, s)), "k")
            rest = loop(1, shape[along], lambda k: for_each(after, lambda s: next_one(prefix, k, s)), "k")
            return flat_seq([begin, rest]) if totals is None else allocate([totals], begin, rest)

        return for_each(before, lane, parallel=True)

    return te.extern(
        [shape],
        [data],
        body,
        name=op_name,
        dtype=dtype,
        out_buffers=[decl_buffer(shape, dtype, "out_buf")],
        tag=op_name,
    )


def cumsum(data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """The sum of the elements up to each one along an axis, or (None) in row-major order; see `scanop`.

    Of bools, in their dtype, whether any of them holds.
    """
    return scanop(data, add_or_any, 0, "cumsum_generic", axis, dtype, exclusive)


def add_or_any(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The sum; of bools, whether any of them holds."""
    return ops.logical_or(a, b) if a.dtype.is_bool else ops.add(a, b)


def cumprod(data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """The product of the elements up to each one along an axis, or (None) in row-major order; see `scanop`."""
    return scanop(data, ops.multiply, 1, "cumprod_generic", axis, dtype, exclusive)
