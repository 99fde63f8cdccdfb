"""InlinePrivateFunctions: the bodies of private functions stand where these were called.

    def main(x):               def main(x):
        y = cls.double(x)          y = R.add(x, x)
        return y          ->       return y
    def double(a): ...

Recursive functions stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import TypeMismatch
from ..analysis import detect_recursion, remove_all_unused
from ..analysis.struct_info import call_error
from ..copy_function import copy_with_new_vars
from ..expr import Call, DataflowBlock, Expr, Function, SeqExpr, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..substitute import bind, infer_symbolic_values
from .canonicalize_bindings import canonicalize_bindings


class InlinePrivateFunctions(ModulePass):
    """Inlines the private graph functions that are not recursive, and removes them from the module.

    Raises `TypeMismatch` for a call with another number of arguments than the function has parameters.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        recursive = {var for group in detect_recursion(mod) for var in group}
        private = {
            var: func
            for var, func in mod.functions.items()
            if isinstance(func, Function) and "global_symbol" not in func.attrs and var not in recursive
        }
        if not private:
            return mod
        inliner = _Inliner(private)
        functions = {
            var: inliner.inline(func) if isinstance(func, Function) else func
            for var, func in mod.functions.items()
            if var not in private
        }
        return mod.replace(functions=functions)


class _Inliner:
    """Inlines functions, those that others call first."""

    def __init__(self, replacements: Mapping[GlobalVar, Function]):
        self.replacements = replacements
        self.expanded: dict[GlobalVar, Function] = {}

    def inline(self, func: Function) -> Function:
        new = self.expand(func)
        return func if new is func else remove_all_unused(canonicalize_bindings(new))

    def expand(self, func: Function) -> Function:
        return _Expander(self).visit_expr(func)

    def callee(self, var: GlobalVar) -> Function | None:
        """The function that replaces a call, itself without calls to replace."""
        func = self.expanded.get(var)
        if func is None and var in self.replacements:
            func = self.expanded[var] = self.expand(self.replacements[var])
        return func


class _Expander(PyExprMutator):
    def __init__(self, inliner: _Inliner):
        self.inliner = inliner

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
            return call
        callee = self.inliner.callee(call.op)
        return call if callee is None else _inlined(call, callee)


def _inlined(call: Call, callee: Function) -> SeqExpr:
    if len(call.args) != len(callee.params):
        name = call.op.name_hint
        raise call_error(call, TypeMismatch, f"`{name}` takes {len(callee.params)} arguments, found {len(call.args)}")
    func = copy_with_new_vars(callee)
    # Arguments are bound to variables first: a DataflowVar may not stand where the body is no dataflow block.
    # `canonicalize_bindings` removes what is not needed.
    params = {p: Var(p.name, a.struct_info) for p, a in zip(func.params, call.args, strict=True)}
    symbolic = infer_symbolic_values(dict(zip(func.params, call.args, strict=True)))
    body = bind(func, params, symbolic).body
    bindings = DataflowBlock([VarBinding(v, a) for v, a in zip(params.values(), call.args, strict=True)])
    return SeqExpr([bindings, *body.blocks], body.body)
