"""ToNonDataflow: dataflow blocks become ordinary ones, and their variables ordinary variables."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..expr import BindingBlock, DataflowBlock, Function, Var
from ..expr_functor import PyExprMutator
from .pass_base import FunctionPass


class ToNonDataflow(FunctionPass):
    """Makes dataflow blocks ordinary ones, and their variables ordinary variables."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return to_non_dataflow(func)


def to_non_dataflow(func: Function) -> Function:
    """A function without dataflow blocks; the identical one if it has none."""
    return _ToNonDataflow().visit_expr(func)


class _ToNonDataflow(PyExprMutator):
    def visit_dataflow_var_def_(self, var: Var) -> Var:
        new = Var(var.vid, var.struct_info, var.span)
        self.set_var_remap(var, new)
        return new

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        new = self.visit_binding_block_(block)
        return BindingBlock(block.bindings, span=block.span) if new is block else new
