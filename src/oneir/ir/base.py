"""The basics under one name: nodes, spans, equality and JSON, and registered functions as nodes.

EnvFunc.get("env.relu")(x)  # the function registered as "env.relu"
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from .env_func import EnvFunc
from .json import load_json, save_json
from .node import Node
from .span import SequentialSpan, SourceMap, SourceName, Span
from .structural import assert_structural_equal, get_first_structural_mismatch, structural_equal, structural_hash

__all__ = [
    "EnvFunc",
    "Node",
    "SequentialSpan",
    "SourceMap",
    "SourceName",
    "Span",
    "assert_structural_equal",
    "deprecated",
    "get_first_structural_mismatch",
    "load_json",
    "save_json",
    "structural_equal",
    "structural_hash",
]


def deprecated(method_name: str, new_method_name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes calls of a function warn that it is deprecated in favour of another."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(
                f"{method_name} is deprecated, use {new_method_name} instead", DeprecationWarning, stacklevel=2
            )
            return function(*args, **kwargs)

        return call

    return decorate
