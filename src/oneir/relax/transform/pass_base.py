"""Passes over the graph functions of a module, or over their dataflow blocks.

class MyPass(FunctionPass):
    def transform_function(self, func, mod, ctx):
        return func.replace(body=...)

@function_pass(opt_level=0)
def my_pass(func, mod, ctx):
    return func.replace(body=...)
"""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...ir.transform import Pass, PassContext, pass_decorator
from ..expr import BindingBlock, DataflowBlock, Function
from ..expr_functor import PyExprMutator


class FunctionPass(Pass):
    """A pass over one graph function at a time."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """The transformed function; the identical one when there is nothing to do."""
        raise NotImplementedError

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions: dict[GlobalVar, BaseFunc] = {}
        changed = False
        for var, func in mod.functions.items():
            new = self.transform_function(func, mod, ctx) if isinstance(func, Function) else func
            changed = changed or new is not func
            functions[var] = new
        return mod.replace(functions=functions) if changed else mod


function_pass = pass_decorator(FunctionPass, "transform_function")


class DataflowBlockPass(Pass):
    """A pass over one dataflow block at a time."""

    def transform_dataflowblock(self, block: DataflowBlock, mod: IRModule, ctx: PassContext) -> DataflowBlock:
        """The transformed block; the identical one when there is nothing to do."""
        raise NotImplementedError

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        transform = self.transform_dataflowblock

        class Blocks(PyExprMutator):
            def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
                return super().visit_dataflow_block_(transform(block, mod, ctx))

        return Blocks(mod).transform_functions(mod)


dataflowblock_pass = pass_decorator(DataflowBlockPass, "transform_dataflowblock")
