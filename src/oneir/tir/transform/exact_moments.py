"""ExactMoments: normalizations by sums of elements and of their squares, where the mean is large.

    total[i] += A[i, k]                       total[i] += A[i, k] - A[i, 0]
    squares[i] += A[i, k] * A[i, k]     ->    squares[i] += (A[i, k] - A[i, 0]) * (A[i, k] - A[i, 0])
    B[i, j] = (A[i, j] - total[i] / n)        B[i, j] = (A[i, j] - A[i, 0] - total[i] / n)
        * rsqrt(squares[i] / n                    * rsqrt(squares[i] / n
                - (total[i] / n) ** 2)                    - (total[i] / n) ** 2)

The mean of the squares minus the square of the mean has no digits left where the mean is large against the deviation.
Subtracting one number from each element of a row changes neither the variance nor an element's difference to the mean,
and the row's first element is as near to the others as they are to one another. A row still passes through memory once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.expr import Add, Cast, Div, FloatImm, IntImm, Mul, PrimExpr, Range, Sub, Var
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Block, BufferRegion, BufferStore, LetStmt, SeqStmt
from ..stmt_functor import loads, substitute
from .pass_base import PrimFuncPass


class ExactMoments(PrimFuncPass):
    """Makes normalizations exact whose variance is the mean of squares minus the square of the mean.

    The sums of elements and of squares are taken over elements minus the first one of their row.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        blocks = _Blocks()
        blocks(func.body)
        for moments in filter(None, map(_moments, blocks.found)):
            users = [block for block in blocks.found if block is not moments.block and moments.are_read_by(block)]
            if users and all(map(moments.can_shift, users)):
                func = func.replace(body=_Shifted(moments, users)(func.body))
        return func


class _Blocks(Visitor):
    """The blocks of a function that have no others inside."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Block] = []

    def visit_Block(self, block: Block) -> None:
        count = len(self.found)
        self.generic_visit(block)
        if len(self.found) == count:
            self.found.append(block)


@dataclass(frozen=True, eq=False)
class _Moments:
    """A block that sums elements and their squares over the rows of a tensor."""

    block: Block
    total: Buffer
    squares: Buffer
    element: PrimExpr
    axes: list[Var]
    """The block's spatial variables, which index the sums: a row."""
    domains: dict[Var, Range]
    """The block's reduction variables."""

    def are_read_by(self, block: Block) -> bool:
        return any(load.buffer in (self.total, self.squares) for load in loads(block))

    def first(self, row: Sequence[PrimExpr]) -> PrimExpr:
        """The first element of a row, given by the indices of its sums."""
        values: dict[Var, Any] = dict(zip(self.axes, row, strict=True))
        values |= {var: domain.min for var, domain in self.domains.items()}
        return substitute(self.element, values)

    def can_shift(self, block: Block) -> bool:
        """Whether a block uses the sums only in differences from the mean and in the variance."""
        if not isinstance(block.body, BufferStore) or block.init is not None:
            return False
        rest = _RemoveMoments(self)
        return not any(load.buffer in (self.total, self.squares) for load in loads(rest(block.body)))

    def row_of_mean(self, value: PrimExpr) -> Sequence[PrimExpr] | None:
        """The row (the indices of its sums) whose mean a value is; None if it is no mean."""
        return self._row_of_quotient(value, self.total)

    def row_of_variance(self, value: PrimExpr) -> Sequence[PrimExpr] | None:
        """The row whose variance a value is, as E[x^2] - E[x]^2; None if it is no variance."""
        if not isinstance(value, Sub) or not isinstance(value.b, Mul):
            return None
        row, mean = self._row_of_quotient(value.a, self.squares), self.row_of_mean(value.b.a)
        same = row is not None and mean is not None and structural_equal(value.b.a, value.b.b)
        return row if same and all(map(structural_equal, row or (), mean or ())) else None

    def _row_of_quotient(self, value: PrimExpr, buffer: Buffer) -> Sequence[PrimExpr] | None:
        """The indices of a value that is an element of the buffer divided by the length of a row; None for other
        values.
        """
        if not isinstance(value, (Mul, Div)) or not isinstance(value.a, BufferLoad) or value.a.buffer is not buffer:
            return None
        extents = [domain.extent for domain in self.domains.values()]
        constant = math.prod(e.value for e in extents if isinstance(e, IntImm))
        symbolic = [e for e in extents if not isinstance(e, IntImm)]
        if isinstance(value, Mul):
            known = value.b.value * constant if isinstance(value.b, FloatImm) and not symbolic else 0
            return value.a.indices if abs(known - 1) < 1e-6 else None
        factors = _factors(value.b)
        found = math.prod(f.value for f in factors if isinstance(f, (FloatImm, IntImm)))
        others = [f for f in factors if not isinstance(f, (FloatImm, IntImm))]
        same = len(others) == len(symbolic) and all(map(structural_equal, others, symbolic))
        return value.a.indices if same and found == constant else None


