"""UseAssumeToReduceBranches: removes a condition where what is assumed about memory makes both sides equal.

    for i in range(16):                                        for i in range(16):
        T.evaluate(T.assume(i < 14 or A[i] == 0.0))                T.evaluate(T.assume(i < 14 or A[i] == 0.0))
    for i in range(16):                                   ->   for i in range(16):
        B[i] = T.if_then_else(i < 14, A[i] * 2.0, 0.0)             B[i] = A[i] * 2.0

An assumption names an element by the variables of loops over all of the buffer, and holds for memory that the function
never writes. Values derived for a buffer that one statement writes are known from then on, so the conditions of a chain
of operators over padded tensors are removed one after the other.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import EQ, Call, ConstExpr, Or, PrimExpr, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import BufferStore, Evaluate, For, IfThenElse, While
from ..stmt_functor import substitute
from .analyzed import IF_THEN_ELSE, AnalyzedMapper, analyzer_for, has_effect, in_bounds, reads, uses
from .pass_base import PrimFuncPass

_ASSUME = ops.as_op("tir.assume")


class UseAssumeToReduceBranches(PrimFuncPass):
    """Removes conditions between sides that `T.assume` makes equal."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        count = _CountStores()
        count(func.body)
        return func.with_body(_Reduce(analyzer_for(func), count.stores)(func.body))


@dataclass(frozen=True)
class Fact:
    """The element at `indices` is `value` unless `unless` holds of the variables."""

    indices: tuple[Var, ...]
    unless: PrimExpr
    value: PrimExpr


class _CountStores(Visitor):
    """How many statements write each buffer's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: dict[Var, int] = {}

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.stores[node.buffer.data] = self.stores.get(node.buffer.data, 0) + 1

    def visit_Var(self, var: Var) -> None:
        self.stores[var] = 2  # a pointer that is passed on may be written through

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        for index in node.indices:
            self.visit(index)

    def visit_Buffer(self, buffer: Any) -> None:
        pass


class _Known(Mapper):
    """Replaces loads by the values that they are assumed to have."""

    def __init__(self, facts: dict[Var, list[Fact]], analyzer: Analyzer):
        super().__init__()
        self.facts, self.analyzer = facts, analyzer

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        for fact in self.facts.get(node.buffer.data, ()):
            here = dict(zip(fact.indices, node.indices, strict=True))
            if self.analyzer.can_prove(ops.logical_not(substitute(fact.unless, here))):
                return substitute(fact.value, here)
        return self.generic_visit(node)


class _Reduce(AnalyzedMapper):
    def __init__(self, analyzer: Analyzer, stores: dict[Var, int]):
        super().__init__(analyzer)
        self.stores = stores
        self.facts: dict[Var, list[Fact]] = {}
        self.found: list[tuple[Var, Fact]] = []
        """What stores of the present loops make known, once these are over."""
        self.loops: dict[Var, For] = {}
        self.conditions = 0

    def visit_For(self, node: For) -> Any:
        self.loops[node.loop_var] = node
        new = super().visit_For(node)
        del self.loops[node.loop_var]
        if not self.loops:
            for data, fact in self.found:
                self.facts.setdefault(data, []).append(fact)
            self.found = []
        return new

    def visit_While(self, node: While) -> Any:
        self.conditions += 1
        new = super().visit_While(node)
        self.conditions -= 1
        return new

    def fact_of(self, access: BufferLoad | BufferStore, unless: PrimExpr, value: PrimExpr) -> Fact | None:
        """The fact that an access states about its buffer, if loops run over all of it; else None."""
        indices = tuple(index for index in access.indices if isinstance(index, Var))
        if len(indices) != len(access.indices) or len({id(index) for index in indices}) != len(indices):
            return None
        for index, size in zip(indices, access.buffer.shape, strict=True):
            loop = self.loops.get(index)
            if loop is None or not ops.same_expr(loop.extent, size) or not self.analyzer.can_prove_equal(loop.min, 0):
                return None
        elsewhere = {var for var in self.loops if var not in indices}
        known = isinstance(value, ConstExpr) and not reads(unless) and not uses(unless, elsewhere)
        return Fact(indices, unless, value) if known and not self.conditions else None

    def visit_Evaluate(self, node: Evaluate) -> Any:
        call = node.value
        if not (isinstance(call, Call) and call.op is _ASSUME):
            return self.generic_visit(node)
        parts = list(_disjuncts(call.args[0]))
        last = parts.pop()
        if isinstance(last, EQ) and isinstance(last.a, BufferLoad) and last.a.buffer.data not in self.stores:
            fact = self.fact_of(last.a, functools.reduce(ops.logical_or, parts, const(False)), last.b)
            if fact is not None:
                self.facts.setdefault(last.a.buffer.data, []).append(fact)
        return node

    def visit_Call(self, node: Call) -> Any:
        new = super().visit_Call(node)
        if new.op is not IF_THEN_ELSE:
            return new
        condition, then, other = new.args
        return self.one_side(condition, then, other, new)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        self.conditions += 1
        new: Any = super().visit_IfThenElse(node)
        self.conditions -= 1
        then, other = new.then_case, new.else_case
        if not (isinstance(then, BufferStore) and isinstance(other, BufferStore) and then.buffer is other.buffer):
            return new
        if then.predicate is not None or other.predicate is not None:
            return new
        if not ops.same_exprs(then.indices, other.indices):
            return new
        value = self.one_side(new.condition, then.value, other.value, None)
        return new if value is None else then.replace(value=value)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        new: Any = self.generic_visit(node)
        before = node.value
        if new is node or self.stores.get(node.buffer.data) != 1:
            return new
        if isinstance(before, Call) and before.op is IF_THEN_ELSE:
            condition, then, other = before.args
            unless, value = (condition, other) if isinstance(other, ConstExpr) else (ops.logical_not(condition), then)
            fact = self.fact_of(new, unless, value)
            if fact is not None:
                self.found.append((node.buffer.data, fact))
        return new

    def one_side(self, condition: PrimExpr, then: PrimExpr, other: PrimExpr, otherwise: Any) -> Any:
        """The side that is equal to the other one wherever the condition selects that; `otherwise` if neither is."""
        if reads(condition):
            return otherwise
        for kept, dropped, where in ((then, other, ops.logical_not(condition)), (other, then, condition)):
            if has_effect(kept) or not in_bounds(kept, self.analyzer):
                continue
            with self.analyzer.constraint_scope(where):
                value = self.analyzer.simplify(_Known(self.facts, self.analyzer).visit(kept))
                if ops.same_expr(value, self.analyzer.simplify(dropped)):
                    return kept
        return otherwise


def _disjuncts(condition: PrimExpr) -> Any:
    if isinstance(condition, Or):
        yield from _disjuncts(condition.a)
        yield from _disjuncts(condition.b)
    else:
        yield condition
