"""What a function's memory is known to hold at each statement.

    for i in range(16):
        B[i] = 0                 # from here on B[i] is 0
    for i in range(16):          # B[d] is 0 for each d from i on
        if B[i] < 10:            # so this holds
            B[i] = A[i]

A pass tells what it walks over, in the order of the program, and asks for the values of loads. What is known is a list
of facts: "where a predicate over an element's indices holds, the element has this value".
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...arith import Analyzer, IntervalSet
from ...arith.constraint import conjuncts
from ...arith.int_set import IntSetEvaluator, is_infinite
from ...ir import operators as ops
from ...ir.expr import EQ, Add, Broadcast, Call, IntImm, Or, PrimExpr, Ramp, Sub, Var, as_int, const
from ...ir.visitor import Mapper, Visitor
from ..buffer import Buffer
from ..expr import BufferLoad
from ..stmt import BufferStore, For, Stmt
from ..stmt_functor import substitute
from .analyzed import has_effect, reads, uses


@dataclass(frozen=True)
class Fact:
    """The elements of a buffer at `indices` have a value where a predicate holds.

    Facts of one `origin` are versions of one fact, on different ways through the program.
    """

    buffer: Buffer
    indices: tuple[Var, ...]
    predicate: PrimExpr
    value: PrimExpr
    origin: object

    def where(self, *conditions: PrimExpr) -> Fact:
        """The fact under further conditions."""
        return replace(self, predicate=functools.reduce(ops.logical_and, conditions, self.predicate))


class KnownValues:
    """The facts at the place of the program to which a walk has come; `analyzer` knows what else holds there."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.facts: list[Fact] = []

    # -- questions --

    def value(self, load: BufferLoad) -> PrimExpr | None:
        """The value of a load; None if it is not known."""
        if load.predicate is not None or not all(index.dtype.is_scalar for index in load.indices):
            return None
        for fact in reversed(self.facts):
            if fact.buffer is load.buffer:
                here = dict(zip(fact.indices, load.indices, strict=True))
                if self.analyzer.can_prove(substitute(fact.predicate, here)):
                    return substitute(fact.value, here)
        return None

    def replaced(self, expr: PrimExpr) -> PrimExpr:
        """An expression with the values of the loads that are known."""
        return _Loads(self)(expr) if self.facts and reads(expr) else expr

    # -- what the program does --

    def store(self, node: BufferStore) -> None:
        """After a store."""
        if node.predicate is not None:
            self.forget({node.buffer})
            return
        indices = self.indices(node.buffer)
        known = self._element(node, indices)
        others = (
            ops.logical_not(_all_equal(indices, node.indices)) if known is None else ops.logical_not(known.predicate)
        )
        kept: list[Fact] = []
        for fact in self.facts:
            if fact.buffer.data is not node.buffer.data:
                kept.append(fact)
            elif fact.buffer is node.buffer and (known is not None or all(i.dtype.is_scalar for i in node.indices)):
                kept.append(fact.where(substitute(others, dict(zip(indices, fact.indices, strict=True)))))
        self.facts = [*kept, known] if known is not None and not reads(known.value) else kept

    def _element(self, node: BufferStore, indices: tuple[Var, ...]) -> Fact | None:
        """The fact that a store makes true; None if nothing says which elements it writes."""
        value = self.replaced(node.value)
        if has_effect(value):
            return None
        if all(index.dtype.is_scalar for index in node.indices):
            return Fact(node.buffer, indices, _all_equal(indices, node.indices), value, object())
        ramp = node.indices[-1]
        if len(node.indices) != 1 or not isinstance(ramp, Ramp) or as_int(ramp.stride) != 1:
            return None
        lane = ops.subtract(indices[0], ramp.base)
        if isinstance(value, Broadcast):
            element = value.value
        elif isinstance(value, Ramp):
            element = ops.add(value.base, ops.multiply(lane, value.stride))
        else:
            return None
        inside = ops.logical_and(lane >= 0, lane < ramp.lanes)
        return Fact(node.buffer, indices, inside, element, object())

    def assume(self, condition: PrimExpr) -> None:
        """Where a condition holds: its terms `A[i] == value`, also those of `unless or A[i] == value`."""
        for term in conjuncts(condition):
            unless: list[PrimExpr] = []
            while isinstance(term, Or):
                unless.append(term.a)
                term = term.b
            if not isinstance(term, EQ) or any(map(reads, unless)):
                continue
            for load, value in ((term.a, term.b), (term.b, term.a)):
                if isinstance(load, BufferLoad) and not reads(value) and load.dtype.is_scalar:
                    indices = self.indices(load.buffer)
                    fact = Fact(load.buffer, indices, _all_equal(indices, load.indices), value, object())
                    self.facts.append(fact.where(*map(ops.logical_not, unless)))
                    break

    def forget(self, buffers: set[Buffer] | None = None) -> None:
        """After anything may have been written to some buffers, or (None) to any."""
        pointers = None if buffers is None else {buffer.data for buffer in buffers}
        self.facts = [] if pointers is None else [f for f in self.facts if f.buffer.data not in pointers]

    def indices(self, buffer: Buffer) -> tuple[Var, ...]:
        """Variables for the indices of an element."""
        return tuple(Var(f"d{axis}", dim.dtype) for axis, dim in enumerate(buffer.shape))

    # -- ways through the program --

    def join(self, condition: PrimExpr, then_facts: Sequence[Fact], else_facts: Sequence[Fact]) -> None:
        """After a branch: what was known at the end of either side."""
        told = not reads(condition)
        otherwise = ops.logical_not(condition)
        theirs = {fact.origin: fact for fact in else_facts}
        joined: list[Fact] = []
        for fact in then_facts:
            other = theirs.pop(fact.origin, None)
            if other is None:
                joined += [fact.where(condition)] if told else []
            elif other is fact or ops.same_expr(other.predicate, fact.predicate):
                joined.append(fact)
            elif told:
                either = ops.logical_or(
                    ops.logical_and(condition, fact.predicate), ops.logical_and(otherwise, other.predicate)
                )
                joined.append(replace(fact, predicate=either))
            else:
                joined.append(fact.where(other.predicate))
        self.facts = [*joined, *(fact.where(otherwise) for fact in theirs.values() if told)]

    def enter_loop(self, loop: For) -> list[Fact]:
        """At the beginning of any iteration: what the iterations before it have left; returns what held before all."""
        before = self.facts
        self.facts = self._not_written(loop, loop.min, ops.subtract(loop.loop_var, 1), before)
        return before

    def leave_loop(self, loop: For, before: list[Fact]) -> None:
        """After all iterations: what held before and is not written, and what each iteration has left."""
        var = loop.loop_var
        last = ops.subtract(ops.add(loop.min, loop.extent), 1)
        entered = {fact.origin for fact in before}
        made = [fact for fact in self.facts if fact.origin not in entered]
        left = [self._of_its_iteration(fact, loop) for fact in self._not_written(loop, ops.add(var, 1), last, made)]
        self.facts = [*self._not_written(loop, loop.min, last, before), *(fact for fact in left if fact is not None)]

    def _of_its_iteration(self, fact: Fact, loop: For) -> Fact | None:
        """A fact of one iteration as one of the loop: its index tells the iteration."""
        var = loop.loop_var
        for term in conjuncts(fact.predicate):
            iteration = _solved(term, var, fact.indices)
            if iteration is not None:
                inside = ops.logical_and(iteration >= loop.min, iteration < loop.min + loop.extent)
                predicate = substitute(fact.predicate, {var: iteration})
                new = replace(fact, predicate=predicate, value=substitute(fact.value, {var: iteration}))
                return replace(new.where(inside), predicate=self.analyzer.simplify(new.where(inside).predicate))
        runs = isinstance(loop.extent, IntImm) and loop.extent.value > 0
        return fact if runs and not uses(fact.predicate, {var}) and not uses(fact.value, {var}) else None

    def _not_written(self, loop: For, first: PrimExpr, last: PrimExpr, facts: Sequence[Fact]) -> list[Fact]:
        """Facts about what iterations from the first to the last do not write."""
        written = _Written({loop.loop_var: IntervalSet(first, last)}, self.analyzer)
        written(loop.body)
        if written.anything:
            return []
        kept: list[Fact] = []
        for fact in facts:
            if any(buffer is not fact.buffer and buffer.data is fact.buffer.data for buffer, _ in written.regions):
                continue
            outside = [_outside(region, fact.indices) for buffer, region in written.regions if buffer is fact.buffer]
            if all(condition is not None for condition in outside):
                kept.append(fact.where(*(condition for condition in outside if condition is not None)))
        return kept