def _factors(value: PrimExpr) -> list[PrimExpr]:
    """The factors of a product, without casts."""
    if isinstance(value, Mul):
        return [*_factors(value.a), *_factors(value.b)]
    return _factors(value.value) if isinstance(value, Cast) else [value]


def _moments(block: Block) -> _Moments | None:
    """The moments that a block sums; None if it does anything else."""
    values: dict[Var, PrimExpr] = {}
    body: Any = block.body
    while isinstance(body, LetStmt):
        values[body.var], body = body.value, body.body
    stores: list[Any] = list(body.seq) if isinstance(body, SeqStmt) else []
    if len(stores) != 2 or block.init is None or not all(isinstance(s, BufferStore) for s in stores):
        return None
    element, square = (_added(store, values.get(store.value, store.value)) for store in stores)
    axes = [iv.var for iv in block.iter_vars if iv.iter_type == IterVar.DataPar]
    for store in stores:
        if len(store.indices) != len(axes) or any(i is not v for i, v in zip(store.indices, axes, strict=True)):
            return None
    if element is None or not element.dtype.is_float or not isinstance(square, Mul):
        return None
    if not structural_equal(square.a, element) or not structural_equal(square.b, element):
        return None
    domains = {iv.var: iv.dom for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce and iv.dom is not None}
    return _Moments(block, stores[0].buffer, stores[1].buffer, element, axes, domains)


def _added(store: BufferStore, value: PrimExpr | None) -> PrimExpr | None:
    """What a store adds to the element that it writes; None if it does anything else."""
    if not isinstance(value, Add) or not isinstance(value.a, BufferLoad) or value.a.buffer is not store.buffer:
        return None
    return value.b if structural_equal(value.a.indices, store.indices) else None


class _RemoveMoments(Mapper):
    """Removes the subtractions of means, and variances, so that any other use of the sums remains."""

    def __init__(self, moments: _Moments):
        super().__init__()
        self.moments = moments

    def visit_Sub(self, value: Sub) -> Any:
        if self.moments.row_of_variance(value) is not None:
            return FloatImm(value.dtype, 0.0)
        if self.moments.row_of_mean(value.b) is not None:
            return self.visit(value.a)
        return self.generic_visit(value)


class _Shifted(Mapper):
    """Subtracts the first element of a row from each element, in the block that sums and in those that use the sums."""

    def __init__(self, moments: _Moments, users: Sequence[Block]):
        super().__init__()
        self.moments, self.users = moments, users
        self.firsts: list[PrimExpr] | None = None

    def visit_Block(self, block: Block) -> Any:
        if block is self.moments.block:
            return self.sums(block)
        if block not in self.users:
            return self.generic_visit(block)
        self.firsts = []
        changed = self.generic_visit(block)
        made, self.firsts = self.firsts, None
        return _reading(changed, made)

    def sums(self, block: Block) -> Block:
        """The block with sums of elements minus the first one of their row."""
        first = self.moments.first(self.moments.axes)
        return _reading(block.replace(body=_SubtractFirst(self.moments.element, first)(block.body)), [first])

    def visit_Sub(self, value: Sub) -> Any:
        row = None if self.firsts is None else self.moments.row_of_mean(value.b)
        if row is None or self.firsts is None:
            return self.generic_visit(value)
        first = self.moments.first(row)
        self.firsts.append(first)
        return Sub(Sub(self.visit(value.a), first), value.b)


class _SubtractFirst(Mapper):
    """Subtracts a value from each occurrence of an expression."""

    def __init__(self, element: PrimExpr, first: PrimExpr):
        super().__init__()
        self.element, self.first = element, first

    def visit(self, node: Any) -> Any:
        if type(node) is type(self.element) and structural_equal(node, self.element):
            return Sub(node, self.first)
        return super().visit(node)


def _reading(block: Block, values: Sequence[PrimExpr]) -> Block:
    """The block with the elements that some values load added to the regions that it reads."""
    reads = list(block.reads)
    for load in (load for value in values for load in loads(value)):
        region = BufferRegion(load.buffer, [Range.from_min_extent(index, 1) for index in load.indices])
        if not any(structural_equal(region, known) for known in reads):
            reads.append(region)
    return block.replace(reads=reads)
