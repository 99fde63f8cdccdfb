"""Matching one expression.

Each kind of pattern has a generator that yields once for each way in which it matches. While it is suspended, `found`
says what its parts have matched; taken up again, it takes that back and tries the next way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from ...arith import Analyzer
from ...ir.attrs import plain_value
from ...ir.expr import GlobalVar, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.op import Op
from ...ir.structural import structural_equal
from ..expr import (
    Call,
    Constant,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..op.binary import divide, multiply
from ..operator_facts import Commutative
from ..struct_info import TensorStructInfo, bind_extents, is_base_of, same_extents, substitute_struct_info
from .pattern import (
    AndPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    FunctionPattern,
    GlobalVarPattern,
    NotPattern,
    OrPattern,
    PrimArrPattern,
    ShapePattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
    match_pattern,
)

Matches = Generator[None, None, None]

MULTIPLY, DIVIDE = multiply.op, divide.op


@match_pattern.provide
def match_expr(pattern: DFPattern, expr: Expr, values: Mapping[Var, Expr]) -> dict[DFPattern, Expr] | None:
    """What the parts of a pattern match, the innermost first; None if it does not match."""
    matcher = ExprMatcher(values)
    for _ in matcher.matches(pattern, expr):
        return dict(matcher.found)
    return None


class ExprMatcher:
    """One match, where variables have `values`."""

    def __init__(self, values: Mapping[Var, Expr]):
        self.values = values
        self.found: dict[DFPattern, Expr] = {}
        self.symbols: dict[TirVar, PrimExpr] = {}

    def value(self, expr: Any) -> Any:
        """What an expression stands for: the value of a variable, the result of a body without bindings."""
        while True:
            if isinstance(expr, Var):
                known = self.values.get(expr)
                if known is None:
                    return expr
                expr = known
            elif type(expr) is SeqExpr and not expr.blocks:
                expr = expr.body
            else:
                return expr

    def matches(self, pattern: DFPattern, expr: Any) -> Matches:
        """Yields for each way in which `expr` matches."""
        expr = self.value(expr)
        if pattern in self.found:
            if self.found[pattern] is expr:
                yield
            return
        for _ in _MATCHERS[type(pattern)](self, pattern, expr):
            self.found[pattern] = expr
            try:
                yield
            finally:
                del self.found[pattern]

    def all_of(self, patterns: Sequence[DFPattern], exprs: Sequence[Any], first: int = 0) -> Matches:
        """Yields for each way in which the expressions, from `first` on, match their patterns."""
        if first == len(patterns):
            yield
            return
        for _ in self.matches(patterns[first], exprs[first]):
            yield from self.all_of(patterns, exprs, first + 1)

    def any_order(self, patterns: Sequence[DFPattern], exprs: Sequence[Any], first: int = 0) -> Matches:
        """As `all_of`, with the expressions in any order."""
        if first == len(patterns):
            yield
            return
        for i, expr in enumerate(exprs):
            for _ in self.matches(patterns[first], expr):
                yield from self.any_order(patterns, [*exprs[:i], *exprs[i + 1 :]], first + 1)

    # -- what matches by itself --

    def expr(self, pattern: ExprPattern, expr: Any) -> Matches:
        wanted = pattern.expr
        if wanted is expr or (type(wanted) is type(expr) and structural_equal(wanted, expr)):
            yield

    def var(self, pattern: VarPattern, expr: Any) -> Matches:
        if isinstance(expr, Var) and pattern.name in ("", expr.name):
            yield

    def dataflow_var(self, pattern: DataflowVarPattern, expr: Any) -> Matches:
        if isinstance(expr, DataflowVar) and pattern.name in ("", expr.name):
            yield

    def global_var(self, pattern: GlobalVarPattern, expr: Any) -> Matches:
        if isinstance(expr, GlobalVar) and pattern.name in expr.name_hint:
            yield

    def extern_func(self, pattern: ExternFuncPattern, expr: Any) -> Matches:
        if isinstance(expr, ExternFunc) and pattern.global_symbol in ("", expr.global_symbol):
            yield

    def constant(self, pattern: ConstantPattern, expr: Any) -> Matches:
        if isinstance(expr, Constant):
            yield

    def wildcard(self, pattern: WildcardPattern, expr: Any) -> Matches:
        yield

    def shape_values(self, pattern: PrimArrPattern, expr: Any) -> Matches:
        if isinstance(expr, ShapeExpr) and same_extents(pattern.fields, expr.values, Analyzer()):
            yield

    # -- what has parts --

    def call(self, pattern: CallPattern, expr: Any) -> Matches:
        if not isinstance(expr, Call):
            return
        called = False
        for _ in self.matches(pattern.op, expr.op):
            called = True
            yield from self.arguments(pattern, expr)
        if not called and expr.op in (MULTIPLY, DIVIDE):
            for other in _reassociated(pattern, expr.op):
                yield from self.matches(other, expr)

    def arguments(self, pattern: CallPattern, call: Call) -> Matches:
        wanted, args = pattern.args, call.args
        if len(wanted) == len(args):
            yield from self.all_of(wanted, args)
            if len(args) == 2 and Commutative.of(call.op):
                yield from self.all_of(wanted, args[::-1])
        elif pattern.varg_default_wildcard and len(wanted) < len(args):
            yield from self.all_of(wanted, args)

    def function(self, pattern: FunctionPattern, expr: Any) -> Matches:
        if isinstance(expr, Function) and len(expr.params) == len(pattern.params):
            for _ in self.all_of(pattern.params, expr.params):
                yield from self.matches(pattern.body, expr.body)

    def tuple(self, pattern: TuplePattern, expr: Any) -> Matches:
        if isinstance(expr, Tuple) and len(expr.fields) == len(pattern.fields):
            yield from self.all_of(pattern.fields, expr.fields)

    def unordered_tuple(self, pattern: UnorderedTuplePattern, expr: Any) -> Matches:
        if isinstance(expr, Tuple) and len(expr.fields) == len(pattern.fields):
            yield from self.any_order(pattern.fields, expr.fields)

    def tuple_get_item(self, pattern: TupleGetItemPattern, expr: Any) -> Matches:
        if isinstance(expr, TupleGetItem) and pattern.index in (-1, expr.index):
            yield from self.matches(pattern.tuple, expr.tuple_value)

    # -- what is made of other patterns --

    def either(self, pattern: OrPattern, expr: Any) -> Matches:
        yield from self.matches(pattern.left, expr)
        yield from self.matches(pattern.right, expr)

    def both(self, pattern: AndPattern, expr: Any) -> Matches:
        for _ in self.matches(pattern.left, expr):
            yield from self.matches(pattern.right, expr)

    def unlike(self, pattern: NotPattern, expr: Any) -> Matches:
        rejected = self.matches(pattern.reject, expr)
        matches = any(True for _ in rejected)
        rejected.close()
        if not matches:
            yield

    def struct_info(self, pattern: StructInfoPattern, expr: Any) -> Matches:
        known = getattr(expr, "struct_info_", None)
        if known is None:
            return
        for _ in self.matches(pattern.pattern, expr):
            outside = self.symbols
            symbols = dict(outside)
            bind_extents(pattern.struct_info, known, symbols)
            if is_base_of(substitute_struct_info(pattern.struct_info, symbols), known):
                self.symbols = symbols
                try:
                    yield
                finally:
                    self.symbols = outside

    def dtype(self, pattern: DataTypePattern, expr: Any) -> Matches:
        info = getattr(expr, "struct_info_", None)
        if isinstance(info, TensorStructInfo) and info.dtype == pattern.dtype:
            yield from self.matches(pattern.pattern, expr)

    def shape(self, pattern: ShapePattern, expr: Any) -> Matches:
        info = getattr(expr, "struct_info_", None)
        extents = info.extents if isinstance(info, TensorStructInfo) else None
        if extents is not None and same_extents(pattern.shape, extents, Analyzer()):
            yield from self.matches(pattern.pattern, expr)

    def attrs(self, pattern: AttrPattern, expr: Any) -> Matches:
        if isinstance(expr, (Op, Call, Function)) and all(
            key in expr.attrs and structural_equal(plain_value(value), plain_value(expr.attrs[key]))
            for key, value in pattern.attrs.items()
        ):
            yield from self.matches(pattern.pattern, expr)


def _reassociated(pattern: CallPattern, op: Op) -> Iterator[CallPattern]:
    """(a * b) / c as a * (b / c) and b * (a / c), and a * (b / c) as (a * b) / c: the forms that are calls of `op`."""
    if op is MULTIPLY and _is_call_of(pattern, DIVIDE):
        product, divisor = pattern.args
        if _is_call_of(product, MULTIPLY):
            for i in (0, 1):
                quotient = CallPattern(pattern.op, [product.args[i], divisor], add_constraint=False)
                yield CallPattern(product.op, [product.args[1 - i], quotient], add_constraint=False)
    elif op is DIVIDE and _is_call_of(pattern, MULTIPLY):
        for i in (0, 1):
            quotient, factor = pattern.args[i], pattern.args[1 - i]
            if _is_call_of(quotient, DIVIDE):
                product = CallPattern(pattern.op, [quotient.args[0], factor], add_constraint=False)
                yield CallPattern(quotient.op, [product, quotient.args[1]], add_constraint=False)


def _is_call_of(pattern: DFPattern, op: Op) -> TypeGuard[CallPattern]:
    return (
        isinstance(pattern, CallPattern)
        and isinstance(pattern.op, ExprPattern)
        and pattern.op.expr is op
        and len(pattern.args) == 2
    )


_MATCHERS: dict[type[DFPattern], Callable[[ExprMatcher, Any, Any], Matches]] = {
    ExprPattern: ExprMatcher.expr,
    VarPattern: ExprMatcher.var,
    DataflowVarPattern: ExprMatcher.dataflow_var,
    GlobalVarPattern: ExprMatcher.global_var,
    ExternFuncPattern: ExprMatcher.extern_func,
    ConstantPattern: ExprMatcher.constant,
    WildcardPattern: ExprMatcher.wildcard,
    PrimArrPattern: ExprMatcher.shape_values,
    CallPattern: ExprMatcher.call,
    FunctionPattern: ExprMatcher.function,
    TuplePattern: ExprMatcher.tuple,
    UnorderedTuplePattern: ExprMatcher.unordered_tuple,
    TupleGetItemPattern: ExprMatcher.tuple_get_item,
    OrPattern: ExprMatcher.either,
    AndPattern: ExprMatcher.both,
    NotPattern: ExprMatcher.unlike,
    StructInfoPattern: ExprMatcher.struct_info,
    DataTypePattern: ExprMatcher.dtype,
    ShapePattern: ExprMatcher.shape,
    AttrPattern: ExprMatcher.attrs,
}
