"""Reduction blocks as identity, combiner and added value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.container import Array
from ...ir.expr import Add, IntImm, Max, Min, Mul, PrimExpr, Select, Var
from ...ir.operators import same_expr, same_exprs
from ...ir.visitor import Mapper, post_order_visit
from ..buffer import Buffer
from ..expr import BufferLoad
from ..stmt import Block, BufferStore, LetStmt, SeqStmt, Stmt
from ..stmt_functor import substitute
from .error import PrimitiveError
from .state import ScheduleState


@dataclass(frozen=True, slots=True)
class Reduction:
    """One or more values that are reduced together, each into an element of its buffer.

    `identity`: their initial values. `added`: the values that an iteration adds. The combiner is `results` in terms of
    the variables `lhs` (the values so far) and `rhs` (those added).
    """

    buffers: list[Buffer]
    indices: Array[PrimExpr]
    identity: list[PrimExpr]
    added: list[PrimExpr]
    lhs: list[Var]
    rhs: list[Var]
    results: list[PrimExpr]

    def store(self, buffers: Sequence[Buffer], indices: Sequence[PrimExpr], added: Sequence[PrimExpr]) -> Stmt:
        """The update of other buffers at other indices by other values."""
        loads = [BufferLoad(buffer, indices) for buffer in buffers]
        values: dict[Var, Any] = {**zip_vars(self.lhs, loads), **zip_vars(self.rhs, added)}
        results = [substitute(result, values) for result in self.results]
        if len(results) == 1:
            return BufferStore(buffers[0], results[0], indices)
        names = [Var(f"v_{buffer.name}", result.dtype) for buffer, result in zip(buffers, results, strict=True)]
        stmt: Stmt = SeqStmt([BufferStore(b, v, indices) for b, v in zip(buffers, names, strict=True)])
        for name, result in reversed(list(zip(names, results, strict=True))):
            stmt = LetStmt(name, result, stmt)
        return stmt

    def start(self, buffers: Sequence[Buffer], indices: Sequence[PrimExpr]) -> Stmt:
        """The init of other buffers at other indices."""
        stores = [BufferStore(b, value, indices) for b, value in zip(buffers, self.identity, strict=True)]
        return stores[0] if len(stores) == 1 else SeqStmt(stores)


def zip_vars(variables: Sequence[Var], values: Sequence[Any]) -> dict[Var, Any]:
    """A value for each variable."""
    return dict(zip(variables, values, strict=True))


def reduction_of(state: ScheduleState, block: Block) -> Reduction:
    """The reduction that a block computes; raises `PrimitiveError` if `match_reduction` does not recognize it."""
    found = match_reduction(block)
    if isinstance(found, str):
        raise PrimitiveError(state.mod, found.format(block="{0}"), block)
    return found


def match_reduction(block: Block) -> Reduction | str:
    """The reduction that a block computes, if it is of the form `A[i] = f(A[i], value)` with a known f: a sum, a
    product, a minimum, a maximum, or a select between both sides. Otherwise the reason why not, with {block} for its
    name.
    """
    inits, updates = _stores(block.init), _stores(block.body)
    if inits is None or updates is None or [s.buffer for s in inits] != [s.buffer for s in updates]:
        return (
            "The body and the `init` of the reduction block {block} are expected to be stores of the same buffers, one "
            "after the other"
        )
    indices = updates[0].indices
    same = all(same_exprs(store.indices, indices) for store in (*inits, *updates))
    reduction = _match(updates, [s.value for s in inits], indices) if same else None
    if reduction is None:
        return (
            "No matched reducer for identity and combiner of the reduction block {block}: expected a sum, a product, "
            "a minimum, a maximum, or a choice of either side by a comparison"
        )
    return reduction


def _stores(stmt: Any) -> list[BufferStore] | None:
    """The stores of a body, with its let-bound values substituted; None if it has other statements."""
    values: dict[Var, Any] = {}
    while isinstance(stmt, LetStmt):
        values[stmt.var] = substitute(stmt.value, values)
        stmt = stmt.body
    stores = list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]
    if not all(isinstance(store, BufferStore) for store in stores):
        return None
    return [substitute(store, values) for store in stores]


def _match(updates: list[BufferStore], identity: list[PrimExpr], indices: Array[PrimExpr]) -> Reduction | None:
    buffers = [store.buffer for store in updates]
    added: list[PrimExpr] = []
    for store in updates:
        found = _other_side(store.value, store.buffer)
        if found is None:
            return None
        added.append(found)
    lhs = [Var(f"x{i}", store.value.dtype) for i, store in enumerate(updates)]
    rhs = [Var(f"y{i}", store.value.dtype) for i, store in enumerate(updates)]
    abstract = _Abstract(dict(zip(buffers, lhs, strict=True)), list(zip(added, rhs, strict=True)))
    results = [abstract(store.value) for store in updates]
    known = {*lhs, *rhs}
    if any(not _only(result, known) for result in results) or any(not _only_loads(a, buffers) for a in added):
        return None
    return Reduction(buffers, indices, identity, added, lhs, rhs, results)


def _other_side(value: Any, buffer: Buffer) -> PrimExpr | None:
    """The operand that is combined with the value of a buffer; None if there is none."""
    if isinstance(value, (Add, Mul, Min, Max)):
        sides = (value.a, value.b)
    elif isinstance(value, Select):
        sides = (value.true_value, value.false_value)
    else:
        return None
    own = [isinstance(side, BufferLoad) and side.buffer is buffer for side in sides]
    return None if own[0] == own[1] else sides[1] if own[0] else sides[0]


class _Abstract(Mapper):
    """Replaces the loads of buffers, and the values that are combined with them, by variables."""

    def __init__(self, buffers: dict[Buffer, Var], added: list[tuple[PrimExpr, Var]]):
        super().__init__()
        self.buffers, self.added = buffers, added

    def visit(self, node: Any) -> Any:
        if isinstance(node, PrimExpr) and not isinstance(node, IntImm):
            for expr, var in self.added:
                if same_expr(node, expr):
                    return var
            if isinstance(node, BufferLoad) and node.buffer in self.buffers:
                return self.buffers[node.buffer]
        return super().visit(node)


def _only(expr: PrimExpr, known: set[Var]) -> bool:
    """Whether an expression consists of some variables and constants only."""
    bad: list[Any] = []
    post_order_visit(
        expr,
        lambda node: (
            bad.append(node) if isinstance(node, BufferLoad) or (isinstance(node, Var) and node not in known) else None
        ),
    )
    return not bad


def _only_loads(expr: PrimExpr, without: Sequence[Buffer]) -> bool:
    """Whether an expression reads none of some buffers."""
    bad: list[Any] = []
    post_order_visit(
        expr, lambda node: bad.append(node) if isinstance(node, BufferLoad) and node.buffer in without else None
    )
    return not bad
