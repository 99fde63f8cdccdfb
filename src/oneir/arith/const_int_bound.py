"""Constant bounds of integer expressions: `const_int_bound(i * 4 + j)` with i, j in [0, 4) is [0, 15].

Bounds are pairs (low, high) of Python ints. `POS_INF` and `NEG_INF` stand for infinity and are what every larger
value becomes. Arithmetic on int32 and int64 is assumed not to overflow; a result of another dtype that may wrap
is only known to be a value of its dtype. The bounds of a vector hold for every lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..ir import expr as e
from ..ir.dtype import DataType
from ..ir.node import Node, attr
from ..ir.op import Op
from .pattern import same

if TYPE_CHECKING:
    from .analyzer import Analyzer

POS_INF = (1 << 63) - 1
NEG_INF = -POS_INF
Bounds = tuple[int, int]
EVERYTHING: Bounds = (NEG_INF, POS_INF)
_BOOL: Bounds = (0, 1)


class ConstIntBound(Node):
    """The integers from `min_value` to `max_value`, both included."""

    POS_INF: ClassVar[int] = POS_INF
    NEG_INF: ClassVar[int] = NEG_INF
    min_value: int = attr()
    max_value: int = attr()


_EXACT_INTEGERS = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}
"""Up to which magnitude a float dtype holds every integer: 2 to the bits of its significand."""
_MOST_SHIFT = 64
"""Shifted to the right by this much or more, every value is 0 or -1."""
_dtype_bounds: dict[DataType, tuple[Bounds, bool]] = {}


def _dtype_info(dtype: DataType) -> tuple[Bounds, bool]:
    """The values of a dtype, and whether its arithmetic wraps."""
    found = _dtype_bounds.get(dtype)
    if found is None:
        if dtype.code == "int":
            bounds = (clip(-(1 << (dtype.bits - 1))), clip((1 << (dtype.bits - 1)) - 1))
        elif dtype.code in ("uint", "bool"):
            bounds = (0, (1 << dtype.bits) - 1)
        else:
            bounds = EVERYTHING
        found = _dtype_bounds[dtype] = (bounds, (dtype.is_int or dtype.is_bool) and not is_index_like(dtype))
    return found


def dtype_bounds(dtype: DataType) -> Bounds:
    """The values that a dtype holds."""
    return _dtype_info(dtype)[0]


def is_index_like(dtype: DataType) -> bool:
    """Whether arithmetic of the dtype, scalar or vector, is assumed not to overflow."""
    return dtype.code == "int" and dtype.bits >= 32


def clip(value: int) -> int:
    """The value saturated to [NEG_INF, POS_INF]."""
    return NEG_INF if value < NEG_INF else POS_INF if value > POS_INF else value


def add_bounds(a: Bounds, b: Bounds) -> Bounds:
    """The bounds of a sum."""
    low = NEG_INF if a[0] == NEG_INF or b[0] == NEG_INF else clip(a[0] + b[0])
    high = POS_INF if a[1] == POS_INF or b[1] == POS_INF else clip(a[1] + b[1])
    return low, high


def scale_bounds(a: Bounds, factor: int) -> Bounds:
    """The bounds of a multiple."""
    if factor >= 0:
        return clip(a[0] * factor), clip(a[1] * factor)
    return clip(a[1] * factor), clip(a[0] * factor)


def keeps_bits(bounds: Bounds, count: int, dtype: DataType) -> bool:
    """Whether values in some bounds are multiplied when they are shifted to the left: no bit is shifted out.

    Programs extend signs by shifting bits out, `x << 28 >> 28`, so unlike products shifts may leave their dtype.
    """
    low, high = dtype_bounds(dtype)
    return low <= bounds[0] << count and bounds[1] << count <= high


def union_bounds(a: Bounds, b: Bounds) -> Bounds:
    """The smallest bounds that hold both."""
    return min(a[0], b[0]), max(a[1], b[1])


def intersect_bounds(a: Bounds, b: Bounds) -> Bounds:
    """The intersection; of disjoint bounds, which only contradictory conditions make, the first."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a


def _multiply(a: Bounds, b: Bounds) -> Bounds:
    products = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return clip(min(products)), clip(max(products))


def floordiv_bounds(a: Bounds, b: Bounds) -> Bounds:
    """The bounds of a quotient rounded down."""
    if b[0] == b[1] > 0:
        low, high = a
        return NEG_INF if low == NEG_INF else low // b[0], POS_INF if high == POS_INF else high // b[0]
    return _quotient_bounds(a, b, 1)


