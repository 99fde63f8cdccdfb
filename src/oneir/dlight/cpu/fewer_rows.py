"""Tiles of fewer rows at the end of an unknown number of rows.

    for i in range((n + 5) // 6):                 for i in range((n + 5) // 6):
        for r in T.unroll(6): ...        ->           if n - i * 6 <= 1:
                                                          for r in T.unroll(1): ...
                                                      elif n - i * 6 <= 2: ...

A tile computes all of its rows, also those past the end. Of many rows that is a small part; of one row, it would be
most of the work. The last tile therefore has as many rows as the next of 1 to 5 and 8.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr, as_int, const
from ...ir.visitor import Mapper, Visitor
from ...tir.analysis.variables import variables
from ...tir.function import PrimFunc
from ...tir.schedule import LoopRV, Schedule
from ...tir.stmt import BlockRealize, For, IfThenElse
from ...tir.stmt_functor import renew_stmt, substitute

COUNTS = (8, 5, 4, 3, 2, 1)
"""Rows that a last tile may have, if they are fewer than those of other tiles."""


def rows_of_last_tile(rest: int, rows: int) -> int:
    """How many rows the last tile computes if so many are left, and other tiles have `rows`."""
    return min(count for count in (rows, *COUNTS) if count >= rest)


ROWS, TILE = "cpu.rows_of_tile", "cpu.tile"
"""Annotations: of the loops over the rows of a tile, and of the loop whose body is one tile."""


def mark_tile(sch: Schedule, tile: LoopRV, rows: list[LoopRV]) -> None:
    """Marks the loop whose body computes a tile, and the loops over its rows."""
    for loop in rows:
        sch.annotate(loop, ROWS, 1)
    sch.annotate(tile, TILE, 1)


def with_fewer_rows(func: PrimFunc) -> PrimFunc:
    """The function with tiles of fewer rows in the marked loops, which are no longer marked."""
    return func.replace(body=_Tails()(func.body))


def _unmarked(loop: For) -> dict[str, Any]:
    return {key: value for key, value in loop.annotations.items() if key not in (ROWS, TILE)}


class _Tails(Mapper):
    def visit_For(self, loop: For) -> Any:
        if TILE not in loop.annotations:
            return self.generic_visit(loop)
        body, full = loop.body, _Rows(None)(loop.body)
        found = _Ends()
        found(body)
        if len(found.ends) == 1:
            ((rows, remaining),) = found.ends.values()
            for fewer in [count for count in COUNTS if count < rows]:
                full = IfThenElse(remaining <= const(fewer, remaining.dtype), renew_stmt(_Rows(fewer)(body)), full)
        return loop.replace(body=full, annotations=_unmarked(loop))


class _Rows(Mapper):
    """A tile with another number of rows, or, for None, as many as it has. Its loops are no longer marked."""

    def __init__(self, rows: int | None):
        super().__init__()
        self.rows = rows

    def visit_For(self, loop: For) -> Any:
        new = self.generic_visit(loop)
        if ROWS not in loop.annotations:
            return new
        extent = new.extent if self.rows is None else const(self.rows, loop.loop_var.dtype)
        return new.replace(extent=extent, annotations=_unmarked(loop))


class _Ends(Visitor):
    """The rows of a tile, and how many there are from its first row to the end: from the blocks that store results."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: For | None = None
        self.ends: dict[str, tuple[int, PrimExpr]] = {}
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> None:
        if ROWS in loop.annotations:
            self.rows = loop
        self.generic_visit(loop)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        loop = self.rows
        extent = None if loop is None else as_int(loop.extent)
        if loop is None or extent is None or realize.block.writes[0].buffer.scope() == "local":
            return
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if loop.loop_var in variables(value) and iter_var.dom is not None:
                start = substitute(value, {loop.loop_var: const(0, loop.loop_var.dtype)})
                remaining = self.analyzer.simplify(iter_var.dom.extent - start)
                self.ends[str(remaining)] = (extent, remaining)
