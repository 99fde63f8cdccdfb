"""The values of expressions in functions of new dialects: Python's, but for operators that dialects give a meaning."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....ir import operators as ops
from ....ir.expr import ExprOp
from .. import evaluator
from ..scope import Scope
from . import dispatch
from .macro import ScriptMacro

if TYPE_CHECKING:
    from .parser import Parser


class ExprEvaluator(evaluator.Evaluator):
    """Evaluates expressions that a parser reads, with the values of `value_table` and Python's own names."""

    def __init__(self, parser: Parser, value_table: Mapping[str, Any]):
        super().__init__(parser.source, Scope(outer=(value_table, vars(builtins))))
        self.parser = parser

    def call(self, node: ast.Call, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(callee, ScriptMacro):
            return callee.expand(self.parser, args, kwargs)
        return super().call(node, callee, args, kwargs)

    def binary(self, op: ast.operator | ast.cmpop, left: Any, right: Any) -> Any:
        method = _method(op, left, 0) or _method(op, right, 1)
        return super().binary(op, left, right) if method is None else method(left, right)

    def unary(self, op: ast.unaryop, value: Any) -> Any:
        method = _method(op, value, 0)
        return super().unary(op, value) if method is None else method(value)

    def eval_BoolOp(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        result = self.eval(node.values[0])
        for part in node.values[1:]:
            method = _method(node.op, result, 0)
            if method is None and not isinstance(result, ExprOp) and bool(result) != is_and:
                return result  # decided by a Python value
            value = self.eval(part)
            method = method or _method(node.op, value, 1)
            if method is not None:
                result = method(result, value)
            elif isinstance(result, ExprOp):
                result = ops.logical_and(result, value) if is_and else ops.logical_or(result, value)
            else:
                result = value
        return result


def _method(op: ast.AST, value: Any, place: int) -> dispatch.OpMethod | None:
    kind = type(value)
    return dispatch.get_op(getattr(kind, "_dispatch_type", kind), type(op), place)


def eval_expr(parser: Parser, node: ast.expr | ast.Expression, dict_globals: Mapping[str, Any] | None) -> Any:
    """The value of an expression, with these names and Python's. Raises `ParseError`, which underlines the place."""
    return ExprEvaluator(parser, dict_globals or {}).eval(node.body if isinstance(node, ast.Expression) else node)


def eval_assign(parser: Parser, target: ast.expr, source: Any) -> dict[str, Any]:
    """The names in a target of an assignment, with their parts of a value.

    Raises `ParseError` where the value has not as many parts, or the target is no name or tuple of names.
    """
    found: dict[str, Any] = {}
    for name, value in ExprEvaluator(parser, {}).unpack(target, source):
        if not isinstance(name, ast.Name):
            raise parser.error(name, "expected a name, or a tuple of names, to assign to")
        if name.id in found:
            raise parser.error(name, f"`{name.id}` is assigned twice")
        found[name.id] = value
    return found