def truncdiv_bounds(a: Bounds, b: Bounds) -> Bounds:
    """The bounds of a quotient rounded towards zero."""
    return _quotient_bounds(a, b, 0)


def _quotient_bounds(a: Bounds, b: Bounds, down: int) -> Bounds:
    """The quotients over the corners of the positive and of the negative divisors, and what division by zero gives."""
    ends: list[int] = [0] if b[0] <= 0 <= b[1] else []
    for first, last in ((max(b[0], 1), b[1]), (b[0], min(b[1], -1))):
        if first <= last:
            ends += [_corner(x, y, down) for x in a for y in (first, last)]
    return min(ends), max(ends)


def _corner(value: int, divisor: int, down: int) -> int:
    """A quotient of two ends, either of which may be infinite."""
    negative = (value < 0) != (divisor < 0)
    if abs(divisor) == POS_INF:
        return -down if negative and value else 0
    if abs(value) == POS_INF:
        return NEG_INF if negative else POS_INF
    return value // divisor if down or not negative else -(abs(value) // abs(divisor))


def floormod_bounds(a: Bounds, b: Bounds) -> Bounds:
    """The bounds of a remainder with the sign of the divisor."""
    if b[0] > 0:
        if a[0] >= 0:
            return a if a[1] < b[0] else (0, min(a[1], b[1] - 1 if b[1] != POS_INF else POS_INF))
        if b[0] == b[1] and a[0] != NEG_INF and a[1] != POS_INF and a[0] // b[0] == a[1] // b[0]:
            return a[0] % b[0], a[1] % b[0]
        return 0, b[1] - 1 if b[1] != POS_INF else POS_INF
    if a[0] >= 0 and b[0] >= 0:
        return 0, a[1]
    return min(a[0], clip(b[0] + 1), 0), max(a[1], clip(b[1] - 1), 0)


