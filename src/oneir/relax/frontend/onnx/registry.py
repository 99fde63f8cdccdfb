"""How ONNX's operators are converted: one function for each, and for each version whose meaning differs.

    @converter("Gelu", since=20)
    def gelu(g: Importer, x: Expr, *, approximate: str = "none") -> Expr: ...

A converter has the operator's inputs, in their order, as positional arguments: expressions, None where one is left
out, lists of expressions for sequences. Attributes are arguments by keyword, with ONNX's names and defaults. It returns
the first output, or a tuple of them. Of several versions, the newest that is not newer than the model's opset counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ....runtime.error import InternalError

MISSING = object()
"""Stands for the outputs of nodes that could not be imported."""

Converter = Callable[..., Any]
_CONVERTERS: dict[tuple[str, str], dict[int, Converter]] = {}


class Refused(Exception):
    """Raised by a converter: why a node cannot be imported."""


class NotConstant(Refused):
    """Raised where an input must be known while the model is compiled."""


class Branches(Exception):
    """Raised where a condition must stay in the program, but a dataflow block is being built, which has none."""


def converter(*names: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Registers a function as the converter of the operators of these names, from an opset on."""

    def register(function: Converter) -> Converter:
        for name in names:
            versions = _CONVERTERS.setdefault((domain, name), {})
            if since in versions:
                raise InternalError(f"the operator {name} has two converters since opset {since}")
            versions[since] = function
        return function

    return register


def find_converter(domain: str, name: str, opset: int) -> Converter | None:
    """The converter of an operator in an opset; None if there is none."""
    versions = _CONVERTERS.get((domain, name), {})
    fitting = [since for since in versions if since <= opset]
    return versions[max(fitting)] if fitting else None


def registered() -> set[tuple[str, str]]:
    """The operators that have a converter: domain and name."""
    return set(_CONVERTERS)


def call_converter(function: Converter, g: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Calls a converter; attributes and inputs that it does not know are refused."""
    try:
        inspect.signature(function).bind(g, *inputs, **attributes)
    except TypeError as error:
        raise Refused(f"the importer does not know this use of the operator ({error})") from None
    return function(g, *inputs, **attributes)
