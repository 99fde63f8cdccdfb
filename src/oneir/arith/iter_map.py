"""The parts of iteration maps: marks, digits of marks, and sums of digits.

A mark is something that takes every value in [0, extent): a loop variable, or a sum of digits of other marks. A split
is some digits of a mark, times a number; a sum of splits is an index.

    mark = IterMark(i, 32)
    IterSplitExpr(mark, lower_factor=4, extent=8, scale=2)  # i // 4 % 8 * 2
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ..ir import operators as ops
from ..ir.container import Array
from ..ir.expr import Add, IntImm, PrimExpr, as_expr
from ..ir.node import Node, as_array, attr, child
from ..ir.visitor import Mapper
from ..runtime.error import InvalidValue
from .analyzer import Analyzer


class IterMapLevel(IntEnum):
    """The property that an iteration map is checked for."""

    Bijective = 0
    """Each output comes from exactly one iteration."""
    Surjective = 1
    """Each output comes from some iteration."""
    NoCheck = 3
    """Nothing but the form."""

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        """The level of a name, whatever its case."""
        for level in IterMapLevel:
            if level.name.lower() == name.lower():
                return level
        names = ", ".join(level.name.lower() for level in IterMapLevel)
        raise InvalidValue(f"expected one of {names}, found the iteration map level {name!r}")

    @staticmethod
    def of(level: Any) -> IterMapLevel:
        """A level given as such, as its number or its name; None is `Surjective`."""
        if isinstance(level, str):
            return IterMapLevel.from_str(level)
        return IterMapLevel.Surjective if level is None else IterMapLevel(level)


class IterMapExpr(PrimExpr):
    """Base of splits and sums."""


class IterMark(Node, shared=True):
    """An iterator over [0, extent): `source` is a variable, a variable less its minimum, or an `IterSumExpr`."""

    source: PrimExpr = child(converter=as_expr)
    extent: PrimExpr = child(converter=as_expr)


class IterSplitExpr(IterMapExpr):
    """`source // lower_factor % extent * scale`."""

    source: IterMark
    lower_factor: PrimExpr = child(converter=as_expr)
    extent: PrimExpr = child(converter=as_expr)
    scale: PrimExpr = child(converter=as_expr)

    def _derive(self) -> None:
        self.dtype = self.source.source.dtype


class IterSumExpr(IterMapExpr):
    """The sum of `args` and `base`."""

    args: Array[IterSplitExpr] = child(converter=as_array)
    base: PrimExpr = child(converter=as_expr)

    def _derive(self) -> None:
        self.dtype = self.base.dtype


class IterMapResult(Node):
    """The result of detection: the indices of a map, or the errors why it is none.

    `padding_predicate`, over the input iterators, holds for values outside of their ranges that the padding needs to
    cover every output.
    """

    indices: Array[IterSumExpr] = child(converter=as_array)
    errors: Array[str] = attr(default=(), converter=as_array)
    padding_predicate: PrimExpr = child(default=False, converter=as_expr)


def is_number(expr: Any, value: int) -> bool:
    """Whether an expression is the given constant."""
    return isinstance(expr, IntImm) and expr.value == value


def _reaches(end: PrimExpr, extent: PrimExpr) -> bool:
    if isinstance(end, IntImm) and isinstance(extent, IntImm):
        return end.value >= extent.value
    return Analyzer().can_prove_equal(end, extent)


class _Normalizer(Mapper):
    def visit_IterSumExpr(self, total: IterSumExpr) -> PrimExpr:
        result: Any = None
        for split in total.args:
            part = self.visit(split)
            result = part if result is None else ops.add(result, part)
        base = self.visit(total.base)
        if isinstance(result, Add) and isinstance(result.b, IntImm) and isinstance(base, IntImm):
            result, base = result.a, ops.add(result.b, base)
        return base if result is None else ops.add(result, base)

    def visit_IterSplitExpr(self, split: IterSplitExpr) -> PrimExpr:
        value = self.visit(split.source.source)
        end = ops.multiply(split.lower_factor, split.extent)
        if not _reaches(end, split.source.extent):
            value = ops.floormod(value, end)
        return ops.multiply(ops.floordiv(value, split.lower_factor), split.scale)


def normalize_iter_map_to_expr(expr: Any) -> PrimExpr:
    """The expression written with ordinary arithmetic instead of splits and sums."""
    return _Normalizer()(as_expr(expr))
