"""ToNonDataflow: dataflow blocks become ordinary ones, and their variables ordinary variables."""

from __future__ import annotations

from ...ir.transform import Pass
from ..expr import BindingBlock, DataflowBlock, Function, Var
from ..expr_functor import PyExprMutator
from .pass_base import graph_pass


def ToNonDataflow() -> Pass:
    """A pass that removes the difference between what is dataflow and what is not."""
    return graph_pass(lambda func, mod: to_non_dataflow(func), "ToNonDataflow")


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
        return BindingBlock(block.bindings, block.span) if new is block else new
