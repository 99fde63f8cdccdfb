"""Syntax trees of texts. They are Python's own, so that nothing has to be done to translate them."""

from __future__ import annotations

import ast
from typing import Any

from . import doc_core


def parse(source: str, filename: str = "<unknown>", mode: str = "exec") -> ast.AST:
    """The syntax tree of a text. Raises `SyntaxError` for what is no Python."""
    return ast.parse(source, filename, mode)


def from_doc(node: ast.AST) -> ast.AST:
    """The node as one of Python's: itself."""
    return node


def to_doc(node: ast.AST) -> ast.AST:
    """One of Python's nodes: itself."""
    return node


def __getattr__(name: str) -> Any:
    return getattr(doc_core, name)
