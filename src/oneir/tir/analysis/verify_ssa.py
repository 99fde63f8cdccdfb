"""Whether each variable of a function is defined once."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Var
from ..function import PrimFunc
from ..stmt import AttrStmt
from .scopes import ScopedVisitor


class _Definitions(ScopedVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.defined: set[Var] = set()
        self.single = True

    def enter(self, var: Var, node: Any) -> None:
        # A thread is the same one wherever it is launched.
        if var in self.defined and not isinstance(node, AttrStmt):
            self.single = False
        self.defined.add(var)

    def is_known(self, var: Var) -> bool:
        return var in self.defined


def verify_ssa(func: PrimFunc) -> bool:
    """Whether no variable of the function is defined twice."""
    definitions = _Definitions()
    definitions(func)
    return definitions.single
