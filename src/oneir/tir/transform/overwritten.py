"""Loop nests around one store, and whether a later nest, of any loops, overwrites all that an earlier one wrote."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...arith import Analyzer, detect_iter_map, inverse_affine_iter_map
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Range, Var, const
from ...ir.node import Node
from ...ir.visitor import Visitor
from ..expr import BufferLoad
from ..stmt import BufferStore, For, IfThenElse, Stmt
from ..stmt_functor import substitute
from .analyzed import has_effect, reads


@dataclass(frozen=True)
class Nest:
    """`store`, under `condition`, in `loops`."""

    loops: tuple[For, ...]
    condition: PrimExpr
    store: BufferStore

    @staticmethod
    def of(stmt: Stmt) -> Nest | None:
        """The nest that a statement consists of; None for other ones, and where memory decides what is written."""
        loops: list[For] = []
        conditions: list[PrimExpr] = []
        while not isinstance(stmt, BufferStore):
            if isinstance(stmt, For) and not reads(stmt.min) and not reads(stmt.extent):
                loops.append(stmt)
                stmt = stmt.body
            elif isinstance(stmt, IfThenElse) and stmt.else_case is None and not reads(stmt.condition):
                conditions.append(stmt.condition)
                stmt = stmt.then_case
            else:
                return None
        if has_effect(stmt.value) or any(map(reads, stmt.indices)):
            return None
        return Nest(tuple(loops), functools.reduce(ops.logical_and, conditions, const(True)), stmt)

    def covers(self, earlier: Nest, where: PrimExpr, analyzer: Analyzer) -> bool:
        """Whether this nest writes, without reading the buffer, what `earlier` writes where `where` holds there."""
        store, other = self.store, earlier.store
        if store.buffer is not other.buffer or store.predicate is not None or reads(store.value, store.buffer.data):
            return False
        earlier.bind(analyzer)
        with analyzer.constraint_scope(where):
            return any(self.writes(other.indices, at, analyzer) for at in self.iterations(earlier))

    def iterations(self, earlier: Nest) -> Iterator[dict[Var, PrimExpr]]:
        """Iterations that may write what one of `earlier` writes: the one of the same loops, and that which indices
        tell, if each element has one.
        """
        if len(self.loops) == len(earlier.loops):
            yield {mine.loop_var: theirs.loop_var for mine, theirs in zip(self.loops, earlier.loops, strict=True)}
        spans = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in self.loops}
        found = detect_iter_map(self.store.indices, spans, may_overlap=False)
        if found.indices:
            least = {loop.loop_var: loop.min for loop in self.loops}
            yield {**least, **inverse_affine_iter_map(found.indices, earlier.store.indices)}

    def writes(self, indices: Sequence[PrimExpr], at: dict[Var, PrimExpr], analyzer: Analyzer) -> bool:
        """Whether the nest has an iteration, and writes the element at some indices there."""
        runs = [substitute(self.condition, at)]
        for loop in self.loops:
            var, low, extent = (substitute(e, at) for e in (loop.loop_var, loop.min, loop.extent))
            runs += [low <= var, var < low + extent]
        mine = [substitute(index, at) for index in self.store.indices]
        same = all(map(analyzer.can_prove_equal, mine, indices))
        return same and all(map(analyzer.can_prove, runs))

    def bind(self, analyzer: Analyzer) -> None:
        """Makes the ranges of the loops known."""
        for loop in self.loops:
            analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), allow_override=True)


def overwriting(seq: list[Stmt], index: int, where: PrimExpr, analyzer: Analyzer) -> bool:
    """Whether a later statement of `seq` overwrites, before anything reads it, what the nest at `index` writes where
    `where` holds.
    """
    nest = Nest.of(seq[index])
    if nest is None:
        return False
    for later in seq[index + 1 :]:
        following = Nest.of(later)
        if following is not None and following.covers(nest, where, analyzer):
            return True
        if _may_read(later, nest.store.buffer.data):
            return False
    return False


class _Reads(Visitor):
    def __init__(self, data: Var):
        super().__init__()
        self.data, self.found = data, False

    def visit(self, node: Node) -> None:
        if not self.found:
            super().visit(node)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.found = self.found or node.buffer.data is self.data
        self.generic_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        for expr in (node.value, *node.indices):
            self.visit(expr)

    def visit_Var(self, var: Var) -> None:
        self.found = self.found or var is self.data


def _may_read(stmt: Stmt, data: Var) -> bool:
    found = _Reads(data)
    found.visit(stmt)
    if found.found:
        return True
    opaque = _Effects()
    opaque.visit(stmt)
    return opaque.found


class _Effects(Visitor):
    found = False

    def visit_Stmt(self, node: Stmt) -> None:
        node.visit_children(self.visit)

    def visit_PrimExpr(self, node: PrimExpr) -> None:
        self.found = self.found or has_effect(node)