class _Loads(Mapper):
    def __init__(self, known: KnownValues):
        super().__init__()
        self.known = known

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        value = self.known.value(node)
        return node if value is None else value


class _Written(Visitor):
    """The regions that a statement writes, while the loops around it and in it run."""

    def __init__(self, loops: dict[Var, IntervalSet], analyzer: Analyzer):
        super().__init__()
        self.loops, self.analyzer = loops, analyzer
        self.regions: list[tuple[Buffer, list[IntervalSet]]] = []
        self.anything = False

    def visit_PrimExpr(self, node: PrimExpr) -> None:
        self.anything = self.anything or (has_effect(node) and assumption(node) is None)

    def visit_For(self, node: For) -> None:
        self.visit(node.min)
        self.visit(node.extent)
        low, last = self.values(node.min), self.values(node.min + node.extent - 1)
        self.loops[node.loop_var] = IntervalSet(low.min_value, last.max_value)
        self.visit(node.body)
        del self.loops[node.loop_var]

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.visit(node.value)
        self.regions.append((node.buffer, [self.values(index) for index in node.indices]))

    def values(self, index: PrimExpr) -> IntervalSet:
        return IntSetEvaluator(self.analyzer, self.loops).visit(index)


def writes(stmt: Stmt) -> set[Buffer] | None:
    """The buffers that a statement writes; None if any may be."""
    found = _Written({}, Analyzer())
    found(stmt)
    return None if found.anything else {buffer for buffer, _ in found.regions}