class BoundAnalyzer:
    """The analysis of constant bounds."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.variables: dict[e.PrimExpr, Bounds] = {}
        self.facts: list[tuple[e.PrimExpr, Bounds]] = []
        """Bounds of composite expressions, from conditions known to hold."""
        self.memo: dict[int, tuple[e.PrimExpr, Bounds]] = {}

    def __call__(self, expr: e.PrimExpr) -> Bounds:
        """The bounds of an expression."""
        return self.visit(expr)

    def visit(self, expr: e.PrimExpr) -> Bounds:
        """As `__call__`; recursion uses this method, since calling an object takes C stack, and trees may be deep."""
        kind = type(expr)
        if isinstance(expr, e.IntImm):
            value = expr.value
            return (value, value) if NEG_INF < value < POS_INF or expr.dtype.is_uint else (clip(value), clip(value))
        if expr.is_variable:
            found = self.variables.get(expr)
            if found is not None:
                return found
            low, high = dtype_bounds(expr.dtype)
            return (max(low, 0), high) if isinstance(expr, e.SizeVar) else (low, high)
        known = self.memo.get(id(expr))
        if known is not None:
            return known[1]
        handler = _HANDLERS.get(kind)
        (low, high), wraps = _dtype_info(expr.dtype)
        if handler is None:
            bounds = (low, high)
        else:
            bounds = handler(self, expr)
            # Infinite bounds of a uint64 may stand for values that wrap.
            if wraps and (bounds[0] < low or bounds[1] > high or bounds[1] >= POS_INF):
                bounds = (low, high)
        for fact, limits in self.facts:
            if type(fact) is kind and same(fact, expr):
                bounds = intersect_bounds(bounds, limits)
        self.memo[id(expr)] = (expr, bounds)
        return bounds

    def visit_add(self, expr: e.Add) -> Bounds:
        return add_bounds(self.visit(expr.a), self.visit(expr.b))

    def visit_sub(self, expr: e.Sub) -> Bounds:
        low, high = self.visit(expr.b)
        return add_bounds(self.visit(expr.a), (-high, -low))

    def visit_mul(self, expr: e.Mul) -> Bounds:
        return _multiply(self.visit(expr.a), self.visit(expr.b))

    def visit_floordiv(self, expr: e.FloorDiv) -> Bounds:
        return floordiv_bounds(self.visit(expr.a), self.visit(expr.b))

    def visit_floormod(self, expr: e.FloorMod) -> Bounds:
        divisor = self.visit(expr.b)
        bounds = floormod_bounds(self.visit(expr.a), divisor)
        if divisor[0] == divisor[1] > 1 and bounds == (0, divisor[1] - 1):
            # The modular set narrows both ends: (4 * x + 1) % 8 is 1 or 5.
            coeff, base = self.analyzer.modular(expr.a)
            step = math.gcd(coeff, divisor[1])
            return base % step, divisor[1] - step + base % step
        return bounds

    def visit_truncdiv(self, expr: e.Div) -> Bounds:
        if not expr.dtype.is_int:
            return EVERYTHING
        return truncdiv_bounds(self.visit(expr.a), self.visit(expr.b))

    def visit_truncmod(self, expr: e.Mod) -> Bounds:
        if not expr.dtype.is_int:
            return EVERYTHING
        a, b = self.visit(expr.a), self.visit(expr.b)
        low, high = min(a[0], 0), max(a[1], 0)
        if b[0] > 0 or b[1] < 0:
            largest = max(abs(b[0]), abs(b[1])) - 1
            low, high = max(low, -largest), min(high, largest)
            if a[0] >= 0 and a[1] < min(abs(b[0]), abs(b[1])):
                return a
        return low, high

    def visit_min(self, expr: e.Min) -> Bounds:
        a, b = self.visit(expr.a), self.visit(expr.b)
        return min(a[0], b[0]), min(a[1], b[1])

    def visit_max(self, expr: e.Max) -> Bounds:
        a, b = self.visit(expr.a), self.visit(expr.b)
        return max(a[0], b[0]), max(a[1], b[1])

    def visit_truth(self, expr: e.PrimExpr) -> Bounds:
        return _BOOL

    def visit_select(self, expr: e.Select) -> Bounds:
        return union_bounds(self.visit(expr.true_value), self.visit(expr.false_value))

    def visit_cast(self, expr: e.Cast) -> Bounds:
        everything = dtype_bounds(expr.dtype)
        source = expr.value.dtype
        value = expr.value
        if source.is_float and isinstance(value, e.Call):
            return self._logarithm(value, everything)
        if source.is_float and isinstance(value, e.Cast) and value.value.dtype.is_int and source in _EXACT_INTEGERS:
            # An integer that a float holds exactly comes back as it was.
            low, high = self.visit(value.value)
            if max(-low, high) > _EXACT_INTEGERS[source]:
                return everything
            value, source = value.value, value.value.dtype
        if expr.dtype.is_bool or not (source.is_int or source.is_bool):
            return everything
        low, high = self.visit(value)
        return (low, high) if low >= everything[0] and high <= everything[1] else everything

    def _logarithm(self, call: e.Call, everything: Bounds) -> Bounds:
        """The bounds of ceil(log2(n)) of an integer n, which loops of searches run to."""
        match call:
            case e.Call(op=Op(name="tir.ceil"), args=[e.Call(op=Op(name="tir.log2"), args=[e.Cast(value=number)])]):
                low, high = self.visit(number)
                exact = high <= _EXACT_INTEGERS.get(call.dtype, 0)
                if number.dtype.is_int and low >= 1 and exact:
                    return (low - 1).bit_length(), (high - 1).bit_length()
            case _:
                pass
        return everything

    def visit_ramp(self, expr: e.Ramp) -> Bounds:
        if not isinstance(expr.lanes, int):
            return dtype_bounds(expr.dtype)
        return add_bounds(self.visit(expr.base), _multiply(self.visit(expr.stride), (0, expr.lanes - 1)))

    def visit_broadcast(self, expr: e.Broadcast) -> Bounds:
        return self.visit(expr.value)

    def visit_let(self, expr: e.Let) -> Bounds:
        self.variables.setdefault(expr.var, self.visit(expr.value))
        return self.visit(expr.body)

    def visit_call(self, expr: e.Call) -> Bounds:
        rule = _CALLS.get(expr.op.name) if isinstance(expr.op, Op) else None
        return dtype_bounds(expr.dtype) if rule is None else rule(self, expr, *expr.args)

    def visit_likely(self, call: e.Call, condition: e.PrimExpr) -> Bounds:
        return self.visit(condition)

    def visit_if_then_else(self, call: e.Call, condition: e.PrimExpr, yes: e.PrimExpr, no: e.PrimExpr) -> Bounds:
        return union_bounds(self.visit(yes), self.visit(no))

    def visit_shift_right(self, call: e.Call, value: e.PrimExpr, count: e.PrimExpr) -> Bounds:
        amount = count.value if isinstance(count, e.IntImm) else -1
        if 0 <= amount < call.dtype.bits:
            return floordiv_bounds(self.visit(value), (1 << amount, 1 << amount))
        low, high = self.visit(value)
        first, last = self.visit(count)
        if first < 0:
            return min(low, -1) if low < 0 else 0, max(high, 0)
        first, last = min(first, _MOST_SHIFT), min(last, _MOST_SHIFT)
        least = NEG_INF if low == NEG_INF else low >> (first if low < 0 else last)
        greatest = POS_INF if high == POS_INF else high >> (last if high < 0 else first)
        return least, greatest

    def visit_shift_left(self, call: e.Call, value: e.PrimExpr, count: e.PrimExpr) -> Bounds:
        bounds, (first, last) = self.visit(value), self.visit(count)
        if first < 0 or last >= call.dtype.bits or not keeps_bits(bounds, last, call.dtype):
            return dtype_bounds(call.dtype)
        low, high = bounds
        return low << (last if low < 0 else first), high << (first if high < 0 else last)

    def visit_bitwise_and(self, call: e.Call, a: e.PrimExpr, b: e.PrimExpr) -> Bounds:
        highs = [high for low, high in (self.visit(a), self.visit(b)) if low >= 0]
        return (0, min(highs)) if highs else dtype_bounds(call.dtype)

    def visit_bitwise_or(self, call: e.Call, a: e.PrimExpr, b: e.PrimExpr) -> Bounds:
        x, y = self.visit(a), self.visit(b)
        if x[0] < 0 or y[0] < 0:
            return dtype_bounds(call.dtype)
        return 0, (1 << max(x[1].bit_length(), y[1].bit_length())) - 1

    def visit_abs(self, call: e.Call, value: e.PrimExpr) -> Bounds:
        low, high = self.visit(value)
        return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))

    def visit_bit_count(self, call: e.Call, value: e.PrimExpr) -> Bounds:
        return 0, value.dtype.bits

    def visit_vscale(self, call: e.Call) -> Bounds:
        return 1, dtype_bounds(call.dtype)[1]


_HANDLERS: dict[type, Callable[[BoundAnalyzer, Any], Bounds]] = {
    e.Add: BoundAnalyzer.visit_add,
    e.Sub: BoundAnalyzer.visit_sub,
    e.Mul: BoundAnalyzer.visit_mul,
    e.FloorDiv: BoundAnalyzer.visit_floordiv,
    e.FloorMod: BoundAnalyzer.visit_floormod,
    e.Div: BoundAnalyzer.visit_truncdiv,
    e.Mod: BoundAnalyzer.visit_truncmod,
    e.Min: BoundAnalyzer.visit_min,
    e.Max: BoundAnalyzer.visit_max,
    e.Select: BoundAnalyzer.visit_select,
    e.Cast: BoundAnalyzer.visit_cast,
    e.Ramp: BoundAnalyzer.visit_ramp,
    e.Broadcast: BoundAnalyzer.visit_broadcast,
    e.Let: BoundAnalyzer.visit_let,
    e.Call: BoundAnalyzer.visit_call,
}
for _comparison in (e.EQ, e.NE, e.LT, e.LE, e.GT, e.GE, e.And, e.Or, e.Not):
    _HANDLERS[_comparison] = BoundAnalyzer.visit_truth

_CALLS: dict[str, Callable[..., Bounds]] = {
    "tir.likely": BoundAnalyzer.visit_likely,
    "tir.if_then_else": BoundAnalyzer.visit_if_then_else,
    "tir.shift_right": BoundAnalyzer.visit_shift_right,
    "tir.shift_left": BoundAnalyzer.visit_shift_left,
    "tir.bitwise_and": BoundAnalyzer.visit_bitwise_and,
    "tir.bitwise_or": BoundAnalyzer.visit_bitwise_or,
    "tir.bitwise_xor": BoundAnalyzer.visit_bitwise_or,
    "tir.abs": BoundAnalyzer.visit_abs,
    "tir.clz": BoundAnalyzer.visit_bit_count,
    "tir.popcount": BoundAnalyzer.visit_bit_count,
    "tir.vscale": BoundAnalyzer.visit_vscale,
}
