"""Sums leave out what padding adds to them.

    for kh in range(3):                                    for kh in range(3):
        for kw, c in grid(3, 64):                              if 1 <= y + kh and y + kh < 33:
            sum += padded[y + kh, x + kw, c] * w[kh, kw, c]        for kw, c in grid(3, 64):
                                                                       sum += ...

Only steps of which a whole tile reads zeros are left out, such as rows above an image. These are a ninth of all
products in a convolution of 3 x 3 over 6 rows, and more than half of those with a dilation of 18 over 32 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...arith.constraint import conjuncts
from ...arith.interval_set import is_infinite
from ...ir.expr import LE, LT, Call, FloatImm, IntImm, PrimExpr, Range, Var
from ...ir.operators import logical_and
from ...ir.visitor import Mapper, Visitor
from ...tir.analysis.variables import variables
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse
from ...tir.stmt_functor import loads, substitute
from ..analysis.contraction import operands

Padded = dict[Any, tuple[list[Var], list[PrimExpr]]]
"""For buffers that are zero but where some conditions hold: the variables of their indices, and the conditions."""


def without_padding(func: PrimFunc) -> PrimFunc:
    """The function whose sums of products skip steps in which one factor is padding for all of a tile."""
    found = _Conditions()
    found(func.body)
    return func.replace(body=_Guard(found.conditions)(func.body)) if found.conditions else func


class _Conditions(Visitor):
    """Finds under which conditions the body of a loop over a sum adds anything but zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.padded: Padded = {}
        self.loops: list[For] = []
        self.conditions: dict[Var, list[PrimExpr]] = {}
        """By the variable of the loop."""

    def visit_For(self, loop: For) -> None:
        self.loops.append(loop)
        self.generic_visit(loop)
        self.loops.pop()

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        self.generic_visit(realize)
        block, factors = realize.block, operands(realize.block)
        nonzero = _nonzero(block)
        if nonzero is not None and isinstance(block.body, BufferStore):
            self.padded[block.body.buffer] = [i for i in block.body.indices if isinstance(i, Var)], nonzero
        if factors is None or block.init is not None:
            return
        values = {iv.var: value for iv, value in zip(block.iter_vars, realize.iter_values, strict=True)}
        summed = variables(*(values[iv.var] for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce))
        for load in factors:
            axes, terms = self.padded.get(load.buffer, ([], []))
            places = {axis: substitute(index, values) for axis, index in zip(axes, load.indices, strict=bool(axes))}
            for term in terms:
                if len(variables(term) & places.keys()) == 1 and not loads(term):
                    self._add(substitute(term, places), summed)

    def _add(self, condition: PrimExpr, summed: set[Var]) -> None:
        """Keeps what must hold of the innermost loop over the sum in a condition, for some of the tile inside of it."""
        inside = variables(condition)
        at = max((i for i, loop in enumerate(self.loops) if loop.loop_var in inside & summed), default=None)
        if at is None:
            return
        analyzer = Analyzer()
        for loop in self.loops:
            analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        possible = _for_some(condition, [loop for loop in self.loops[at + 1 :] if loop.loop_var in inside], analyzer)
        if possible is not None and not analyzer.can_prove(possible):
            self.conditions.setdefault(self.loops[at].loop_var, []).append(possible)


def _for_some(condition: PrimExpr, tile: Sequence[For], analyzer: Analyzer) -> PrimExpr | None:
    """What holds wherever a comparison does for some values of the variables of loops; None for other conditions."""
    if not tile:
        return condition
    if not isinstance(condition, (LT, LE)):
        return None
    domains = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in tile}
    left: Any = analyzer.int_set(condition.a, domains)
    right: Any = analyzer.int_set(condition.b, domains)
    known = not (is_infinite(left.min_value) or is_infinite(right.max_value))
    return type(condition)(left.min_value, right.max_value) if known else None


def _nonzero(block: Block) -> list[PrimExpr] | None:
    """The conditions without which a block stores 0; None for a block that does not choose so."""
    store = block.body
    if not isinstance(store, BufferStore) or len({i for i in store.indices if isinstance(i, Var)}) < len(store.indices):
        return None
    choice = store.value
    if not isinstance(choice, Call) or choice.op.name != "tir.if_then_else":
        return None
    condition, _, other = choice.args
    is_zero = isinstance(other, (IntImm, FloatImm)) and other.value == 0
    return list(conjuncts(condition)) if is_zero else None


class _Guard(Mapper):
    """Puts conditions around the bodies of loops."""

    def __init__(self, conditions: dict[Var, list[PrimExpr]]):
        super().__init__()
        self.conditions = conditions

    def visit_For(self, loop: For) -> Any:
        loop = self.generic_visit(loop)
        terms = self.conditions.get(loop.loop_var)
        return loop if terms is None else loop.replace(body=IfThenElse(_all(terms), loop.body))


def _all(terms: Sequence[PrimExpr]) -> PrimExpr:
    first, *rest = terms
    for term in rest:
        first = logical_and(first, term)
    return first
