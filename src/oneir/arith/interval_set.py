"""Sets of integers with symbolic bounds: `int_set(i * 4 + j)` over i in [0, n), j in [0, 4) is [0, n * 4 - 1]."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Range, Var, as_int
from ..ir.node import Node
from ..ir.op import Op
from ..ir.visitor import deep_recursion
from ..runtime.error import TypeMismatch, UnsupportedError
from ..runtime.hook import Hook
from .const_int_bound import POS_INF, keeps_bits

if TYPE_CHECKING:
    from .analyzer import Analyzer

_POS_INF = Var("pos_inf", "handle")
_NEG_INF = Var("neg_inf", "handle")


def pos_inf() -> Var:
    """The bound of a set that has none above."""
    return _POS_INF


def neg_inf() -> Var:
    """The bound of a set that has none below."""
    return _NEG_INF


def is_infinite(bound: PrimExpr) -> bool:
    """Whether a bound is infinite."""
    return bound is _POS_INF or bound is _NEG_INF


set_of: Hook[[PrimExpr], IntervalSet] = Hook("set_of", "oneir.arith.analyzer")
"""The values of an expression of whose variables nothing is known."""


class IntSet(Node):
    """A set of integers."""

    def is_nothing(self) -> bool:
        """Whether the set is known to be empty."""
        return False

    def is_everything(self) -> bool:
        """Whether nothing is known of the set."""
        return False

    @staticmethod
    def vector(vec: Any) -> IntervalSet:
        """The values of the lanes of a vector expression."""
        return set_of(e.as_expr(vec))

    @staticmethod
    def single_point(point: Any) -> IntervalSet:
        """The set of one value."""
        value = e.as_expr(point)
        return IntervalSet(value, value)


class IntervalSet(IntSet):
    """The integers from `min_value` to `max_value`, both included; a bound may be `neg_inf()` or `pos_inf()`."""

    min_value: PrimExpr
    max_value: PrimExpr

    def __init__(self, min_value: Any, max_value: Any):
        self.min_value, self.max_value = e.as_expr(min_value), e.as_expr(max_value)

    def is_nothing(self) -> bool:
        return self.min_value is _POS_INF or self.max_value is _NEG_INF

    def is_everything(self) -> bool:
        return self.min_value is _NEG_INF and self.max_value is _POS_INF

    def is_single_point(self) -> bool:
        """Whether both bounds are the same expression."""
        return self.min_value is self.max_value or (
            not self.is_everything() and not self.is_nothing() and ops.same_expr(self.min_value, self.max_value)
        )


class PresburgerSet(IntSet):
    """A union of polyhedra; the name exists, sets of this kind are not supported."""

    def __init__(self, *constraints: Any):
        raise UnsupportedError("sets described by Presburger formulas are not supported; use IntervalSet")


_OF_INTS = {e.Add: operator.add, e.Sub: operator.sub, e.Mul: operator.mul}

EVERYTHING = IntervalSet(_NEG_INF, _POS_INF)
NOTHING = IntervalSet(_POS_INF, _NEG_INF)


def as_int_set(value: Any) -> IntSet:
    """A set given as such, as a `Range`, or as one value."""
    if isinstance(value, IntSet):
        return value
    if isinstance(value, Range):
        return IntervalSet(value.min, value.min + value.extent - 1)
    if isinstance(value, (e.ExprOp, int)):
        return IntSet.single_point(value)
    raise TypeMismatch(f"expected an IntSet, a Range or an expression, found {type(value).__name__}")


class IntSetEvaluator:
    """Evaluates an expression over sets; all bounds it makes are simplified."""

    def __init__(self, analyzer: Analyzer, domains: Mapping[Var, IntSet]):
        self.analyzer, self.domains = analyzer, domains
        self.entered: list[Var] = []
        self.memo: dict[int, tuple[PrimExpr, IntervalSet]] = {}

    def __call__(self, expr: PrimExpr) -> IntervalSet:
        """The interval of an expression, however deep."""
        with deep_recursion:
            return self.visit(expr)

    def visit(self, expr: PrimExpr) -> IntervalSet:
        """The interval of an expression."""
        if isinstance(expr, e.IntImm):
            return IntervalSet(expr, expr)
        if isinstance(expr, Var):
            return self._variable(expr)
        known = self.memo.get(id(expr))
        if known is None or self.entered:
            handler = _HANDLERS.get(type(expr))
            if handler is None or not (expr.dtype.is_int or expr.dtype.is_bool):
                result = self._opaque(expr)
            else:
                result = handler(self, expr)
            known = self.memo[id(expr)] = (expr, result)
        return known[1]

    def _variable(self, var: Var) -> IntervalSet:
        found = self.domains.get(var)
        if not isinstance(found, IntervalSet) or var in self.entered:
            return IntervalSet(var, var) if var.dtype.is_scalar else EVERYTHING
        if found.is_nothing():
            return found
        # The bounds of a variable may hold other variables of the map.
        self.entered.append(var)
        low = found.min_value if is_infinite(found.min_value) else self.visit(found.min_value).min_value
        high = found.max_value if is_infinite(found.max_value) else self.visit(found.max_value).max_value
        self.entered.pop()
        return IntervalSet(low, high)

    def _opaque(self, expr: Any) -> IntervalSet:
        """A single point for an expression that does not depend on the variables; otherwise everything.

        Nothing is known of a vector with differing lanes either: the ends of an interval are scalars.
        """
        return EVERYTHING if not expr.dtype.is_scalar or self._depends(expr) else IntervalSet(expr, expr)

    def _depends(self, expr: Any) -> bool:
        pending = [expr]
        while pending:
            node = pending.pop()
            if isinstance(node, Var):
                if node in self.domains:
                    return True
            elif isinstance(node, PrimExpr):
                node.visit_children(pending.append)
        return False

    def _simple(self, expr: Any) -> PrimExpr:
        analyzer = self.analyzer
        return analyzer.canonical.visit(analyzer.rewriter.visit(expr))

    def _of(self, cls: type, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return self._simple(cls(a, b))

    def _operands(self, expr: Any) -> tuple[IntervalSet, IntervalSet] | IntervalSet:
        """The sets of both operands; or already the set of the result, if one is empty or both are points."""
        a, b = self.visit(expr.a), self.visit(expr.b)
        if a.is_nothing() or b.is_nothing():
            return NOTHING
        if a.is_single_point() and b.is_single_point():
            kind: type[e.BinaryOpExpr] = expr.__class__
            if a.min_value is expr.a and b.min_value is expr.b:
                return IntervalSet(expr, expr)
            return IntSet.single_point(self._of(kind, a.min_value, b.min_value))
        return a, b

    def visit_add(self, expr: e.Add) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands
        low = self._end(e.Add, a.min_value, b.min_value, _NEG_INF)
        return IntervalSet(low, self._end(e.Add, a.max_value, b.max_value, _POS_INF))

    def visit_sub(self, expr: e.Sub) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands
        low = self._end(e.Sub, a.min_value, b.max_value, _NEG_INF)
        return IntervalSet(low, self._end(e.Sub, a.max_value, b.min_value, _POS_INF))

    def _end(self, cls: type, a: PrimExpr, b: PrimExpr, infinity: PrimExpr) -> PrimExpr:
        """One bound of a result; the given infinity where either part is infinite."""
        if is_infinite(a) or is_infinite(b):
            return infinity
        limits = self.analyzer.bounds_of_dtype(a.dtype)
        of_ints = _OF_INTS.get(cls)
        if of_ints is not None and isinstance(a, e.IntImm) and isinstance(b, e.IntImm) and a.dtype.is_int:
            end: int = of_ints(a.value, b.value)
            return e.IntImm(a.dtype, end) if limits[0] <= end <= limits[1] else infinity
        low, high = self.analyzer.bounds(cls(a, b))
        # A bound that certainly overflows is unknown.
        return infinity if low > limits[1] or high < limits[0] else self._of(cls, a, b)

    def visit_mul(self, expr: e.Mul) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands
        if a.is_single_point():
            a, b = b, a
        if b.is_single_point():
            return self._scaled(a, b.min_value)
        return self._constant(expr)

    def _scaled(self, a: IntervalSet, factor: PrimExpr) -> IntervalSet:
        low, high = self.analyzer.bounds(factor)
        if low == high == 0:
            return IntSet.single_point(factor)
        if low >= 0:
            return IntervalSet(
                self._end(e.Mul, a.min_value, factor, _NEG_INF), self._end(e.Mul, a.max_value, factor, _POS_INF)
            )
        if high <= 0:
            return IntervalSet(
                self._end(e.Mul, a.max_value, factor, _NEG_INF), self._end(e.Mul, a.min_value, factor, _POS_INF)
            )
        return EVERYTHING

    def _constant(self, expr: PrimExpr) -> IntervalSet:
        """Constant bounds of an expression whose variables run over sets of constant bounds."""
        inner = type(self.analyzer)()
        for variable, values in self.domains.items():
            if isinstance(values, IntervalSet) and not is_infinite(values.min_value):
                low = self.analyzer.bounds(values.min_value)[0]
                high = POS_INF if is_infinite(values.max_value) else self.analyzer.bounds(values.max_value)[1]
                if low <= high:
                    inner.bounds.variables[variable] = (low, high)
        for variable, known in self.analyzer.bounds.variables.items():
            inner.bounds.variables.setdefault(variable, known)
        low, high = inner.bounds(expr)
        # A bound in the outer half of the dtype stems from the limits of the dtype: one that overflows when it is used.
        limits = self.analyzer.bounds_of_dtype(expr.dtype)
        return IntervalSet(
            e.IntImm(expr.dtype.element, low) if low >= limits[0] // 2 else _NEG_INF,
            e.IntImm(expr.dtype.element, high) if high <= limits[1] // 2 else _POS_INF,
        )

    def visit_floordiv(self, expr: e.FloorDiv) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands
        if not b.is_single_point() or self.analyzer.bounds(b.min_value)[0] <= 0:
            return self._constant(expr)
        divisor = b.min_value
        low = self._end(e.FloorDiv, a.min_value, divisor, _NEG_INF)
        return IntervalSet(low, self._end(e.FloorDiv, a.max_value, divisor, _POS_INF))

    def visit_truncdiv(self, expr: e.Div) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands
        if not b.is_single_point() or self.analyzer.bounds(b.min_value)[0] <= 0:
            return self._constant(expr)
        low = self._end(e.Div, a.min_value, b.min_value, _NEG_INF)
        return IntervalSet(low, self._end(e.Div, a.max_value, b.min_value, _POS_INF))

    def visit_floormod(self, expr: e.FloorMod) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands
        if not b.is_single_point() or self.analyzer.bounds(b.min_value)[0] <= 0:
            return self._constant(expr)
        divisor = b.min_value
        if not is_infinite(a.min_value) and not is_infinite(a.max_value):
            analyzer = self.analyzer
            first, last = self._of(e.FloorDiv, a.min_value, divisor), self._of(e.FloorDiv, a.max_value, divisor)
            if analyzer.difference(first, last) == (0, 0):
                # The whole interval lies between two multiples of the divisor.
                offset = e.Mul(first, divisor)
                return IntervalSet(self._of(e.Sub, a.min_value, offset), self._of(e.Sub, a.max_value, offset))
        if not isinstance(divisor, e.IntImm):
            return IntervalSet(e.const(0, expr.dtype.element), self._simple(divisor - 1))
        # What all dividends are a multiple of, and more by, narrows both ends.
        coeff, base = self.analyzer.modular(expr.a)
        step = math.gcd(coeff, divisor.value)
        first = base % step
        return IntervalSet(*(e.const(end, expr.dtype.element) for end in (first, divisor.value - step + first)))

    def visit_truncmod(self, expr: e.Mod) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands
        if not b.is_single_point() or self.analyzer.bounds(b.min_value)[0] <= 0:
            return self._constant(expr)
        last = self._simple(b.min_value - 1)
        if not is_infinite(a.min_value) and self.analyzer.bounds(a.min_value)[0] >= 0:
            return IntervalSet(e.const(0, expr.dtype.element), last)
        return IntervalSet(self._simple(0 - last), last)

    def visit_min(self, expr: e.Min) -> IntervalSet:
        return self._extreme(expr, e.Min, _NEG_INF, _POS_INF)

    def visit_max(self, expr: e.Max) -> IntervalSet:
        return self._extreme(expr, e.Max, _POS_INF, _NEG_INF)

    def _extreme(self, expr: Any, cls: type, winning: PrimExpr, losing: PrimExpr) -> IntervalSet:
        operands = self._operands(expr)
        if isinstance(operands, IntervalSet):
            return operands
        a, b = operands

        def pick(x: PrimExpr, y: PrimExpr) -> PrimExpr:
            if x is winning or y is winning:
                return winning
            return y if x is losing else x if y is losing else self._of(cls, x, y)

        return IntervalSet(pick(a.min_value, b.min_value), pick(a.max_value, b.max_value))

    def visit_comparison(self, expr: e.CmpExpr) -> IntervalSet:
        """A truth value: a point where the sets decide it, else either."""
        if not self._depends(expr):
            return IntervalSet(expr, expr)
        a, b = self.visit(expr.a), self.visit(expr.b)
        ends = (a.min_value, a.max_value, b.min_value, b.max_value)
        if not (any_infinite(ends) or a.is_nothing() or b.is_nothing()) and type(expr) is not e.EQ:
            kind = type(expr)
            if kind in (e.GT, e.GE):
                kind, a, b = (e.LT if kind is e.GT else e.LE), b, a
            if kind in (e.LT, e.LE):
                if _is_true(self._of(kind, a.max_value, b.min_value)):
                    return IntSet.single_point(e.IntImm("bool", 1))
                contrary = e.LE if kind is e.LT else e.LT
                if _is_true(self._of(contrary, b.max_value, a.min_value)):
                    return IntSet.single_point(e.IntImm("bool", 0))
        return IntervalSet(e.IntImm("bool", 0), e.IntImm("bool", 1))

    def visit_select(self, expr: e.Select) -> IntervalSet:
        return union([self.visit(expr.true_value), self.visit(expr.false_value)], self.analyzer)

    def visit_cast(self, expr: e.Cast) -> IntervalSet:
        value = expr.value
        if not (value.dtype.is_int or value.dtype.is_bool) or not expr.dtype.is_int:
            return self._opaque(expr)
        inner = self.visit(value)
        if inner.is_nothing() or (inner.min_value is value and inner.max_value is value):
            return inner if inner.is_nothing() else IntervalSet(expr, expr)
        low, high = self.analyzer.bounds_of_dtype(expr.dtype)
        source = self.analyzer.bounds_of_dtype(value.dtype)
        if source[0] < low or source[1] > high:
            ends = (inner.min_value, inner.max_value)
            if any_infinite(ends) or self.analyzer.bounds(ends[0])[0] < low or self.analyzer.bounds(ends[1])[1] > high:
                return EVERYTHING
        return IntervalSet(
            *(
                x if is_infinite(x) else self._simple(ops.cast(expr.dtype, x))
                for x in (inner.min_value, inner.max_value)
            )
        )

    def visit_ramp(self, expr: e.Ramp) -> IntervalSet:
        base = self.visit(expr.base)
        if not isinstance(expr.stride, e.IntImm) or base.is_nothing():
            return base if base.is_nothing() else EVERYTHING
        if not isinstance(expr.lanes, int):
            # How many lanes there are is known when it runs.
            ends = (base.min_value, _POS_INF) if expr.stride.value >= 0 else (_NEG_INF, base.max_value)
            return IntervalSet(*ends)
        width = expr.stride.value * (expr.lanes - 1)
        span = e.const(width, expr.base.dtype)
        low, high = base.min_value, base.max_value
        if width >= 0:
            return IntervalSet(low, self._end(e.Add, high, span, _POS_INF))
        return IntervalSet(self._end(e.Add, low, span, _NEG_INF), high)

    def visit_broadcast(self, expr: e.Broadcast) -> IntervalSet:
        return self.visit(expr.value)

    def visit_call(self, call: e.Call) -> IntervalSet:
        name = call.op.name if isinstance(call.op, Op) else ""
        if name == "tir.likely":
            return self.visit(call.args[0])
        if name == "tir.if_then_else":
            return union([self.visit(call.args[1]), self.visit(call.args[2])], self.analyzer)
        if name in ("tir.shift_left", "tir.shift_right"):
            value, count, left = call.args[0], as_int(call.args[1]), name == "tir.shift_left"
            if count is not None and 0 <= count < call.dtype.bits - 1:
                factor = e.const(1 << count, call.dtype)
                if not left or keeps_bits(self.analyzer.bounds(value), count, call.dtype):
                    return self.visit((e.Mul if left else e.FloorDiv)(value, factor))
        if not self._depends(call):
            return IntervalSet(call, call)
        return self._constant(call)

    def visit_let(self, expr: e.Let) -> IntervalSet:
        inner = IntSetEvaluator(self.analyzer, {**self.domains, expr.var: self.visit(expr.value)})
        return inner.visit(expr.body)


def any_infinite(bounds: tuple[PrimExpr, ...]) -> bool:
    """Whether one of several bounds is infinite."""
    return any(is_infinite(b) for b in bounds)


def _is_true(condition: PrimExpr) -> bool:
    return isinstance(condition, e.IntImm) and condition.value != 0


def union(sets: list[IntervalSet], analyzer: Analyzer) -> IntervalSet:
    """The smallest interval that holds all sets."""
    result = NOTHING
    for other in sets:
        if result.is_nothing() or other.is_nothing():
            result = other if result.is_nothing() else result
            continue
        low = _outer(e.Min, result.min_value, other.min_value, _NEG_INF, analyzer)
        result = IntervalSet(low, _outer(e.Max, result.max_value, other.max_value, _POS_INF, analyzer))
    return result


def _outer(cls: type, a: PrimExpr, b: PrimExpr, infinity: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    if a is infinity or b is infinity:
        return infinity
    if a is b:
        return a
    # One buffer may be indexed with integers of different widths.
    a, b = ops.match_types(a, b)
    return analyzer.canonical.visit(analyzer.rewriter.visit(cls(a, b)))


_HANDLERS: dict[type, Callable[[IntSetEvaluator, Any], IntervalSet]] = {
    e.Add: IntSetEvaluator.visit_add,
    e.Sub: IntSetEvaluator.visit_sub,
    e.Mul: IntSetEvaluator.visit_mul,
    e.FloorDiv: IntSetEvaluator.visit_floordiv,
    e.FloorMod: IntSetEvaluator.visit_floormod,
    e.Div: IntSetEvaluator.visit_truncdiv,
    e.Mod: IntSetEvaluator.visit_truncmod,
    e.Min: IntSetEvaluator.visit_min,
    e.Max: IntSetEvaluator.visit_max,
    e.Select: IntSetEvaluator.visit_select,
    e.Cast: IntSetEvaluator.visit_cast,
    e.Ramp: IntSetEvaluator.visit_ramp,
    e.Broadcast: IntSetEvaluator.visit_broadcast,
    e.Call: IntSetEvaluator.visit_call,
    e.Let: IntSetEvaluator.visit_let,
    e.EQ: IntSetEvaluator.visit_comparison,
    e.NE: IntSetEvaluator.visit_comparison,
    e.LT: IntSetEvaluator.visit_comparison,
    e.LE: IntSetEvaluator.visit_comparison,
    e.GT: IntSetEvaluator.visit_comparison,
    e.GE: IntSetEvaluator.visit_comparison,
}
