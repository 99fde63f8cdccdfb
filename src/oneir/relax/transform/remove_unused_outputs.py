"""RemoveUnusedOutputs: private functions do not return what no caller uses.

def main(x):                       def main(x):
    t = cls.f(x)                       y = cls.f(x)
    y = t[0]                  ->       return y
    return y
def f(x): return (a, b)            def f(x): return a
"""

from __future__ import annotations

import math

from ...ir.expr import FloatImm, GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext, Sequential
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprVisitor
from ..normalize import merge_blocks
from ..struct_info import TupleStructInfo
from .call_sites import CallRewrite, change_signatures, changeable_functions
from .canonicalize_bindings import CanonicalizeBindings
from .dead_code_elimination import DeadCodeElimination


class RemoveUnusedOutputs(ModulePass):
    """Removes the fields that no caller uses from the tuples that private functions return."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential([_Remove(), CanonicalizeBindings(), DeadCodeElimination()]).transform_module(mod, ctx)


class _Remove(ModulePass, name="RemoveUnusedOutputsInner"):
    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        candidates: dict[GlobalVar, Function] = {}
        outputs: dict[GlobalVar, int] = {}
        for var, func in changeable_functions(mod).items():
            if isinstance(func.ret_struct_info, TupleStructInfo) and func.is_pure:
                candidates[var], outputs[var] = func, len(func.ret_struct_info.fields)
        if not candidates:
            return mod
        uses = _Uses(outputs)
        for func in mod.functions.values():
            if isinstance(func, Function):
                uses.visit_expr(func)
        changes = {
            var: _without_unused(func, [i for i, used in enumerate(uses.used[var]) if used])
            for var, func in candidates.items()
            if not all(uses.used[var])
        }
        return change_signatures(mod, changes) if changes else mod


class _Uses(PyExprVisitor):
    """Which fields of what functions return are used."""

    def __init__(self, outputs: dict[GlobalVar, int]):
        self.used = {var: [False] * count for var, count in outputs.items()}
        self.tuples: dict[Var, list[bool]] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if isinstance(value, Call) and value.op in self.used:
            self.tuples[binding.var] = self.used[value.op]
        elif isinstance(value, Var) and value in self.tuples:
            self.tuples[binding.var] = self.tuples[value]
            return
        self.visit_expr(value)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        used = self.tuples.get(op.tuple_value) if isinstance(op.tuple_value, Var) else None
        if used is None:
            self.visit_expr(op.tuple_value)
        else:
            used[op.index] = True

    def visit_var_(self, op: Var) -> None:
        used = self.tuples.get(op)
        if used is not None:
            used[:] = [True] * len(used)

    visit_dataflow_var_ = visit_var_


def _without_unused(func: Function, used: list[int]) -> tuple[Function, CallRewrite]:
    """The function that returns these fields only: a lone one as itself."""
    info = func.ret_struct_info
    assert isinstance(info, TupleStructInfo)
    outputs = Var("previous_outputs", info)
    fields: list[Expr] = [TupleGetItem(outputs, i) for i in used]
    bindings: list[Binding] = [VarBinding(outputs, func.body.body)]
    blocks = merge_blocks([*func.body.blocks, BindingBlock(bindings)])
    if len(fields) == 1:
        body, ret = SeqExpr(blocks, fields[0]), info.fields[used[0]]
    else:
        body, ret = SeqExpr(blocks, Tuple(fields)), TupleStructInfo([info.fields[i] for i in used])

    def rewrite(call: Call, callee: GlobalVar) -> Expr:
        new = Call(callee, call.args, call.attrs, call.sinfo_args, call.span)
        # Nothing takes the fields that are missing; CanonicalizeBindings and DeadCodeElimination leave none of them.
        results: list[Expr] = [PrimValue(FloatImm("float64", math.nan)) for _ in info.fields]
        for position, field in enumerate(used):
            results[field] = new if len(used) == 1 else TupleGetItem(new, position)
        return Tuple(results)

    return func.replace(body=body, ret_struct_info=ret), rewrite
