"""Changing the signature of functions together with all calls of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ..block_builder import function_struct_info
from ..expr import Call, Expr, Function
from ..expr_functor import PyExprMutator, PyExprVisitor

CallRewrite = Callable[[Call, GlobalVar], Expr]
"""What takes the place of a call of the old function: `rewrite(call, new_function)`."""


def changeable_functions(mod: IRModule) -> dict[GlobalVar, Function]:
    """The private graph functions that are only ever called, so that all their uses are known."""
    values = _Values()
    for func in mod.functions.values():
        if isinstance(func, Function):
            values.visit_expr(func)
    return {
        var: func
        for var, func in mod.functions.items()
        if isinstance(func, Function) and "global_symbol" not in func.attrs and var not in values.found
    }


class _Values(PyExprVisitor):
    """Finds the functions that are used as values."""

    def __init__(self) -> None:
        self.found: set[GlobalVar] = set()

    def visit_call_(self, op: Call) -> None:
        if not isinstance(op.op, GlobalVar):
            self.visit_expr(op.op)
        for a in op.args:
            self.visit_expr(a)

    def visit_global_var_(self, op: GlobalVar) -> None:
        self.found.add(op)


def change_signatures(mod: IRModule, changes: Mapping[GlobalVar, tuple[Function, CallRewrite]]) -> IRModule:
    """The module with functions replaced by ones of the same name and another signature, and their calls rewritten."""
    rewrites: dict[GlobalVar, tuple[GlobalVar, CallRewrite]] = {}
    functions: dict[GlobalVar, BaseFunc] = {}
    for var, func in mod.functions.items():
        if var in changes:
            func, rewrite = changes[var]
            new = GlobalVar(var.name_hint).set_struct_info(function_struct_info(func))
            rewrites[var] = new, rewrite
            var = new
        functions[var] = func
    changed = mod.replace(functions=functions)
    calls = _Calls(changed, rewrites)
    return changed.replace(
        functions={
            var: calls.visit_expr(func) if isinstance(func, Function) else func for var, func in functions.items()
        }
    )


class _Calls(PyExprMutator):
    def __init__(self, mod: IRModule, rewrites: Mapping[GlobalVar, tuple[GlobalVar, CallRewrite]]):
        super().__init__(mod)
        self.rewrites = rewrites

    def visit_call_(self, op: Call) -> Expr:
        if op.op not in self.rewrites:
            return super().visit_call_(op)
        new, rewrite = self.rewrites[op.op]
        args = [self.visit_expr(a) for a in op.args]
        return rewrite(Call(op.op, args, op.attrs, op.sinfo_args, op.span), new)
