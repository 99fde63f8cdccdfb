"""Which symbolic variables a graph uses, and which get their values inside of it."""

from __future__ import annotations

from typing import Any

from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.visitor import deep_recursion
from ...tir.analysis import undefined_vars
from ..expr import Call, Expr, Function, If, MatchCast, Tuple, TupleGetItem, Var
from ..expr_functor import PyExprVisitor
from ..struct_info import (
    DTensorStructInfo,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .struct_info import definable_tir_vars_in_struct_info


class _SymbolicVars(PyExprVisitor):
    def __init__(self) -> None:
        self.used: dict[TirVar, None] = {}
        self.defined: dict[TirVar, None] = {}

    def define(self, info: StructInfo | None) -> None:
        if info is not None:
            self.defined.update(dict.fromkeys(definable_tir_vars_in_struct_info(info)))

    def visit_prim_expr(self, op: PrimExpr) -> None:
        if isinstance(op, TirVar):
            self.used[op] = None
        elif not isinstance(op, IntImm):
            self.used.update(dict.fromkeys(undefined_vars(op)))

    def use(self, info: StructInfo | None) -> None:
        if isinstance(info, TensorStructInfo):
            for extent in info.extents or ():
                self.visit_prim_expr(extent)
        elif isinstance(info, DTensorStructInfo):
            self.use(info.tensor_sinfo)
        elif isinstance(info, ShapeStructInfo):
            for extent in info.values or ():
                self.visit_prim_expr(extent)
        elif isinstance(info, PrimStructInfo):
            if info.value is not None:
                self.visit_prim_expr(info.value)
        elif isinstance(info, TupleStructInfo):
            for field in info.fields:
                self.use(field)
        elif isinstance(info, FuncStructInfo) and info.params is not None:
            for param in info.params:
                self.define(param)
                self.use(param)
            self.use(info.ret)

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self.define(param.struct_info_)
        super().visit_function_(op)
        self.use(op.ret_struct_info)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.define(binding.struct_info)
        self.use(binding.struct_info)
        super().visit_match_cast_(binding)

    def visit_var_def_(self, var: Var) -> None:
        self.use(var.struct_info_)

    def visit_call_(self, op: Call) -> None:
        super().visit_call_(op)
        for info in op.sinfo_args:
            self.use(info)
        self.use(op.struct_info_)

    def visit_tuple_(self, op: Tuple) -> None:
        super().visit_tuple_(op)
        self.use(op.struct_info_)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        super().visit_tuple_getitem_(op)
        self.use(op.struct_info_)

    def visit_if_(self, op: If) -> None:
        super().visit_if_(op)
        self.use(op.struct_info_)


def _collect(func: Any) -> _SymbolicVars:
    found = _SymbolicVars()
    with deep_recursion:
        found.visit_expr(func)
    return found


def symbolic_vars_used(info: StructInfo) -> Array[TirVar]:
    """The symbolic variables in struct info that are not those of a function inside of it."""
    found = _SymbolicVars()
    found.use(info)
    return Array(var for var in found.used if var not in found.defined)


def defined_symbolic_vars(func: Expr) -> Array[TirVar]:
    """The symbolic variables that get their values inside: from parameters or from a match_cast."""
    return Array(_collect(func).defined)


def free_symbolic_vars(func: Expr) -> Array[TirVar]:
    """The symbolic variables that are used and get no value inside, in the order of their first use."""
    found = _collect(func)
    return Array(var for var in found.used if var not in found.defined)
