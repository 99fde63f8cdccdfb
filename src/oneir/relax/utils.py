"""Published names of what is defined in other modules, and `args_converter`.

@args_converter.auto
def concatenate(tensors: list[Expr], axis: int = 0) -> Expr: ...
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

from .copy_function import copy_with_new_vars
from .emit_te import gen_call_tir_inputs
from .expr import Expr
from .expr import as_graph_expr as convert_to_expr
from .metadata_text import metadata_partitioner

__all__ = ["args_converter", "convert_to_expr", "copy_with_new_vars", "gen_call_tir_inputs", "metadata_partitioner"]


def _to_expr(value: Any) -> Any:
    return None if value is None else convert_to_expr(value)


def _to_list_expr(value: Any) -> Any:
    if value is not None and not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list or tuple of graph expressions, found {value!r}")
    return None if value is None else [convert_to_expr(item) for item in value]


def _converted(func: Callable[..., Any], converters: dict[str, Callable[[Any], Any]]) -> Callable[..., Any]:
    signature = inspect.signature(func)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name, convert in converters.items():
            if name not in bound.arguments:
                continue
            value, kind = bound.arguments[name], signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(convert(item) for item in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: convert(item) for key, item in value.items()}
            else:
                bound.arguments[name] = convert(value)
        return func(*bound.args, **bound.kwargs)

    return call


class _ArgsConverter:
    """Decorators by which a function's arguments, None apart, become graph expressions or lists of them."""

    @staticmethod
    def convert(
        args_to_expr: Sequence[str] = (), args_to_list_expr: Sequence[str] = ()
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Converts the parameters of these names: to expressions, and to lists of expressions."""
        converters = dict.fromkeys(args_to_expr, _to_expr) | dict.fromkeys(args_to_list_expr, _to_list_expr)
        return lambda func: _converted(func, converters)

    @staticmethod
    def to_expr(*arg_names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Converts the parameters of these names to expressions."""
        return _ArgsConverter.convert(args_to_expr=arg_names)

    @staticmethod
    def to_list_expr(*arg_names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Converts the parameters of these names to lists of expressions."""
        return _ArgsConverter.convert(args_to_list_expr=arg_names)

    @staticmethod
    def auto(func: Callable[..., Any]) -> Callable[..., Any]:
        """Converts the parameters that are annotated with `Expr` or a list of it, perhaps optional."""
        singles, lists = [], []
        for name, annotation in typing.get_type_hints(func).items():
            choices = [c for c in typing.get_args(annotation) if c is not NoneType]
            one = choices[0] if NoneType in typing.get_args(annotation) and len(choices) == 1 else annotation
            if name != "return" and one is Expr:
                singles.append(name)
            elif name != "return" and typing.get_origin(one) is list and typing.get_args(one) == (Expr,):
                lists.append(name)
        return _ArgsConverter.convert(singles, lists)(func)


args_converter = _ArgsConverter()
