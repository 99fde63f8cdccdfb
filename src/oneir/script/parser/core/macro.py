"""Macros of new dialects: functions whose bodies are read anew where they are called."""

from __future__ import annotations

import abc
import ast
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....runtime.error import InvalidValue, ParseError
from .diagnostics import Source, placed
from .var_table import VarTable

if TYPE_CHECKING:
    from .parser import Parser


class ScriptMacro(abc.ABC):
    """A macro of a dialect, which says how its body is read.

    With `hygienic`, its body sees the names where it was defined (`closure_vars`), else those where it is called.
    """

    def __init__(self, source: Source, closure_vars: Mapping[str, Any], func: Callable[..., Any], hygienic: bool):
        self.source, self.closure_vars, self.func, self.hygienic = source, closure_vars, func, hygienic
        self._text, self._tree = placed(source)

    @abc.abstractmethod
    def parse_macro(self, parser: Parser) -> Any:
        """Reads the body (`get_macro_def`), whose parameters are variables. Returns the value of the call."""

    def get_macro_def(self) -> ast.FunctionDef:
        """The definition of the macro. Raises `ParseError` if its text has none."""
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == self.func.__name__:
                return node
        raise ParseError(f"error: the text of the macro has no definition of `{self.func.__name__}`")

    def expand(self, parser: Parser, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
        """Reads the macro with these arguments, where a parser meets a call of it."""
        bound = inspect.signature(self.func).bind(*args, **kwargs)
        bound.apply_defaults()
        outer = parser.var_table
        if self.hygienic:
            parser.var_table = VarTable()
        try:
            with parser.with_source(self._text), parser.var_table.with_frame():
                for name, value in {**(self.closure_vars if self.hygienic else {}), **bound.arguments}.items():
                    parser.var_table.add(name, value)
                return self.parse_macro(parser)
        finally:
            parser.var_table = outer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise InvalidValue(f"the macro `{self.func.__name__}` is called in functions of its dialect only")

    def __repr__(self) -> str:
        return self.source.source
