"""The table of converters of ONNX's operators: a function for each, and for each version whose meaning differs.

    @converter("Gelu", since=20)
    def gelu(g: Importer, x: Expr, *, approximate: str = "none") -> Expr: ...

A converter has the operator's inputs, in their order, as positional arguments: expressions, None where one is left
out, lists of expressions for sequences. Attributes are arguments by keyword, with ONNX's names and defaults. It returns
the first output, or a tuple of them. Of several versions, the newest that is not newer than the model's opset counts.
"""

from __future__ import annotations

from collections.abc import Callable

from ..importer import Converter, ConverterTable

MISSING = object()
"""The value of the outputs of unsupported nodes."""

_CONVERTERS = ConverterTable()


class NeedsControlFlow(Exception):
    """Raised where a condition must stay in the program, which a dataflow block cannot have."""


class RanksDiffer(Exception):
    """Raised for a condition that stays in the program and on which the number of dimensions of a value depends."""


def converter(*names: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Registers a function as the converter of the operators of these names, from an opset on."""
    return _CONVERTERS.register(*(_key(domain, name) for name in names), since=since)


def find_converter(domain: str, name: str, opset: int) -> Converter | None:
    """The converter of an operator in an opset; None if there is none."""
    return _CONVERTERS.find(_key(domain, name), opset)


def registered() -> set[tuple[str, str]]:
    """The operators that have a converter: domain and name."""
    return {(domain, name) for domain, _, name in (key.rpartition("::") for key in _CONVERTERS.names())}


def _key(domain: str, name: str) -> str:
    return f"{domain}::{name}"
