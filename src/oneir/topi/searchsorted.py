"""Where values belong in sorted sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import as_int
from ..runtime.error import ShapeMismatch
from ..te.tensor import Tensor
from ..tir import op as tir_op
from ..tir.buffer import Buffer
from ..tir.stmt import IfThenElse, Stmt, While, flat_seq
from .index import is_equal, shape_text
from .loops import allocate, for_each, let, scalar, store


def binary_search(
    sequence_offset: Sequence[Any],
    search_range: Any,
    sorted_sequence: Buffer,
    value: Any,
    right: bool,
    out_dtype: str,
) -> tuple[list[Buffer], Stmt]:
    """The statement that searches a value in the innermost sequence at the leading indices `sequence_offset`.

    It needs the buffers, which the caller allocates; the first element of the first one is the result: the first index
    whose element is not less than the value, or (`right`) the first whose element is greater. NaN is greater than any
    number.
    """
    low, high = scalar("lo", out_dtype), scalar("hi", out_dtype)

    def step(middle: Any) -> Stmt:
        element = sorted_sequence[(*sequence_offset, middle)]
        beyond = ops.less_equal(element, value) if right else ops.less(element, value)
        if value.dtype.is_float:
            unordered = tir_op.isnan(value)
            known = element.dtype.is_float and not right
            greater = ops.logical_and(unordered, ops.logical_not(tir_op.isnan(element))) if known else unordered
            beyond = ops.logical_or(beyond, greater)
        return IfThenElse(beyond, store(low, (0,), ops.add(middle, 1)), store(high, (0,), middle))

    half = ops.shift_right(ops.subtract(high[0], low[0]), 1)
    search = [
        store(low, (0,), 0),
        store(high, (0,), search_range),
        While(ops.less(low[0], high[0]), let("mid", ops.add(low[0], half), step)),
    ]
    return [low, high], flat_seq(search)


def searchsorted(sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64") -> Tensor:
    """For each value the first index at which it can be inserted so that the sequence stays sorted; `right`: the last.

    A vector of sequences is searched for all values; of a tensor, each innermost sequence for the innermost values at
    the same leading indices.
    """
    return search_each(
        sorted_sequence,
        values,
        right,
        out_dtype,
        lambda search: for_each(values.shape, search, parallel=True),
        "searchsorted",
    )


def search_each(
    sorted_sequence: Tensor,
    values: Tensor,
    right: bool,
    out_dtype: str,
    every: Callable[[Callable[[list[Any]], Stmt]], Stmt],
    name: str,
) -> Tensor:
    """`searchsorted` by other loops: `every(search)` is `search(indices)` for the indices of all values."""
    many = sorted_sequence.ndim > 1
    leading = zip(sorted_sequence.shape[:-1], values.shape[:-1], strict=False)
    differ = [(x, y) for x, y in leading if None not in (as_int(x), as_int(y)) and not is_equal(x, y)]
    if not sorted_sequence.ndim or (many and (sorted_sequence.ndim != values.ndim or differ)):
        raise ShapeMismatch(
            f"topi.searchsorted: expected a vector, or sequences with the leading extents of the values "
            f"{shape_text(values.shape)}, found {shape_text(sorted_sequence.shape)}"
        )

    def body(ins: Any, outs: Any) -> Stmt:
        def search(place: list[Any]) -> Stmt:
            where = tuple(place)
            prefix = place[:-1] if many else []
            extent = sorted_sequence.shape[-1]
            buffers, stmt = binary_search(prefix, extent, ins[0], ins[1][where], right, out_dtype)
            return allocate(buffers, stmt, store(outs[0], where, buffers[0][0]))

        return every(search)

    return te.extern([list(values.shape)], [sorted_sequence, values], body, name=name, dtype=out_dtype)
