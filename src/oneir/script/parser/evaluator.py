"""Evaluates the expressions of a script: Python's meaning over Python values, nodes over expressions.

Every expression that comes out carries the span of the source that it came from.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir import operators as ops
from ...ir.expr import BaseExpr, EqualOp, ExprOp, NotEqualOp, as_expr
from ...ir.span import Span
from ...ir.visitor import Dispatch
from ...runtime.error import OneIRError, ParseError
from ...tir.op import if_then_else
from .scope import MISSING, Scope
from .source import Source, parse_text

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
# Python would turn `0 < x` around, since an int does not know how to compare itself with an expression.
_COMPARE_EXPRS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: ops.equal,
    ast.NotEq: ops.not_equal,
    ast.Lt: ops.less,
    ast.LtE: ops.less_equal,
    ast.Gt: ops.greater,
    ast.GtE: ops.greater_equal,
}
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_CONVERSION = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
_NAMES = {
    ast.Await: "`await`",
    ast.Yield: "`yield`",
    ast.YieldFrom: "`yield from`",
    ast.NamedExpr: "`:=`",
}


def binary_operator(node: ast.operator) -> Callable[[Any, Any], Any]:
    """Python's function for an operator."""
    return _BINARY[type(node)]


def locate(node: Any, span: Span) -> None:
    """Gives a node, and what was made together with it, the place that it came from."""
    todo = [node]
    while todo:
        found = todo.pop()
        if not found.is_shared:
            if getattr(found, "span", found) is None:
                found.span = span
            elif found is not node:
                continue
            found.visit_children(todo.append)


