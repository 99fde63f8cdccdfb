"""Which variables of a function depend on nothing but its weights."""

from __future__ import annotations

from ...ir.container import Array
from ...ir.expr import Var as TirVar
from ..expr import Binding, Function, Var
from ..expr_functor import PyExprVisitor
from .struct_info import definable_tir_vars_in_struct_info
from .symbolic_vars import free_symbolic_vars
from .variables import free_vars


class _CompileTime(PyExprVisitor):
    def __init__(self) -> None:
        self.known: dict[Var, None] = {}
        self.symbols: set[TirVar] = set()

    def mark(self, var: Var) -> None:
        self.known[var] = None
        self.symbols.update(definable_tir_vars_in_struct_info(var.struct_info))

    def visit_function_(self, op: Function) -> None:
        num_input = op.attrs.get("num_input")
        if num_input is not None:
            for param in op.params[int(num_input) :]:
                self.mark(param)
        super().visit_function_(op)

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if all(v in self.known for v in free_vars(value)) and all(s in self.symbols for s in free_symbolic_vars(value)):
            self.mark(binding.var)
        super().visit_binding(binding)


def computable_at_compile_time(func: Function) -> Array[Var]:
    """The variables whose values are known once the weights are, in the order of their definition.

    The weights are the parameters after the first `num_input`, an attribute of the function; without it, only values
    made from constants are known.
    """
    found = _CompileTime()
    found.visit_expr(func)
    return Array(found.known)
