"""The parser of new dialects: calls what `dispatch` has for each statement of a function.

Functions under a decorator with a `dispatch_token` are read so, alone or in a module beside functions of other
dialects. What their methods build stands in an `IRBuilder`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from ....ir.expr import GlobalVar
from ....ir.module import BaseFunc
from ....runtime.error import ParseError
from ...ir_builder import IRBuilder
from .. import source as texts
from ..module import ModuleParser, dispatched
from . import dispatch
from .diagnostics import Source, placed
from .evaluator import ExprEvaluator, eval_assign, eval_expr
from .macro import ScriptMacro as ScriptMacro
from .var_table import VarTable as VarTable
from .var_table import VarTableFrame as VarTableFrame

_GENERIC = (ast.Module, ast.Interactive, ast.Expression)


class Parser:
    """Reads a text, statement by statement, with the methods that `dispatch` has for the innermost token."""

    def __init__(self, source: Source | texts.Source, function_annotations: Mapping[str, Any] | None = None):
        self.source, self.tree = placed(source) if isinstance(source, Source) else (source, None)
        self.function_annotations = function_annotations
        self.dispatch_tokens = ["default"]
        self.var_table = VarTable()

    def parse(self, extra_vars: Mapping[str, Any] | None = None) -> None:
        """Reads the whole text, with these variables."""
        with self.var_table.with_frame():
            for name, value in (extra_vars or {}).items():
                self.var_table.add(name, value)
            self.visit(self.tree)

    # -- tokens, texts and errors --

    def get_dispatch_token(self, node: ast.FunctionDef) -> str:
        """The token of a function's last decorator. Raises `ParseError` if it has none."""
        if not node.decorator_list:
            self.report_error(node, f"expected `{node.name}` to be decorated")
        decorator = node.decorator_list[-1]
        token = getattr(self.eval_expr(decorator), "dispatch_token", None)
        if token is None:
            self.report_error(decorator, f"`{ast.unparse(decorator)}` is the decorator of no dialect")
        return token

    @contextmanager
    def with_dispatch_token(self, token: str) -> Generator[None]:
        """Statements inside are read by the methods of a token, between those of its "enter_token" and "exit_token"."""
        enter, leave = (dispatch.get(token, name) for name in ("enter_token", "exit_token"))
        self.dispatch_tokens.append(token)
        try:
            context = None if enter is None else enter(self)
            yield
            if leave is not None:
                leave(self, context)
        finally:
            self.dispatch_tokens.pop()

    @contextmanager
    def with_source(self, source: texts.Source) -> Generator[None]:
        """Nodes that are read inside stand in another text."""
        outer, self.source = self.source, source
        try:
            yield
        finally:
            self.source = outer

    def error(self, node: Any, problem: Exception | str) -> ParseError:
        """The error to raise about a node."""
        return ExprEvaluator(self, {}).error(node, problem)

    def report_error(self, node: Any, err: Exception | str) -> NoReturn:
        """Raises `ParseError`, which underlines the node."""
        raise self.error(node, err)

    # -- values --

    def eval_expr(self, node: ast.expr | ast.Expression, extra_vars: Mapping[str, Any] | None = None) -> Any:
        """The value of an expression, with the variables, these further ones, and Python's names."""
        return eval_expr(self, node, {**self.var_table.get(), **(extra_vars or {})})

    def eval_assign(
        self,
        target: ast.expr,
        source: Any,
        bind_value: Callable[[Parser, ast.expr, str, Any], Any],
        allow_shadowing: bool = False,
    ) -> dict[str, Any]:
        """Assigns a value to names, each of which stands for what `bind_value(parser, target, name, value)` gives."""
        values = eval_assign(self, target, source)
        for name, value in values.items():
            self.var_table.add(name, bind_value(self, target, name, value), allow_shadowing)
        return values

    # -- statements --

    def visit(self, node: Any) -> Any:
        """Reads a node, or several. Raises `ParseError` for one that neither its dialect nor "default" reads."""
        if isinstance(node, (list, tuple)):
            for item in node:
                self.visit(item)
            return None
        method = getattr(self, f"visit_{type(node).__name__}", None)
        try:
            return self._dispatch(type(node).__name__, node) if method is None else method(node)
        except ParseError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem

    def visit_body(self, node: list[ast.stmt]) -> None:
        """Reads the statements of a suite."""
        self.visit(node)

    def visit_tvm_annotation(self, node: ast.expr) -> Any:
        """The value of an annotation; without a method for "tvm_annotation", that of the expression."""
        return self._dispatch("tvm_annotation", node) if self._method("tvm_annotation") else self.eval_expr(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Reads a function by the method of its own token."""
        token = self.get_dispatch_token(node)
        method = dispatch.get(token, "FunctionDef")
        if method is None:
            self.report_error(node, f"the dialect `{token}` reads no functions")
        before, after = (self._method(f"{when}_visit_local_function") for when in ("pre", "post"))
        if before is not None:
            before(self, node)
        found = method(self, node)
        if after is not None:
            after(self, node)
        return found

    def visit_tvm_declare_function(self, node: ast.FunctionDef) -> Any:
        """What others must know of a function before it is read, as its token's "tvm_declare_function" says."""
        with self.with_dispatch_token(self.get_dispatch_token(node)):
            return self._dispatch("tvm_declare_function", node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Reads a class by the method of the token "ir"."""
        method = dispatch.get("ir", "ClassDef")
        if method is None:
            self.report_error(node, "expected a function: no dialect reads classes")
        return method(self, node)

    def _method(self, type_name: str) -> dispatch.ParseMethod | None:
        return dispatch.get(self.dispatch_tokens[-1], type_name) or dispatch.get("default", type_name)

    def _dispatch(self, type_name: str, node: Any) -> Any:
        method = self._method(type_name)
        if method is not None:
            return method(self, node)
        if isinstance(node, _GENERIC):
            return self.visit(list(ast.iter_child_nodes(node)))
        if isinstance(node, ast.Pass):
            return None
        raise self.error(node, f"`{type_name}` cannot be used in the dialect `{self.dispatch_tokens[-1]}`")


class _Dispatched:
    """The dialect of decorators with a token: `dispatch` has its methods."""

    def declare(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any], var: GlobalVar) -> None:
        """Notes nothing: what others know of the function is what was read of it."""

    def define(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any]) -> BaseFunc | None:
        parser = Parser(module.source)
        with IRBuilder() as builder, parser.var_table.with_frame():
            for name, value in module.scope.visible().items():
                parser.var_table.add(name, value)
            parser.visit(node)
        return builder.get()


@dispatched.provide
def _dispatched(token: str) -> _Dispatched | None:
    """The dialect of a token, if it has a method for functions."""
    return None if dispatch.get(token, "FunctionDef") is None else _Dispatched()
