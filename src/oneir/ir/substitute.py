"""Replacing variables in expressions and statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .expr import ExprOp, Var, as_expr
from .node import Node
from .visitor import Mapper


class _Substitute(Mapper):
    def __init__(self, values: Mapping[Var, Any]):
        super().__init__()
        self.values = values

    def visit_Var(self, var: Var) -> Any:
        value = self.values.get(var, var)
        # A buffer may stand for its handle.
        return value if isinstance(value, Node) and not isinstance(value, ExprOp) else as_expr(value)


def substitute(node: Any, vmap: Mapping[Var, Any]) -> Any:
    """The expression or statement with variables replaced; buffers whose shape or data changes are replaced
    everywhere.
    """
    return _Substitute(vmap)(node) if vmap else node
