"""Modular sets: integer expressions modulo a constant: `modular_set(4 * x + 1)` is coeff 4, base 1.

A pair (coeff, base) says that the value is `coeff * k + base` for some integer k; coeff 0 says that it is `base`. Ring
operations that wrap keep what is known modulo powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir import expr as e
from ..ir.node import Node, attr
from ..ir.op import Op
from .const_int_bound import Bounds, dtype_bounds, is_index_like

Congruence = tuple[int, int]
ANYTHING: Congruence = (1, 0)


class ModularSet(Node):
    """The integers `coeff * k + base`."""

    coeff: int = attr()
    base: int = attr()


def reduced(coeff: int, base: int) -> Congruence:
    """The congruence with its base reduced to [0, coeff)."""
    return (coeff, base % coeff) if coeff else (0, base)


def union(a: Congruence, b: Congruence) -> Congruence:
    """The union of two congruences."""
    return reduced(math.gcd(a[0], b[0], a[1] - b[1]), a[1])


class ModularAnalyzer:
    """The analysis of modular sets."""

    def __init__(self, bounds: Callable[[e.PrimExpr], Bounds]):
        self.bounds = bounds
        self.variables: dict[e.PrimExpr, Congruence] = {}
        self.memo: dict[int, tuple[e.PrimExpr, Congruence]] = {}

    def __call__(self, expr: e.PrimExpr) -> Congruence:
        """The congruence of an expression."""
        return self.visit(expr)

    def visit(self, expr: e.PrimExpr) -> Congruence:
        """As `__call__`; recursion uses this method, since calling an object takes C stack, and trees may be deep."""
        if type(expr) is e.IntImm:
            return 0, expr.value
        if expr.is_variable:
            return self.variables.get(expr, ANYTHING)
        known = self.memo.get(id(expr))
        if known is not None:
            return known[1]
        handler = _HANDLERS.get(type(expr))
        result = ANYTHING if handler is None else handler(self, expr)
        self.memo[id(expr)] = (expr, result)
        return result

    def _ring(self, expr: Any, coeff: int, base: int) -> Congruence:
        if not is_index_like(expr.dtype):
            if not expr.dtype.is_int:
                return ANYTHING
            coeff = math.gcd(coeff, 1 << expr.dtype.bits)
        return reduced(coeff, base)

    def visit_add(self, expr: e.Add) -> Congruence:
        (p, a), (q, b) = self.visit(expr.a), self.visit(expr.b)
        return self._ring(expr, math.gcd(p, q), a + b)

    def visit_sub(self, expr: e.Sub) -> Congruence:
        (p, a), (q, b) = self.visit(expr.a), self.visit(expr.b)
        return self._ring(expr, math.gcd(p, q), a - b)

    def visit_mul(self, expr: e.Mul) -> Congruence:
        # (p x + a) (q y + b) = p q x y + p b x + q a y + a b
        (p, a), (q, b) = self.visit(expr.a), self.visit(expr.b)
        return self._ring(expr, math.gcd(p * q, p * b, q * a), a * b)

    def visit_floordiv(self, expr: e.FloorDiv) -> Congruence:
        (p, a), (q, b) = self.visit(expr.a), self.visit(expr.b)
        if q == 0 and b > 0 and p % b == 0:
            # (p x + a) // b = (p // b) x + a // b
            return reduced(p // b, a // b)
        return ANYTHING

    def visit_truncdiv(self, expr: e.Div) -> Congruence:
        if not expr.dtype.is_int:
            return ANYTHING
        (p, a), (q, b) = self.visit(expr.a), self.visit(expr.b)
        if q == 0 and b > 0 and p % b == 0 and (a % b == 0 or self.bounds(expr.a)[0] >= 0):
            # Rounded towards zero is rounded down where nothing remains, or nothing is negative.
            return reduced(p // b, a // b)
        return ANYTHING

    def visit_floormod(self, expr: e.FloorMod) -> Congruence:
        (p, a), (q, b) = self.visit(expr.a), self.visit(expr.b)
        # The remainder differs from the dividend by a multiple of the divisor.
        coeff = math.gcd(p, q, b)
        if q == 0 and b and p % b == 0:
            return 0, a % b
        return reduced(coeff, a)

    def visit_truncmod(self, expr: e.Mod) -> Congruence:
        if not expr.dtype.is_int:
            return ANYTHING
        (p, a), (q, b) = self.visit(expr.a), self.visit(expr.b)
        return reduced(math.gcd(p, q, b), a)

    def visit_either(self, expr: e.BinaryOpExpr) -> Congruence:
        return union(self.visit(expr.a), self.visit(expr.b))

    def visit_select(self, expr: e.Select) -> Congruence:
        return union(self.visit(expr.true_value), self.visit(expr.false_value))

    def visit_cast(self, expr: e.Cast) -> Congruence:
        source = expr.value.dtype
        if expr.dtype.is_bool or not (source.is_int or source.is_bool):
            return ANYTHING
        coeff, base = self.visit(expr.value)
        inner, outer = dtype_bounds(source), dtype_bounds(expr.dtype)
        if outer[0] <= inner[0] and inner[1] <= outer[1] and expr.dtype.bits >= source.bits:
            return coeff, base
        return reduced(math.gcd(coeff, 1 << expr.dtype.bits), base)

    def visit_broadcast(self, expr: e.Broadcast) -> Congruence:
        return self.visit(expr.value)

    def visit_ramp(self, expr: e.Ramp) -> Congruence:
        (p, a), (q, b) = self.visit(expr.base), self.visit(expr.stride)
        return self._ring(expr, math.gcd(p, q, b), a)

    def visit_let(self, expr: e.Let) -> Congruence:
        self.variables.setdefault(expr.var, self.visit(expr.value))
        return self.visit(expr.body)

    def visit_call(self, expr: e.Call) -> Congruence:
        name = expr.op.name if isinstance(expr.op, Op) else ""
        if name == "tir.if_then_else":
            return union(self.visit(expr.args[1]), self.visit(expr.args[2]))
        if name == "tir.shift_left":
            count = e.as_int(expr.args[1])
            if count is not None and 0 <= count < expr.dtype.bits:
                coeff, base = self.visit(expr.args[0])
                return reduced(math.gcd(coeff << count, 1 << expr.dtype.bits), base << count)
        if name == "tir.shift_right":
            count = e.as_int(expr.args[1])
            if count is not None and 0 <= count < expr.dtype.bits - 1:
                return self.visit_floordiv(e.FloorDiv(expr.args[0], e.const(1 << count, expr.dtype)))
        if name == "tir.bitwise_and":
            # With a mask of ones it is the remainder by a power of two.
            mask = next((n for n in map(e.as_int, expr.args) if n is not None and n > 0 and n & (n + 1) == 0), 0)
            value = expr.args[0] if e.as_int(expr.args[0]) is None else expr.args[1]
            if mask:
                coeff, base = self.visit(value)
                return reduced(math.gcd(coeff, mask + 1), base)
        return ANYTHING


_HANDLERS: dict[type, Callable[[ModularAnalyzer, Any], Congruence]] = {
    e.Add: ModularAnalyzer.visit_add,
    e.Sub: ModularAnalyzer.visit_sub,
    e.Mul: ModularAnalyzer.visit_mul,
    e.FloorDiv: ModularAnalyzer.visit_floordiv,
    e.Div: ModularAnalyzer.visit_truncdiv,
    e.FloorMod: ModularAnalyzer.visit_floormod,
    e.Mod: ModularAnalyzer.visit_truncmod,
    e.Min: ModularAnalyzer.visit_either,
    e.Max: ModularAnalyzer.visit_either,
    e.Select: ModularAnalyzer.visit_select,
    e.Cast: ModularAnalyzer.visit_cast,
    e.Broadcast: ModularAnalyzer.visit_broadcast,
    e.Ramp: ModularAnalyzer.visit_ramp,
    e.Let: ModularAnalyzer.visit_let,
    e.Call: ModularAnalyzer.visit_call,
}
