"""Copies of functions that share no variable with the original."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.expr import PrimExpr
from ..ir.expr import Var as TirVar
from ..ir.visitor import deep_recursion
from ..tir.analysis import undefined_vars
from ..tir.stmt_functor import substitute
from .expr import Expr, Function, MatchCast, Var, VarBinding
from .expr_functor import PyExprMutator


class _Copier(PyExprMutator):
    def __init__(self) -> None:
        self.symbols: dict[TirVar, PrimExpr] = {}

    @property
    def new_variables(self) -> Mapping[Var, Var]:
        """The new variable of each that was copied."""
        return self._variables

    def visit_prim_expr(self, op: PrimExpr) -> PrimExpr:
        for var in undefined_vars(op):
            if var not in self.symbols:
                self.symbols[var] = TirVar(var.name, var.type_annotation)
        return substitute(op, self.symbols)

    def visit_expr(self, expr: Expr) -> Expr:
        new = super().visit_expr(expr)
        if new is not expr and new.struct_info_ is None and expr.struct_info_ is not None:
            new.set_struct_info(self.visit_struct_info(expr.struct_info_))
        return new

    def visit_var_def_(self, var: Var) -> Var:
        if var not in self._variables:
            info = None if var.struct_info_ is None else self.visit_struct_info(var.struct_info_)
            self._variables[var] = type(var)(var.name, info, var.span)
        return self._variables[var]

    def visit_var_binding_(self, binding: VarBinding) -> None:
        # The variable comes first: a local function may call itself by it.
        var = self.visit_var_def(binding.var)
        self.builder_.emit_normalized(VarBinding(var, self.visit_expr(binding.value), span=binding.span))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value, info = self.visit_expr(binding.value), self.visit_struct_info(binding.struct_info)
        self.builder_.emit_normalized(MatchCast(self.visit_var_def(binding.var), value, info, binding.span))


def copy_with_new_vars(func: Function) -> Function:
    """The same function with new parameters, new variables and new symbolic variables.

    A variable is defined once in a module, so this is what a copy of a function in the same module needs.
    """
    return copy_and_variables(func)[0]


def copy_and_variables(func: Function) -> tuple[Function, Mapping[Var, Var]]:
    """As `copy_with_new_vars`, and the new variable of each."""
    copier = _Copier()
    with deep_recursion:
        copy = copier.visit_expr(func)
    assert isinstance(copy, Function)
    return copy, copier.new_variables
