"""Where variables get their values, and who uses them."""

from __future__ import annotations

from ...ir.container import Array
from ...ir.visitor import deep_recursion
from ..expr import Binding, DataflowBlock, Expr, Function, MatchCast, Var, VarBinding
from ..expr_functor import PyExprVisitor
from .variables import used_vars


class _Bindings(PyExprVisitor):
    """All bindings of a function, those of branches and local functions too, the outer ones first."""

    def __init__(self) -> None:
        self.found: list[VarBinding | MatchCast] = []

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.found.append(binding)
        super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.found.append(binding)


def _bindings(func: Function) -> list[VarBinding | MatchCast]:
    found = _Bindings()
    with deep_recursion:
        found.visit_expr(func)
    return found.found


def get_var2val(func: Function) -> dict[Var, Expr]:
    """The value that each variable bound in a function is bound to; parameters have none."""
    return {binding.var: binding.value for binding in _bindings(func)}


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """The bindings of the variables of each name."""
    found: dict[str, list[Binding]] = {}
    for binding in _bindings(func):
        found.setdefault(binding.var.name, []).append(binding)
    return found


def udchain(dfb: DataflowBlock) -> dict[Var, Array[Var]]:
    """For each variable that a dataflow block defines or uses: the variables bound to values that use it."""
    users: dict[Var, dict[Var, None]] = {}
    for binding in dfb.bindings:
        users.setdefault(binding.var, {})
        for var in used_vars(binding):
            users.setdefault(var, {})[binding.var] = None
    return {var: Array(found) for var, found in users.items()}
