"""The variables in expressions."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Var


def variables(*exprs: Any) -> set[Var]:
    """The variables in expressions."""
    found: set[Var] = set()
    seen: set[int] = set()  # expressions may share parts
    pending: list[Any] = list(exprs)
    while pending:
        node = pending.pop()
        if isinstance(node, Var):
            found.add(node)
        elif id(node) not in seen:
            seen.add(id(node))
            node.visit_children(pending.append)
    return found
