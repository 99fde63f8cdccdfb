"""Simplification by the rules of `rules.py`, from the leaves up.

Replacements are simplified while they are built (`binary`), so that the result of every step is in simplest form.
Rules run only on pure expressions; of floats, only exact identities are used.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir import expr as e
from ..ir import operators as ops
from ..ir.dtype import BOOL, DataType
from ..ir.node import Node, attr
from ..ir.op import Op
from ..runtime.once import once
from . import rules as table
from .boolean import as_and_of_ors
from .const_int_bound import Bounds, is_index_like, keeps_bits
from .pattern import COMMUTATIVE, Overflow, Rule, Shape, parse_rules, same, shape_of
from .vector_simplify import vector_binary

if TYPE_CHECKING:
    from .analyzer import Analyzer

_DEPTH = 12
"""How many rules may nest in building one result; beyond it expressions are built as they are."""

_MANY = 5
"""From how many rules on it pays to look at the operands of operands before any is tried."""

_RuleFunction = Callable[..., Any]
_selected: dict[tuple[Any, ...], tuple[_RuleFunction, ...]] = {}


@once
def _all_rules() -> dict[tuple[type, bool], list[Rule]]:
    """The rules by the class of their root and by whether they need arithmetic that does not overflow."""
    rules: dict[tuple[type, bool], list[Rule]] = {}
    for text, overflowing in (
        (table.RING, True),
        (table.LATTICE, True),
        (table.LOGIC, True),
        (table.NEGATION, True),
        (table.CHOICE, True),
        (table.INDEX, False),
    ):
        for rule in parse_rules(text):
            rules.setdefault((rule.root, False), []).append(rule)
            if overflowing:
                rules.setdefault((rule.root, True), []).append(rule)
    return rules


def _select(cls: type, wraps: bool, *operands: Shape) -> tuple[_RuleFunction, ...]:
    """The rules that may match a node of this class with operands of these shapes, in the order of the table."""
    rules = _all_rules().get((cls, wraps), ())
    found = tuple(r.function for r in rules if r.may_match(operands))
    _selected[(cls, wraps, *operands)] = found
    return found


_FOLD: dict[type, Callable[[Any, Any], Any]] = {
    e.Add: operator.add,
    e.Sub: operator.sub,
    e.Mul: operator.mul,
    e.FloorDiv: lambda a, b: a // b if b else 0,
    e.FloorMod: lambda a, b: a % b if b else a,
    e.Div: ops.trunc_div,
    e.Mod: ops.trunc_mod,
    e.Min: min,
    e.Max: max,
    e.EQ: operator.eq,
    e.NE: operator.ne,
    e.LT: operator.lt,
    e.LE: operator.le,
    e.GT: operator.gt,
    e.GE: operator.ge,
}
_COMPARISONS = (e.EQ, e.NE, e.LT, e.LE, e.GT, e.GE)
_FLOAT: dict[type, Callable[[Any, Any], Any]] = {
    e.Add: ops.add,
    e.Sub: ops.subtract,
    e.Mul: ops.multiply,
    e.Div: ops.divide,
    e.Min: ops.minimum,
    e.Max: ops.maximum,
}
TRUE, FALSE = e.IntImm(BOOL, 1), e.IntImm(BOOL, 0)


def truth(value: bool) -> e.IntImm:
    """A constant truth value."""
    return TRUE if value else FALSE


def truth_like(value: bool, dtype: DataType) -> e.PrimExpr:
    """A constant truth value with the lanes of a dtype."""
    return truth(value) if dtype is BOOL else broadcast_like(truth(value), dtype)


def broadcast_like(value: e.PrimExpr, dtype: DataType) -> e.PrimExpr:
    """A scalar with the lanes of a dtype."""
    if dtype.is_scalar:
        return value
    return e.Broadcast(value, ops.scalable_lanes(dtype.lanes) if dtype.scalable else dtype.lanes)


class RewriteStats(Node):
    """Statistics of a simplifier since they were reset."""

    nodes_visited: int = attr(default=0)
    constraints_entered: int = attr(default=0)
    rewrites_attempted: int = attr(default=0)
    rewrites_performed: int = attr(default=0)
    max_recursive_depth: int = attr(default=0)
    num_recursive_rewrites: int = attr(default=0)


class RewriteSimplifier:
    """Simplifies by the rewrite rules, with the bounds and conditions of an analyzer."""

    sums_only = True
    """Whether negative constants are added rather than their opposites subtracted."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.bounds = analyzer.bounds
        self.substitutes: dict[e.Var, e.PrimExpr] = {}
        """Variables bound to an expression."""
        self.memo: dict[int, tuple[e.PrimExpr, e.PrimExpr]] = {}
        self.effects = 0
        """How many calls with effects have been visited; a node above such a call is left as it is."""
        self.depth = 0
        self.extended = False
        """Whether the analyzer has extensions switched on."""
        self.in_connective = False
        self.stats = RewriteStats()

    # -- queries of rules --

    def lo(self, x: Any) -> int:
        """The least value; NEG_INF where there is no limit."""
        return self.bounds(x)[0]

    def hi(self, x: Any) -> int:
        """The greatest value."""
        return self.bounds(x)[1]

    def nonzero(self, x: Any) -> bool:
        """Whether x is known not to be zero."""
        low, high = self.bounds(x)
        if low > 0 or high < 0:
            return True
        coeff, base = self.analyzer.modular(x)
        return base % coeff != 0 if coeff else base != 0

    def less(self, x: Any, y: Any) -> bool:
        """Whether x < y is known."""
        return self.difference(x, y)[1] < 0

    def less_equal(self, x: Any, y: Any) -> bool:
        """Whether x <= y is known."""
        return self.difference(x, y)[1] <= 0

    def equal(self, x: Any, y: Any) -> bool:
        """Whether x == y is known."""
        return self.difference(x, y) == (0, 0)

    def extremum(self, x: Any) -> bool:
        """Whether x is a minimum or a maximum."""
        return isinstance(x, (e.Min, e.Max))

    def index(self, x: Any) -> bool:
        """Whether arithmetic of the dtype of x is taken not to overflow."""
        return is_index_like(x.dtype)

    def divisible(self, x: Any, c: int) -> bool:
        """Whether the remainder of x by c is known."""
        coeff = self.analyzer.modular(x)[0]
        return coeff % c == 0

    def remainder(self, x: Any, c: int) -> int:
        """The remainder of x by c, where it is known."""
        return self.analyzer.modular(x)[1] % c

    def varies(self, x: Any) -> bool:
        """Whether x is not constant, so that a product with it is no term of a linear sum."""
        return not isinstance(x, e.IntImm)

    def whole(self, x: Any) -> bool:
        """Whether x is an integer, so that it cannot be NaN."""
        return not x.dtype.is_float

    def difference(self, x: Any, y: Any) -> Bounds:
        """Bounds of x - y."""
        return self.analyzer.difference(x, y)

    # -- building --

    def with_constant(self, cls: type, a: Any, value: int) -> Any:
        """A node over an expression and a number of its dtype."""
        if isinstance(value, bool):
            return self.binary(cls, a, truth(value))
        return self.binary(cls, a, self._fitting(value, a.dtype))

    def with_constant_left(self, cls: type, value: int, b: Any) -> Any:
        """A node over a number and an expression of its dtype."""
        return self.binary(cls, self._fitting(value, b.dtype), b)

    def _fitting(self, value: int, dtype: DataType) -> Any:
        if is_index_like(dtype):
            bound = 1 << (dtype.bits - 1)
            if not -bound <= value < bound:
                raise Overflow
            return e.const(value, dtype)
        return e.const(ops.wrap_int(value, dtype.element), dtype)

    def make_not(self, a: Any) -> Any:
        """not a"""
        if isinstance(a, e.IntImm):
            return truth(not a.value)
        if type(a) is e.Broadcast:
            return e.Broadcast(self.make_not(a.value), a.lanes)
        kind: type[e.PrimExpr] = a.__class__
        if kind is e.EQ or kind is e.NE:
            return (e.NE if kind is e.EQ else e.EQ)(a.a, a.b)
        if (kind is e.LT or kind is e.LE) and not a.a.dtype.is_float:
            return (e.LE if kind is e.LT else e.LT)(a.b, a.a)
        result = self._apply(e.Not, False, a.dtype, a)
        return e.Not(a) if result is None else result

    def make_select(self, condition: Any, yes: Any, no: Any) -> Any:
        """`yes` where the condition holds, else `no`"""
        if isinstance(condition, e.IntImm):
            return yes if condition.value else no
        if type(condition) is e.Broadcast and isinstance(condition.value, e.IntImm):
            return yes if condition.value.value else no
        result = self._apply(e.Select, False, yes.dtype, condition, yes, no)
        return e.Select(condition, yes, no) if result is None else result

    def _apply(self, cls: type, wraps: bool, dtype: DataType, *operands: Any) -> Any:
        """The first rule that applies, or None."""
        key = (cls, wraps, *map(type, operands))
        found = _selected.get(key)
        if found is None:
            found = _select(*key)
        if not found or self.depth > _DEPTH:
            return None
        if len(found) > _MANY:
            shapes = (cls, wraps, *map(shape_of, operands))
            found = _selected.get(shapes)
            if found is None:
                found = _select(*shapes)
        self.depth += 1
        try:
            for rule in found:
                result = rule(self, dtype, *operands)
                if result is not None:
                    stats = self.stats
                    stats.rewrites_performed += 1
                    stats.max_recursive_depth = max(stats.max_recursive_depth, self.depth)
                    if self.depth > 1:
                        stats.num_recursive_rewrites += 1
                    return result
        except Overflow:
            return None
        finally:
            self.depth -= 1
            self.stats.rewrites_attempted += len(found)
        return None

    def binary(self, cls: type, a: Any, b: Any, node: Any = None) -> Any:
        """A node of two simplified operands, simplified; `node` is returned where it already is that."""
        dtype = a.dtype
        if dtype.is_scalar:
            if type(a) is e.IntImm and type(b) is e.IntImm and cls in _FOLD:
                value = _FOLD[cls](a.value, b.value)
                if cls in _COMPARISONS:
                    return truth(value)
                return e.IntImm(dtype, ops.wrap_int(value, dtype))
            if dtype.is_float:
                return self._float(cls, a, b, node)
            if not (dtype.is_int or dtype.is_bool):
                return node if node is not None and node.a is a and node.b is b else cls(a, b)
        else:
            result = vector_binary(self, cls, a, b)
            if result is not None:
                return result
            if dtype.is_float:
                return self._float(cls, a, b, node)
        if cls is e.And or cls is e.Or:
            return self._connective(cls, a, b, node)
        if cls in _COMPARISONS:
            return self._comparison(cls, a, b, node)
        return self._arithmetic(cls, a, b, node)

    def _arithmetic(self, cls: type, a: Any, b: Any, node: Any) -> Any:
        dtype = a.dtype
        written = (a, b)
        if type(a) is e.IntImm and cls in COMMUTATIVE:
            a, b = b, a
        if cls is e.Sub and type(b) is e.IntImm and b.value != 0:
            negated = ops.wrap_int(-b.value, dtype)
            if negated != b.value or not is_index_like(dtype):
                cls, b = e.Add, e.IntImm(dtype, negated)
        if cls is e.Div or cls is e.Mod:
            return self._truncated(cls, a, b, node)
        result = self._apply(cls, not is_index_like(dtype), dtype, a, b)
        if result is not None:
            return result
        if cls is e.Sub and type(b) is e.Mul and type(b.b) is e.IntImm and (b.b.value < 0 or self._adds(dtype)):
            return self.binary(e.Add, a, self.with_constant(e.Mul, b.a, -b.b.value))
        if cls is e.Add and type(b) is e.IntImm and -1 << (dtype.bits - 1) < b.value < 0 and not self._adds(dtype):
            if type(node) is e.Sub and node.a is a and type(node.b) is e.IntImm and node.b.value == -b.value:
                return node
            return e.Sub(a, e.IntImm(dtype, -b.value))
        if cls is e.Min or cls is e.Max:
            a, b = written
        return node if type(node) is cls and node.a is a and node.b is b else cls(a, b)

    def _adds(self, dtype: DataType) -> bool:
        """Whether `x - 1` and `x - y * 2` are written as sums, `x + -1` and `x + y * -2`."""
        return self.sums_only and is_index_like(dtype)

    def _truncated(self, cls: type, a: Any, b: Any, node: Any) -> Any:
        """Division that rounds towards zero: as division that rounds down where both operands are not negative."""
        if type(b) is e.IntImm and b.value in (0, 1):
            return a if (cls is e.Div) == (b.value == 1) else e.const(0, a.dtype)
        result = self._apply(cls, not is_index_like(a.dtype), a.dtype, a, b)
        if result is not None:
            return result
        if self.lo(a) >= 0 and self.lo(b) >= 0:
            floor_class = e.FloorDiv if cls is e.Div else e.FloorMod
            result = self.binary(floor_class, a, b)
            if type(result) is e.IntImm or same(result, a):
                return result
        if type(b) is e.IntImm and b.value > 0 and is_index_like(a.dtype):
            coeff, base = self.analyzer.modular(a)
            if coeff % b.value == 0 and base % b.value == 0:
                # An exact quotient does not depend on how it would be rounded.
                return e.const(0, a.dtype) if cls is e.Mod else self.binary(e.FloorDiv, a, b)
        return node if type(node) is cls and node.a is a and node.b is b else cls(a, b)

    def _float(self, cls: type, a: Any, b: Any, node: Any) -> Any:
        """Only what is exact: constants folded, a neutral factor, equal operands of min and max."""
        keep = node is not None and node.a is a and node.b is b
        if a.dtype.is_custom:  # of which nothing is known
            return node if keep else cls(a, b)
        if cls in (e.GT, e.GE):
            return (e.LT if cls is e.GT else e.LE)(b, a)
        if cls in _COMPARISONS and isinstance(a, e.FloatImm) and isinstance(b, e.FloatImm):
            x, y = ops.round_float(a.value, a.dtype), ops.round_float(b.value, b.dtype)
            return truth(_FOLD[cls](x, y))
        if cls in (e.Min, e.Max) and same(a, b):
            return a
        if cls in _FLOAT and (isinstance(b, (e.FloatImm, e.Broadcast)) or isinstance(a, (e.FloatImm, e.Broadcast))):
            result = _FLOAT[cls](a, b)
            return node if keep and type(result) is cls and result.a is a and result.b is b else result
        return node if keep else cls(a, b)

    # -- comparisons and connectives --

    def _comparison(self, cls: type, a: Any, b: Any, node: Any = None) -> Any:
        if cls is e.GT:
            return self.binary(e.LT, b, a)
        if cls is e.GE:
            return self.binary(e.LE, b, a)
        dtype = a.dtype
        result_dtype = BOOL.with_lanes(dtype.lanes, dtype.scalable)
        if dtype.is_bool and cls in (e.EQ, e.NE):
            for x, y in ((a, b), (b, a)):
                if isinstance(x, e.IntImm):
                    return y if bool(x.value) == (cls is e.EQ) else self.make_not(y)
        low, high = self._bounds_of_difference(a, b)
        decided = self._decided(cls, a, b, low, high)
        if decided is not None:
            return truth_like(decided, result_dtype)
        if cls is e.NE:
            if is_index_like(dtype) and (low == 0 or high == 0):
                # What is not less than b differs from it where it is greater.
                return self.binary(e.LT, b, a) if low == 0 else self.binary(e.LT, a, b)
            return self._restated(e.NE, self.make_not(self.binary(e.EQ, a, b)), node)
        if cls is e.LE:
            if is_index_like(dtype) and low == 0:
                return self.binary(e.EQ, a, b)
            if self.analyzer.constraints and self._known_to_differ(a, b):
                return self.binary(e.LT, a, b)
            return self._restated(e.LE, self.make_not(self.binary(e.LT, b, a)), node)
        if cls is e.EQ and type(a) is e.IntImm:
            a, b = b, a
        result = self._apply(cls, not is_index_like(dtype), result_dtype, a, b)
        if result is None and cls is e.LT and is_index_like(dtype):
            result = self._without_common_factor(a, b)
        if result is None:
            result = node if type(node) is cls and node.a is a and node.b is b else cls(a, b)
        return self._known(result)

    def _without_common_factor(self, a: Any, b: Any) -> Any:
        """a < b with both sides divided by what divides both; None where nothing does."""
        factor = math.gcd(*self.analyzer.modular(a), *self.analyzer.modular(b))
        if factor <= 1 or self.depth > _DEPTH:
            return None
        x, y = self.with_constant(e.FloorDiv, a, factor), self.with_constant(e.FloorDiv, b, factor)
        return None if type(x) is e.FloorDiv or type(y) is e.FloorDiv else self.binary(e.LT, x, y)

    def _restated(self, cls: type, result: Any, node: Any) -> Any:
        """The original node where the result is equal to it."""
        if type(node) is cls and type(result) is cls and node.a is result.a and node.b is result.b:
            return node
        return self._known(result)

    def _known_to_differ(self, a: Any, b: Any) -> bool:
        """Whether a condition says that two expressions are not equal."""
        return any(
            type(held) is e.NE and ((same(held.a, a) and same(held.b, b)) or (same(held.a, b) and same(held.b, a)))
            for held in self.analyzer.constraints
        )

    def _known(self, result: Any) -> Any:
        """A constant for a comparison that is known to hold, or whose negation is; otherwise the comparison."""
        constraints = self.analyzer.constraints
        if constraints and isinstance(result, e.PrimExpr):
            for held in constraints:
                if same(held, result):
                    return truth_like(True, result.dtype)
            negations = [_negated(result)]
            # Constraints are conjuncts: the negation of a disjunction is none.
            if type(result) is e.And and any(type(held) is e.Or for held in constraints):
                negations.append(self.make_not(result))
            for held in constraints:
                if any(same(held, negation) for negation in negations):
                    return truth_like(False, result.dtype)
        return result

    def _bounds_of_difference(self, a: Any, b: Any) -> Bounds:
        """Bounds of a - b, were it not to overflow."""
        if is_index_like(a.dtype):
            return self.difference(a, b)
        if same(a, b):
            return 0, 0
        x, y = self.bounds(a), self.bounds(b)
        return x[0] - y[1], x[1] - y[0]

    def _decided(self, cls: type, a: Any, b: Any, low: int, high: int) -> bool | None:
        """Whether a comparison holds, where a - b in [low, high] says so."""
        if cls is e.LT:
            return True if high < 0 else False if low >= 0 else None
        if cls is e.LE:
            return True if high <= 0 else False if low > 0 else None
        if low > 0 or high < 0:
            return cls is e.NE
        if low == high == 0:
            return cls is e.EQ
        if is_index_like(a.dtype) and (self.analyzer.difference_never_zero(a, b) or self.analyzer.prover.differ(a, b)):
            return cls is e.NE
        return None

    def _connective(self, cls: type, a: Any, b: Any, node: Any) -> Any:
        absorbing = cls is e.Or
        for x, y in ((a, b), (b, a)):
            value = x.value if type(x) is e.Broadcast else x
            if isinstance(value, e.IntImm):
                return x if bool(value.value) == absorbing else y
        result = self._apply(cls, False, a.dtype, a, b)
        if result is not None:
            return result
        return self._known(node if type(node) is cls and node.a is a and node.b is b else cls(a, b))

    # -- walking --

    def visit(self, expr: Any) -> Any:
        """An expression simplified."""
        kind: type[e.PrimExpr] = expr.__class__
        if kind is e.IntImm:
            return expr
        if expr.is_variable:
            if expr in self.substitutes:
                return self.substitutes[expr]
            return self._known(expr) if isinstance(expr, e.Var) and expr.dtype is BOOL else expr
        if not isinstance(expr, e.PrimExpr):
            return expr  # No expression: a buffer, an operator.
        known = self.memo.get(id(expr))
        if known is not None:
            return known[1]
        self.stats.nodes_visited += 1
        before = self.effects
        handler = _HANDLERS.get(kind)
        if handler is not None:
            result = handler(self, expr)
        elif isinstance(expr, e.BinaryOpExpr):
            result = self.visit_binary(expr)
        else:
            result = expr.map_children(self.visit)
        if before == self.effects:
            self.memo[id(expr)] = (expr, result)
        return result

    def visit_binary(self, expr: Any) -> Any:
        """Arithmetic, a comparison or a connective."""
        before = self.effects
        connective = self.extended and isinstance(expr, e.LogicalExpr) and expr.dtype is BOOL
        outermost = connective and not self.in_connective
        self.in_connective = self.in_connective or connective
        a, b = self.visit(expr.a), self.visit(expr.b)
        if outermost:
            self.in_connective = False
        if before != self.effects:
            return expr if a is expr.a and b is expr.b else type(expr)(a, b)
        if connective:
            return self._extended_connective(expr, a, b, outermost)
        kind: type[e.BinaryOpExpr] = expr.__class__
        return self.binary(kind, a, b, expr)

    def _extended_connective(self, expr: Any, a: Any, b: Any, outermost: bool) -> Any:
        """A connective with the simplifications that are only done on demand."""
        kind: type[e.BinaryOpExpr] = expr.__class__
        extensions = self.analyzer.extensions
        if extensions & extensions.ApplyConstraintsToBooleanBranches:
            # Each operand is simplified under the assumption that the other one does not decide the result.
            with self.analyzer.holding(a if kind is e.And else self.make_not(a)):
                b = self.visit(b)
            with self.analyzer.holding(b if kind is e.And else self.make_not(b)):
                a = self.visit(a)
        result = self.binary(kind, a, b, expr)
        if outermost and extensions & extensions.ConvertBooleanToAndOfOrs:
            result = as_and_of_ors(self, result)
        return result

    def visit_not(self, expr: e.Not) -> Any:
        a = self.visit(expr.a)
        result = self.make_not(a)
        return expr if type(result) is e.Not and result.a is expr.a else self._known(result)

    def _branch(self, condition: Any, value: Any) -> Any:
        """A value simplified under a condition."""
        if isinstance(condition, e.IntImm) or not condition.dtype.is_scalar or value.is_variable:
            return self.visit(value)
        if isinstance(value, e.ConstExpr):
            return value
        with self.analyzer.holding(condition):
            return self.visit(value)

    def _choice(self, condition: Any, yes: Any, no: Any) -> tuple[Any, Any, Any, bool]:
        before = self.effects
        condition = self.visit(condition)
        if isinstance(condition, e.IntImm):
            return (condition, self.visit(yes), no, True) if condition.value else (condition, yes, self.visit(no), True)
        pure = before == self.effects
        if pure:
            new_yes, new_no = self._branch(condition, yes), self._branch(self.make_not(condition), no)
        else:
            new_yes, new_no = self.visit(yes), self.visit(no)
        return condition, new_yes, new_no, before == self.effects

    def visit_select(self, expr: e.Select) -> Any:
        condition, yes, no, pure = self._choice(expr.condition, expr.true_value, expr.false_value)
        if condition is expr.condition and yes is expr.true_value and no is expr.false_value:
            unchanged = expr
        else:
            unchanged = None
        if not pure:
            return e.Select(condition, yes, no) if unchanged is None else unchanged
        result = self.make_select(condition, yes, no)
        if unchanged is not None and type(result) is e.Select:
            same_parts = result.condition is condition and result.true_value is yes and result.false_value is no
            return unchanged if same_parts else result
        return result

    def visit_call(self, call: e.Call) -> Any:
        op = call.op
        name = op.name if isinstance(op, Op) else ""
        if name == "tir.if_then_else":
            return self._visit_if_then_else(call)
        kind = e.TCallEffectKind.of(op)
        if kind is None or kind > e.CallEffectKind.ReadState:
            call = call.map_children(self.visit)
            self.effects += 1
            return call
        before = self.effects
        result = call.map_children(self.visit)
        rule = _CALLS.get(name)
        if rule is None or before != self.effects:
            return result
        return rule(self, result)

    def visit_likely(self, call: e.Call) -> Any:
        return call.args[0] if isinstance(call.args[0], e.IntImm) else call

    def _visit_if_then_else(self, call: Any) -> Any:
        condition, yes, no, pure = self._choice(*call.args)
        if isinstance(condition, e.IntImm):
            return yes if condition.value else no
        if pure and same(yes, no):
            return yes
        if pure and type(condition) is e.Not:
            condition, yes, no = condition.a, no, yes
        if pure and isinstance(no, e.ConstExpr) and _is_if_then_else(yes) and same(yes.args[2], no):
            # One choice where two end in the same constant.
            both = self.binary(e.And, condition, yes.args[0])
            return e.Call(call.dtype, call.op, [both, yes.args[1], no], span=call.span)
        old_condition, old_yes, old_no = call.args
        if condition is old_condition and yes is old_yes and no is old_no:
            return call
        return e.Call(call.dtype, call.op, [condition, yes, no], span=call.span)

    def visit_shift(self, call: e.Call) -> Any:
        value, count = call.args
        if isinstance(value, e.IntImm) and isinstance(count, e.IntImm):
            return (ops.shift_left if call.op.name == "tir.shift_left" else ops.shift_right)(value, count)
        if isinstance(count, e.IntImm) and call.dtype.is_scalar and 0 <= count.value < call.dtype.bits - 1:
            if count.value == 0:
                return value
            factor, left = e.IntImm(call.dtype, 1 << count.value), call.op.name == "tir.shift_left"
            if is_index_like(call.dtype) and (not left or keeps_bits(self.bounds(value), count.value, call.dtype)):
                return self.binary(e.Mul if left else e.FloorDiv, value, factor)
        return call

    def visit_clz(self, call: e.Call) -> Any:
        value = call.args[0]
        if not isinstance(value, e.IntImm):
            return call
        bits = value.dtype.bits
        return e.IntImm(call.dtype, bits - (value.value % (1 << bits)).bit_length())

    def visit_ceil(self, call: e.Call) -> Any:
        """The ceiling of a logarithm of a number, which bounds the loops of searches."""
        match call.args[0]:
            case e.Call(op=Op(name="tir.log2"), args=[e.FloatImm(value=value)]) if value > 0:
                return e.FloatImm(call.dtype, float(math.ceil(math.log2(value))))
            case _:
                return call

    def visit_bitwise(self, call: e.Call) -> Any:
        a, b = call.args
        if isinstance(a, e.IntImm) and isinstance(b, e.IntImm):
            return getattr(ops, call.op.name[4:])(a, b)
        if call.op.name == "tir.bitwise_and":
            if isinstance(a, e.IntImm):
                a, b = b, a
            if isinstance(b, e.IntImm) and call.dtype.is_scalar:
                mask = b.value
                if mask == 0:
                    return b
                if mask & (mask + 1) == 0 and self.lo(a) >= 0 and self.hi(a) <= mask:
                    return a
        return call

    def visit_cast(self, expr: e.Cast) -> Any:
        value = self.visit(expr.value)
        if value is expr.value and not isinstance(value, (e.ConstExpr, e.Broadcast, e.Cast, e.Ramp)):
            return expr
        return self.make_cast(expr.dtype, value, expr)

    def make_cast(self, dtype: DataType, value: Any, node: Any = None) -> Any:
        """`value` as another dtype; casts that undo each other disappear where no value is lost on the way."""
        if value.dtype is dtype:
            return value
        if type(value) is e.Cast and dtype.is_int:
            inner, middle = value.value, value.dtype
            if inner.dtype.is_int and middle.is_int and middle.lanes == dtype.lanes:
                low, high = self.bounds(inner)
                limits = self.analyzer.bounds_of_dtype(middle)
                if (limits[0] <= low and high <= limits[1]) or dtype.bits <= middle.bits:
                    return self.make_cast(dtype, inner)
        if (
            type(value) is e.Ramp
            and is_index_like(dtype)
            and is_index_like(value.dtype)
            and dtype.bits > value.dtype.bits
        ):
            element = dtype.element
            return e.Ramp(self.make_cast(element, value.base), self.make_cast(element, value.stride), value.lanes)
        if node is not None and node.value is value and not isinstance(value, (e.ConstExpr, e.Broadcast)):
            return node
        result = ops.cast(dtype, value)
        return node if node is not None and type(result) is e.Cast and result.value is node.value else result

    def visit_ramp(self, expr: e.Ramp) -> Any:
        base, stride = self.visit(expr.base), self.visit(expr.stride)
        if isinstance(stride, e.IntImm) and stride.value == 0:
            return e.Broadcast(base, expr.lanes)
        return expr if base is expr.base and stride is expr.stride else e.Ramp(base, stride, expr.lanes)

    def visit_let(self, expr: e.Let) -> Any:
        before = self.effects
        value = self.visit(expr.value)
        if before == self.effects:
            if isinstance(value, (e.ConstExpr, e.Var)):
                # A variable or constant is cheap to duplicate.
                known = self.substitutes.get(expr.var)
                if known is None:
                    self.substitutes[expr.var] = value
                if known is None or same(known, value):
                    return self.visit(expr.body)
            self.bounds.variables.setdefault(expr.var, self.bounds(value))
            self.analyzer.modular.variables.setdefault(expr.var, self.analyzer.modular(value))
        body = self.visit(expr.body)
        return expr if value is expr.value and body is expr.body else e.Let(expr.var, value, body)