def assumption(expr: PrimExpr) -> PrimExpr | None:
    """The condition of `T.assume(condition)`; None for other expressions."""
    return expr.args[0] if isinstance(expr, Call) and expr.op is _ASSUME else None


_ASSUME = ops.as_op("tir.assume")


def _all_equal(indices: Sequence[Var], values: Sequence[PrimExpr]) -> PrimExpr:
    pairs = [EQ(var, ops.cast(var.dtype, value)) for var, value in zip(indices, values, strict=True)]
    return functools.reduce(ops.logical_and, pairs, const(True))


def _solved(term: PrimExpr, var: Var, indices: Sequence[Var]) -> PrimExpr | None:
    """A variable's value where `index == variable + constant` holds; None for other terms."""
    if not isinstance(term, EQ):
        return None
    for index, value in ((term.a, term.b), (term.b, term.a)):
        if index in indices:
            if value is var:
                return index
            if isinstance(value, (Add, Sub)) and value.a is var and isinstance(value.b, IntImm):
                inverse = ops.subtract if isinstance(value, Add) else ops.add
                return inverse(index, value.b)
    return None


def _outside(region: Sequence[IntervalSet], indices: Sequence[Var]) -> PrimExpr | None:
    """That an element lies in none of a region's intervals; None if the region may be anywhere."""
    parts: list[PrimExpr] = []
    for values, index in zip(region, indices, strict=True):
        if not is_infinite(values.min_value):
            parts.append(index < values.min_value)
        if not is_infinite(values.max_value):
            parts.append(index > values.max_value)
    return functools.reduce(ops.logical_or, parts) if parts else None
