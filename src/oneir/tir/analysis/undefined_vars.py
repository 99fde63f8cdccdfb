"""The variables that a piece of a program uses and does not define."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.container import Array
from ...ir.expr import Var
from .scopes import ScopedVisitor


class _Free(ScopedVisitor):
    def __init__(self, known: Sequence[Var]):
        super().__init__()
        self.depth: dict[Var, int] = dict.fromkeys(known, 1)
        self.found: dict[Var, None] = {}

    def enter(self, var: Var, node: Any) -> None:
        self.depth[var] = self.depth.get(var, 0) + 1

    def leave(self, var: Var) -> None:
        self.depth[var] -= 1

    def use(self, var: Var) -> None:
        if not self.depth.get(var):
            self.found[var] = None

    def is_known(self, var: Var) -> bool:
        return bool(self.depth.get(var))


def undefined_vars(node: Any, defs: Sequence[Var] | None = None) -> Array[Var]:
    """The variables, in the order of their first use, that a statement, expression or function leaves undefined.

    `defs` are variables that count as defined.
    """
    free = _Free(defs or ())
    free(node)
    return Array(free.found)
