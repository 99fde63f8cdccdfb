"""The classes of syntax nodes: those of Python's `ast`, whose fields are the same."""

from __future__ import annotations

import ast
from typing import Any


def __getattr__(name: str) -> Any:
    found = getattr(ast, name, None)
    if not (isinstance(found, type) and issubclass(found, ast.AST)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
