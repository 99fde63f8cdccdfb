"""Passes over the graph functions of a module, or over their dataflow blocks.

@function_pass(opt_level=0)
def my_pass(func, mod, ctx):
    return func.replace(body=...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...ir.transform import Pass, PassContext, PassInfo, pass_decorator
from ..expr import BindingBlock, DataflowBlock, Function
from ..expr_functor import PyExprMutator


class FunctionPass(Pass):
    """A pass over one graph function at a time."""

    def __init__(self, transform: Callable[[Function, IRModule, PassContext], Function], info: PassInfo):
        self.transform = transform
        self.info = info

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions: dict[GlobalVar, BaseFunc] = {}
        changed = False
        for var, func in mod.functions.items():
            new = self.transform(func, mod, ctx) if isinstance(func, Function) else func
            changed = changed or new is not func
            functions[var] = new
        return mod.replace(functions=functions) if changed else mod


function_pass = pass_decorator(FunctionPass, "transform_function")


class DataflowBlockPass(Pass):
    """A pass over one dataflow block at a time."""

    def __init__(self, transform: Callable[[DataflowBlock, IRModule, PassContext], DataflowBlock], info: PassInfo):
        self.transform = transform
        self.info = info

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        transform = self.transform

        class Blocks(PyExprMutator):
            def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
                return super().visit_dataflow_block_(transform(block, mod, ctx))

        return Blocks(mod).transform_functions(mod)


dataflowblock_pass = pass_decorator(DataflowBlockPass, "transform_dataflowblock")


def graph_pass(
    transform: Callable[[Function, IRModule], Function], name: str, required: Sequence[str] = ()
) -> FunctionPass:
    """The pass `name` that transforms each graph function by itself, knowing the module that it is in."""
    return FunctionPass(lambda func, mod, ctx: transform(func, mod), PassInfo(0, name, required))
