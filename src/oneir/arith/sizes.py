"""Arithmetic on sizes and strides, which are constants most of the time and symbolic otherwise."""

from __future__ import annotations

import math
from typing import Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.dtype import DataType
from ..ir.expr import IntImm, PrimExpr
from .analyzer import Analyzer


class NoMatch(Exception):
    """An expression does not have the required form; the message says why."""


class OtherOperation(NoMatch):
    """An index has an operation that no iteration map has, whatever is known of its iterators."""


def assume_positive(size: PrimExpr, analyzer: Analyzer) -> None:
    """Has an analyzer assume, for as long as it lives, that a size, and each factor of it, is at least one."""
    if isinstance(size, e.Mul):
        assume_positive(size.a, analyzer)
        assume_positive(size.b, analyzer)
    if not isinstance(size, IntImm):
        analyzer.constraint_scope(ops.greater(size, 0)).__enter__()


class Sizes:
    """Sizes of one dtype. Symbolic ones are compared by `analyzer`."""

    def __init__(self, dtype: DataType):
        self.dtype = dtype
        self.analyzer = Analyzer()
        self.constants: dict[int, PrimExpr] = {}
        self.zero, self.one = self.of(0), self.of(1)

    def of(self, value: Any) -> PrimExpr:
        """A number, or an expression of another integer dtype, as a size."""
        if not isinstance(value, int):
            return ops.cast(self.dtype, value)
        found = self.constants.get(value)
        if found is None:
            bits = self.dtype.bits - 1
            if not -(1 << bits) <= value < 1 << bits:
                raise NoMatch(f"{value} does not fit {self.dtype}")
            found = self.constants[value] = IntImm(self.dtype, value)
        return found

    def simplified(self, value: PrimExpr) -> PrimExpr:
        """The size in its simplest form."""
        return value if isinstance(value, IntImm) else self.analyzer.simplify(value)

    def key(self, size: PrimExpr) -> Any:
        """A key that is equal for equal sizes."""
        return size.value if isinstance(size, IntImm) else ("symbolic", self.analyzer.canonical.key(size))

    def plus(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a + b"""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return self.of(a.value + b.value)
        return self.simplified(ops.add(a, b))

    def minus(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a - b"""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return self.of(a.value - b.value)
        return self.simplified(ops.subtract(a, b))

    def times(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a * b"""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return self.of(a.value * b.value)
        return self.simplified(ops.multiply(a, b))

    def quotient(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a // b"""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return self.of(a.value // b.value)
        return self.simplified(ops.floordiv(a, b))

    def remainder(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a % b"""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return self.of(a.value % b.value)
        return self.simplified(ops.floormod(a, b))

    def rounded_up(self, a: PrimExpr, unit: PrimExpr) -> PrimExpr:
        """The least multiple of `unit` that is at least a."""
        if isinstance(a, IntImm) and isinstance(unit, IntImm):
            return self.of(-(-a.value // unit.value) * unit.value)
        if self.divides(unit, a):
            return a
        return self.simplified(ops.multiply(ops.floordiv(a + (unit - 1), unit), unit))

    def common_multiple(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The least common multiple; symbolic sizes must be multiples of one another."""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return self.of(math.lcm(a.value, b.value))
        if self.divides(a, b):
            return b
        if self.divides(b, a):
            return a
        raise NoMatch(f"no common multiple of {a} and {b} is known")

    def divides(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Whether b is known to be a multiple of a."""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value != 0 and b.value % a.value == 0
        if isinstance(a, IntImm) and abs(a.value) == 1:
            return True
        return self.analyzer.can_prove_equal(ops.floormod(b, a), 0)

    def equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Whether both are known to be equal."""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        return self.analyzer.can_prove_equal(a, b)

    def at_most(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Whether a <= b is known."""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value <= b.value
        return self.analyzer.can_prove(ops.less_equal(a, b))

    def positive(self, a: PrimExpr) -> bool:
        """Whether a is known to be at least one."""
        return self.at_most(self.one, a)

    def negative(self, a: PrimExpr) -> bool:
        """Whether a is known to be below zero."""
        return self.at_most(a, self.of(-1))

    def divided(self, a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
        """(q, r) with a == q * b + r: r is 0, or a constant in [0, b); None where neither is known."""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            q, r = divmod(a.value, b.value)
            return self.of(q), self.of(r)
        if self.divides(b, a):
            return self.quotient(a, b), self.zero
        return None

    def smaller(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The smaller of both."""
        return self.simplified(e.Min(a, b))

    def larger(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The larger of both."""
        return self.simplified(e.Max(a, b))
