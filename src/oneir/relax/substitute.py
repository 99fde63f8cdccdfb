"""Giving variables of a graph other values.

bind(func, {x: weight}, {n: 16})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..arith import Analyzer
from ..ir.container import same_objects
from ..ir.expr import IntImm, PrimExpr
from ..ir.expr import Var as TirVar
from ..ir.visitor import deep_recursion
from ..tir.stmt_functor import substitute
from .expr import Expr, Function, Var
from .expr_functor import PyExprMutator
from .struct_info import bind_extents

E = TypeVar("E", bound=Expr)


class SymbolicMutator(PyExprMutator):
    """Replaces symbolic variables by what `symbolic` says, and simplifies what that changes."""

    def __init__(self, symbolic: Mapping[TirVar, PrimExpr]):
        self.symbolic = symbolic
        self._analyzer = Analyzer()

    def visit_prim_expr(self, op: PrimExpr) -> PrimExpr:
        if not self.symbolic or isinstance(op, IntImm):
            return op
        if isinstance(op, TirVar):
            return self.symbolic.get(op, op)
        new = substitute(op, self.symbolic)
        return op if new is op else self._analyzer.simplify(new)


class _Binder(SymbolicMutator):
    def __init__(self, values: Mapping[Var, Expr], symbolic: Mapping[TirVar, PrimExpr]):
        super().__init__(symbolic)
        self.values = values

    def visit_var_(self, op: Var) -> Expr:
        value = self.values.get(op)
        return super().visit_var_(op) if value is None else value

    def visit_function_(self, op: Function) -> Expr:
        # A parameter that has a value is none any more.
        params = [self.visit_var_def(p) for p in op.params if p not in self.values]
        body = self.visit_with_new_scope(op.body, params)
        ret = self.visit_struct_info(op.ret_struct_info)
        same = same_objects(params, op.params)
        if same and body is op.body and ret is op.ret_struct_info:
            return op
        return Function(params, body, self.refined(ret, params, body), op.is_pure, op.attrs, op.span)


def bind(expr: E, values: Mapping[Var, Expr], symbolic: Mapping[TirVar, PrimExpr] | None = None) -> E:
    """An expression with variables replaced by values. Parameters of functions that get a value are removed.

    The identical expression when nothing changes.
    """
    with deep_recursion:
        return _Binder(values, symbolic or {}).visit_expr(expr)


def infer_symbolic_values(bindings: Mapping[Var, Expr]) -> dict[TirVar, PrimExpr]:
    """What the symbolic variables in the struct info of variables are when those are bound to values."""
    found: dict[TirVar, PrimExpr] = {}
    for var, value in bindings.items():
        bind_extents(var.struct_info, value.struct_info, found)
    return found