def _is_if_then_else(expr: Any) -> bool:
    return isinstance(expr, e.Call) and isinstance(expr.op, Op) and expr.op.name == "tir.if_then_else"


def _negated(condition: Any) -> Any:
    """The negation of a simplified condition, in simplified form."""
    match condition:
        case e.LT(a=a, b=b) if not a.dtype.is_float:
            return e.LE(b, a)
        case e.LE(a=a, b=b) if not a.dtype.is_float:
            return e.LT(b, a)
        case e.EQ(a=a, b=b):
            return e.NE(a, b)
        case e.NE(a=a, b=b):
            return e.EQ(a, b)
        case e.Not(a=a):
            return a
        case e.And(a=a, b=b):
            return e.Or(_negated(a), _negated(b))
        case e.Or(a=a, b=b):
            return e.And(_negated(a), _negated(b))
        case _:
            return e.Not(condition)


_HANDLERS: dict[type, Callable[[RewriteSimplifier, Any], Any]] = {
    e.Not: RewriteSimplifier.visit_not,
    e.Select: RewriteSimplifier.visit_select,
    e.Call: RewriteSimplifier.visit_call,
    e.Cast: RewriteSimplifier.visit_cast,
    e.Ramp: RewriteSimplifier.visit_ramp,
    e.Let: RewriteSimplifier.visit_let,
}
_CALLS: dict[str, Callable[[RewriteSimplifier, Any], Any]] = {
    "tir.likely": RewriteSimplifier.visit_likely,
    "tir.ceil": RewriteSimplifier.visit_ceil,
    "tir.clz": RewriteSimplifier.visit_clz,
    "tir.shift_left": RewriteSimplifier.visit_shift,
    "tir.shift_right": RewriteSimplifier.visit_shift,
    "tir.bitwise_and": RewriteSimplifier.visit_bitwise,
    "tir.bitwise_or": RewriteSimplifier.visit_bitwise,
    "tir.bitwise_xor": RewriteSimplifier.visit_bitwise,
}
