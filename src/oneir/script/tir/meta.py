"""Programs that write programs: `T.meta_var`, `@T.macro`, `@T.inline`."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...ir.expr import Let as LetNode
from ...runtime.error import TypeMismatch
from ..parser.scope import Scope, names_around
from ..parser.source import find_function


class meta_var:
    """A value that stays in the parser: assigned to a name, it makes no statement of the program."""

    def __init__(self, value: Any):
        self.value = value

    def __iter__(self) -> Iterator[meta_var]:
        return (meta_var(v) for v in self.value)


class Macro:
    """Statements that are written out where the macro is called.

    A hygienic macro sees the names around its definition; any other sees those around its call.
    """

    def __init__(self, source: Any, node: ast.FunctionDef, scope: Any, hygienic: bool):
        self.source, self.node, self.scope, self.hygienic = source, node, scope, hygienic
        args, kind = node.args, inspect.Parameter
        positional = [*args.posonlyargs, *args.args]
        defaults: list[Any] = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        params = [_parameter(a, d, kind.POSITIONAL_OR_KEYWORD) for a, d in zip(positional, defaults, strict=True)]
        if args.vararg:
            params.append(kind(args.vararg.arg, kind.VAR_POSITIONAL))
        params += [_parameter(a, d, kind.KEYWORD_ONLY) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        if args.kwarg:
            params.append(kind(args.kwarg.arg, kind.VAR_KEYWORD))
        self.signature = inspect.Signature(params)

    def bind(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The names of the parameters with their arguments."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise TypeMismatch(f"{self.node.name}{self.signature}: {problem}") from None
        bound.apply_defaults()
        return {name: v.value if isinstance(v, meta_var) else v for name, v in bound.arguments.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeMismatch(f"the macro {self.node.name} can only be called inside of a prim_func")


def _parameter(arg: ast.arg, default: Any, kind: Any) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is None else ast.literal_eval(default)
    return inspect.Parameter(arg.arg, kind, default=value)


def _make(function: Any, hygienic: bool, depth: int) -> Macro:
    source, node, _ = find_function(function)
    return Macro(source, node, Scope(outer=names_around(sys._getframe(depth), function)), hygienic)


def macro(function: Any = None, *, hygienic: bool = True) -> Any:
    """`@T.macro`: a function whose statements are written out where it is called."""
    if function is None:
        return lambda f: _make(f, hygienic, 2)
    return _make(function, hygienic, 2)


def inline(function: Callable[..., Any]) -> Macro:
    """`@T.inline`: a hygienic macro, which may also be defined inside of a prim_func."""
    return _make(function, True, 2)


for _decorator in (macro, inline):
    vars(_decorator)["makes_macro"] = True


def Let(expr: Any, where: dict[Any, Any]) -> Any:
    """`expr` with variables standing for values: `T.Let(x + 1, where={x: y})`."""
    result = expr
    for var, value in reversed(where.items()):
        result = LetNode(var, value, result)
    return result
