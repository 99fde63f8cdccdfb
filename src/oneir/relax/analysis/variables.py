"""Which variables and functions an expression uses, and which it defines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...ir.container import Array
from ...ir.expr import GlobalVar
from ...ir.module import expr_to_function
from ...ir.visitor import deep_recursion
from ..expr import Binding, Call, Expr, Function, MatchCast, ShapeExpr, Var, VarBinding
from ..expr_functor import PyExprVisitor
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo


def shape_variables(info: StructInfo | None) -> Iterator[Expr]:
    """The graph values in struct info: variables that hold the shape of a tensor."""
    if isinstance(info, TensorStructInfo):
        if info.shape is not None and not isinstance(info.shape, ShapeExpr):
            yield info.shape
    elif isinstance(info, TupleStructInfo):
        for field in info.fields:
            yield from shape_variables(field)


class _Variables(PyExprVisitor):
    """Collects variables in the order in which they are met; a binding's variable comes before its value."""

    def __init__(self) -> None:
        self.used: dict[Var, None] = {}
        self.bound: dict[Var, None] = {}
        self.all: dict[Var, None] = {}
        self.functions: dict[GlobalVar, None] = {}

    def visit_var_(self, op: Var) -> None:
        self.used[op] = self.all[op] = None

    visit_dataflow_var_ = visit_var_

    def visit_global_var_(self, op: GlobalVar) -> None:
        self.functions[op] = None

    def visit_var_def_(self, var: Var) -> None:
        self.bound[var] = self.all[var] = None
        self._visit_struct_info(var.struct_info_)

    def _visit_struct_info(self, info: StructInfo | None) -> None:
        for shape in shape_variables(info):
            self.visit_expr(shape)

    def visit_call_(self, op: Call) -> None:
        super().visit_call_(op)
        for info in op.sinfo_args:
            self._visit_struct_info(info)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.visit_var_def(binding.var)
        self.visit_expr(binding.value)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_var_def(binding.var)
        self.visit_expr(binding.value)
        self._visit_struct_info(binding.struct_info)


def _collect(expr: Expr | Binding) -> _Variables:
    found = _Variables()
    with deep_recursion:
        if isinstance(expr, Binding):
            found.visit_binding(expr)
        else:
            found.visit_expr(expr)
    return found


def bound_vars(expr: Expr) -> Array[Var]:
    """The variables that are parameters or bound inside of an expression."""
    return Array(_collect(expr).bound)


def free_vars(expr: Expr) -> Array[Var]:
    """The variables that an expression uses and does not define, in the order of their first use."""
    found = _collect(expr)
    return Array(var for var in found.used if var not in found.bound)


@expr_to_function.provide
def _as_function(expr: Expr) -> Function:
    """A function of an expression, its free variables the parameters."""
    return Function(free_vars(expr), expr)


def used_vars(binding: Binding) -> Array[Var]:
    """The variables that a binding takes its value, or the shape of its result, from."""
    found = _collect(binding)
    return Array(var for var in found.used if var not in found.bound)


def all_vars(expr: Expr) -> Array[Var]:
    """The variables that are used or defined anywhere in an expression."""
    return Array(_collect(expr).all)


def all_global_vars(expr: Expr) -> Array[GlobalVar]:
    """The functions of the module that an expression refers to."""
    return Array(_collect(expr).functions)


class _PostOrder(PyExprVisitor):
    def __init__(self, visit: Callable[[Any], None]):
        self._visit = visit

    def visit_expr(self, expr: Expr) -> None:
        super().visit_expr(expr)
        self._visit(expr)


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], None]) -> None:
    """Calls `fvisit` on each expression inside of `expr` and then on itself, those inside first.

    Variables are visited where they are used, not where they are defined.
    """
    with deep_recursion:
        _PostOrder(fvisit).visit_expr(expr)