class Evaluator(Dispatch):
    """Evaluates syntax nodes of `source` with the names of `scope`."""

    def __init__(self, source: Source, scope: Scope):
        self.source = source
        self.scope = scope

    def error(self, node: Any, problem: str | Exception) -> ParseError:
        """The error to raise about a syntax node."""
        if isinstance(problem, Exception):
            text = str(problem)
            if isinstance(problem, OneIRError) and text.startswith("error: ") and "\n --> " in text:
                return problem if isinstance(problem, ParseError) else ParseError(text)  # it shows its place already
            known = isinstance(problem, (OneIRError, TypeError, ValueError, AttributeError))
            problem = text if known and text else f"{type(problem).__name__}: {text}"
        return self.source.error(node, problem)

    @contextmanager
    def new_scope(self) -> Iterator[Scope]:
        """Names bound inside are forgotten at the end."""
        outside = self.scope
        self.scope = Scope(outside)
        try:
            yield self.scope
        finally:
            self.scope = outside

    def eval(self, node: Any) -> Any:
        """The value of an expression."""
        try:
            value = self._handle(node)
        except ParseError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem
        if isinstance(value, (EqualOp, NotEqualOp)):
            value = as_expr(value)
        if isinstance(value, BaseExpr) and value.span is None and not value.is_shared:
            locate(value, self.source.span(node))
        return value

    @classmethod
    def _method_for(cls, node_class: type) -> Callable[[Any, Any], Any]:
        return getattr(cls, f"eval_{node_class.__name__}", None) or cls.eval_unsupported

    def eval_unsupported(self, node: Any) -> Any:
        what = _NAMES.get(type(node), f"`{type(node).__name__}`")
        raise self.error(node, f"{what} cannot be used in a script")

    # -- names and constants --

    def eval_Name(self, node: ast.Name) -> Any:
        value = self.scope.lookup(node.id)
        if value is MISSING:
            raise self.undefined(node, node.id)
        return value

    def undefined(self, node: Any, name: str) -> ParseError:
        """The error for a name that stands for nothing."""
        near = difflib.get_close_matches(name, self.scope.all_names(), n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        if name == "metadata":
            hint = "; print the module with show_meta=True to get the text together with its metadata"
        return self.error(node, f"undefined name `{name}`{hint}")

    def eval_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def eval_Attribute(self, node: ast.Attribute) -> Any:
        value = self.eval(node.value)
        try:
            return getattr(value, node.attr)
        except AttributeError as problem:
            near = difflib.get_close_matches(node.attr, dir(value), n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            what = f"`{ast.unparse(node.value)}`"
            raise self.error(node, f"{what} has no attribute `{node.attr}`{hint}") from problem

    def eval_Subscript(self, node: ast.Subscript) -> Any:
        value = self.eval(node.value)
        return value[self.eval(node.slice)]

    def eval_Slice(self, node: ast.Slice) -> slice:
        lower, upper, step = (None if part is None else self.eval(part) for part in (node.lower, node.upper, node.step))
        return slice(lower, upper, step)

    def eval_JoinedStr(self, node: ast.JoinedStr) -> str:
        return "".join(str(self.eval(value)) for value in node.values)

    def eval_FormattedValue(self, node: ast.FormattedValue) -> str:
        value = self.eval(node.value)
        if node.conversion != -1:
            value = _CONVERSION[node.conversion](value)
        return format(value, self.eval(node.format_spec) if node.format_spec else "")

    # -- containers --

    def sequence(self, nodes: list[ast.expr]) -> list[Any]:
        """The values of several expressions; a starred one gives several."""
        out = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                out += self.eval(node.value)
            else:
                out.append(self.eval(node))
        return out

    def eval_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.sequence(node.elts))

    def eval_List(self, node: ast.List) -> list[Any]:
        return self.sequence(node.elts)

    def eval_Set(self, node: ast.Set) -> set[Any]:
        return set(self.sequence(node.elts))

    def eval_Dict(self, node: ast.Dict) -> dict[Any, Any]:
        out = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                out.update(self.eval(value))
            else:
                out[self.eval(key)] = self.eval(value)
        return out

    def eval_ListComp(self, node: ast.ListComp) -> list[Any]:
        return list(self.comprehension(node, lambda: self.eval(node.elt)))

    def eval_SetComp(self, node: ast.SetComp) -> set[Any]:
        return set(self.comprehension(node, lambda: self.eval(node.elt)))

    def eval_GeneratorExp(self, node: ast.GeneratorExp) -> Iterator[Any]:
        return iter(self.comprehension(node, lambda: self.eval(node.elt)))

    def eval_DictComp(self, node: ast.DictComp) -> dict[Any, Any]:
        return dict(self.comprehension(node, lambda: (self.eval(node.key), self.eval(node.value))))

    def comprehension(self, node: Any, element: Callable[[], Any]) -> list[Any]:
        """The elements of a comprehension, over values that are known while the script is read."""
        out: list[Any] = []

        def run(generators: list[ast.comprehension]) -> None:
            if not generators:
                out.append(element())
                return
            first, *rest = generators
            for item in self.eval(first.iter):
                self.bind_names(first.target, item)
                if all(self.truth(condition) for condition in first.ifs):
                    run(rest)

        with self.new_scope():
            run(node.generators)
        return out

    def bind_names(self, target: ast.expr, value: Any) -> None:
        """Binds a name, or the names of a tuple, to Python values as they are."""
        for name, item in self.unpack(target, value):
            if not isinstance(name, ast.Name):
                raise self.error(name, "expected a name here")
            self.scope.names[name.id] = item

    def unpack(self, target: ast.expr, value: Any) -> list[tuple[ast.expr, Any]]:
        """Pairs of lone targets and their values."""
        if not isinstance(target, (ast.Tuple, ast.List)):
            return [(target, value)]
        try:
            values = list(value)
        except (TypeError, OneIRError):
            raise self.error(target, f"expected {len(target.elts)} values to unpack, found one: `{value}`") from None
        star = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
        names: list[Any] = list(target.elts)
        if star is not None:
            rest = len(values) - len(names) + 1
            if rest >= 0:
                values[star : star + rest] = [values[star : star + rest]]
            names[star] = names[star].value
        if len(values) != len(names):
            raise self.error(target, f"expected {len(names)} values to unpack, found {len(values)}")
        return [pair for name, item in zip(names, values, strict=True) for pair in self.unpack(name, item)]

    # -- operators --

    def eval_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.eval(node.left), self.eval(node.right))

    def binary(self, op: ast.operator | ast.cmpop, left: Any, right: Any) -> Any:
        """The value of an operator of two operands, or of a comparison."""
        function = _BINARY.get(type(op))
        if function is None:
            number = isinstance(left, (int, float)) and isinstance(right, ExprOp)
            function = (_COMPARE_EXPRS if number and type(op) in _COMPARE_EXPRS else _COMPARE)[type(op)]
        return function(left, right)

    def eval_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self.unary(node.op, self.eval(node.operand))

    def unary(self, op: ast.unaryop, value: Any) -> Any:
        """The value of an operator of one operand."""
        if isinstance(op, ast.Not):
            return ops.logical_not(value) if isinstance(value, ExprOp) else not value
        return _UNARY[type(op)](value)

    def eval_BoolOp(self, node: ast.BoolOp) -> Any:
        join = ops.logical_and if isinstance(node.op, ast.And) else ops.logical_or
        result: Any = MISSING
        for part in node.values:
            if result is not MISSING and not isinstance(result, ExprOp) and bool(result) == (join is ops.logical_or):
                return result  # decided by a Python value
            value = self.eval(part)
            result = join(result, value) if isinstance(result, ExprOp) else value
        return result

    def eval_Compare(self, node: ast.Compare) -> Any:
        left, result = self.eval(node.left), None
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.eval(part)
            value = self.binary(op, left, right)
            if isinstance(value, (EqualOp, NotEqualOp)):
                value = as_expr(value)
            if result is None or result is True:
                result = value
            else:
                result = ops.logical_and(result, value) if isinstance(result, ExprOp) else result
            if not isinstance(result, ExprOp) and not result:
                return result
            left = right
        return result

    def eval_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.eval(node.test)
        if isinstance(condition, ExprOp):
            return if_then_else(condition, self.eval(node.body), self.eval(node.orelse))
        return self.eval(node.body if condition else node.orelse)

    def truth(self, node: ast.expr) -> bool:
        """A condition that must be known while the script is read."""
        value = self.eval(node)
        if isinstance(value, ExprOp):
            raise self.error(node, f"expected a condition that is known while the script is read, found `{value}`")
        return bool(value)

    # -- calls and functions --

    def eval_Call(self, node: ast.Call) -> Any:
        callee = self.eval(node.func)
        args = self.sequence(node.args)
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                kwargs.update(self.eval(keyword.value))
            else:
                kwargs[keyword.arg] = self.eval(keyword.value)
        return self.call(node, callee, args, kwargs)

    def call(self, node: ast.Call, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a call; a dialect gives some callees a meaning of their own."""
        if not callable(callee):
            raise self.error(node.func, f"`{ast.unparse(node.func)}` cannot be called: it is {_describe(callee)}")
        return callee(*args, **kwargs)

    def eval_Lambda(self, node: ast.Lambda) -> Callable[..., Any]:
        if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.defaults:
            star = node.args.vararg
            if star is None or node.args.kwarg or node.args.kwonlyargs or node.args.defaults:
                raise self.error(node, "a lambda in a script takes positional parameters, the last perhaps with a star")
        kind = inspect.Parameter
        params = [kind(a.arg, kind.POSITIONAL_OR_KEYWORD) for a in [*node.args.posonlyargs, *node.args.args]]
        if node.args.vararg:
            params.append(kind(node.args.vararg.arg, kind.VAR_POSITIONAL))
        signature = inspect.Signature(params)
        defined_in = self.scope

        def function(*args: Any) -> Any:
            outside, self.scope = self.scope, Scope(defined_in)
            self.scope.names.update(signature.bind(*args).arguments)
            try:
                return self.eval(node.body)
            finally:
                self.scope = outside

        vars(function)["__signature__"] = signature
        return function

    def eval_text(self, node: ast.Constant) -> Any:
        """The value of an annotation that is written as a string."""
        expression: Any = parse_text(self.source, f"({node.value})").body[0]
        for part in ast.walk(expression):
            if hasattr(part, "lineno"):
                ast.copy_location(part, node)
        return self.eval(expression.value)


def _describe(value: Any) -> str:
    return f"`{value}`" if isinstance(value, ExprOp) else f"{value!r} of type {type(value).__name__}"
