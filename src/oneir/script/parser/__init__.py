"""Reads TVMScript: the syntax tree of Python, walked by evaluators that build nodes.

The vocabularies go by this package's name as well: `from oneir.script.parser import ir as I, relax as R, tir as T`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .module import ir_module as ir_module

if TYPE_CHECKING:
    from .core.entry import parse as parse


def __getattr__(name: str) -> Any:
    """`parse`, imported when it is first used: only tools need it."""
    if name != "parse":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .core.entry import parse

    return parse
