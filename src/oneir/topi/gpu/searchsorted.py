"""Searching sorted sequences, a thread for each value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import operators as ops
from ...ir.expr import PrimExpr
from ...te.tensor import Tensor
from ...tir.stmt import Evaluate, IfThenElse, Stmt
from ..index import is_empty, size_of, unravel
from ..loops import let
from ..searchsorted import search_each
from .threads import ceil_div, launch

_THREADS = 256


def searchsorted(sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64") -> Tensor:
    """For each value the first index at which it can be inserted so that the sequence stays sorted; see
    `topi.searchsorted`.
    """

    def every(search: Callable[[list[Any]], Stmt]) -> Stmt:
        if is_empty(values.shape):
            return Evaluate(0)
        if not values.shape:
            return launch(1, 1, lambda block, thread: search([]))
        total = ops.cast("int32", size_of(values.shape))

        def one(block: PrimExpr, thread: PrimExpr) -> Stmt:
            def search_at(place: PrimExpr) -> Stmt:
                return IfThenElse(ops.less(place, total), search(unravel(place, values.shape)))

            return let("place", block * _THREADS + thread, search_at)

        return launch(ceil_div(total, _THREADS), _THREADS, one)

    return search_each(sorted_sequence, values, right, out_dtype, every, "searchsorted_gpu")
