"""ExpandTupleArguments: a private function takes the fields of a tuple instead of the tuple.

def f(pair: R.Tuple(A, B)): ...    ->    def f(pair_0: A, pair_1: B): ...
"""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext, Sequential
from ..expr import Binding, BindingBlock, Call, Expr, Function, SeqExpr, Tuple, TupleGetItem, Var, VarBinding
from ..normalize import merge_blocks
from ..struct_info import TupleStructInfo
from .call_sites import change_signatures, changeable_functions
from .canonicalize_bindings import CanonicalizeBindings
from .dead_code_elimination import DeadCodeElimination


class ExpandTupleArguments(ModulePass):
    """Replaces each tuple parameter of a private function that is only called by its fields, one parameter each."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential([_Expand(), CanonicalizeBindings(), DeadCodeElimination()]).transform_module(mod, ctx)


class _Expand(ModulePass, name="ExpandTupleArgumentsInner"):
    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        changes = {
            var: (_expanded(func), _expand_call)
            for var, func in changeable_functions(mod).items()
            if any(isinstance(p.struct_info, TupleStructInfo) for p in func.params)
        }
        return change_signatures(mod, changes) if changes else mod


def _expanded(func: Function) -> Function:
    params: list[Var] = []
    bindings: list[Binding] = []

    def expand(param: Var) -> None:
        info = param.struct_info
        if not isinstance(info, TupleStructInfo):
            params.append(param)
            return
        fields = [Var(f"{param.name}_{i}", field) for i, field in enumerate(info.fields)]
        for field in fields:
            expand(field)
        bindings.append(VarBinding(param, Tuple(fields)))

    for param in func.params:
        expand(param)
    body = SeqExpr(merge_blocks([BindingBlock(bindings), *func.body.blocks]), func.body.body)
    return func.replace(params=params, body=body)


def _expand_call(call: Call, callee: GlobalVar) -> Expr:
    args: list[Expr] = []

    def expand(arg: Expr) -> None:
        info = arg.struct_info
        if isinstance(info, TupleStructInfo):
            for i in range(len(info.fields)):
                expand(arg.fields[i] if isinstance(arg, Tuple) else TupleGetItem(arg, i))
        else:
            args.append(arg)

    for arg in call.args:
        expand(arg)
    return Call(callee, args, call.attrs, call.sinfo_args, call.span)
