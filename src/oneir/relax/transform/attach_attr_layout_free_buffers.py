"""AttachAttrLayoutFreeBuffers: kernels get the positions of their arguments that are weights, whose layout is free.

    def main(x, w):                                          @T.prim_func(private=True)
        R.func_attr({"num_input": 1})                        def matmul(a, b, c):
        y = R.call_tir(cls.matmul, (x, w), ...)       ->         T.func_attr({"layout_free_buffers": [1]})

Weights are constants and the parameters after the first `num_input`. A PrimFunc that is called with weights
in different places becomes several.
"""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext, Sequential
from ...tir.function import PrimFunc
from ...tir.stmt_functor import renew_defs
from ..expr import Call, Constant, Expr, Function, Tuple, Var
from ..expr_functor import PyExprMutator
from ..op.base import call_tir
from .bundle_model_params import num_input_of
from .dead_code_elimination import DeadCodeElimination

ATTRIBUTE = "layout_free_buffers"


class AttachAttrLayoutFreeBuffers(ModulePass):
    """Gives the PrimFunc of each `call_tir` the attribute `layout_free_buffers`: the positions of weights."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential([_AttachAttrLayoutFreeBuffers(), DeadCodeElimination()]).transform_module(mod, ctx)


class _AttachAttrLayoutFreeBuffers(ModulePass):
    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Attacher(mod).transform_functions(mod)


class _Attacher(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.functions = mod.functions
        self.weights: set[Var] = set()

    def visit_function_(self, op: Function) -> Expr:
        count = num_input_of(op)
        if count is not None:
            self.weights.update(op.params[count:])
        return super().visit_function_(op)

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or call.op is not call_tir.op:
            return call
        callee, args, *rest = call.args
        if not isinstance(callee, GlobalVar) or not isinstance(args, Tuple):
            return call
        func = self.functions.get(callee)
        if not isinstance(func, PrimFunc):
            return call
        places = [i for i, a in enumerate(args.fields) if isinstance(a, Constant) or a in self.weights]
        known = func.attrs.get(ATTRIBUTE)
        if known is not None and [int(i) for i in known] == places:
            return call
        new = self.builder_.add_func(renew_defs(func.with_attr(ATTRIBUTE, places)), callee.name_hint)
        return Call(call.op, [new, args, *rest], call.attrs, call.sinfo_args, call.span)
