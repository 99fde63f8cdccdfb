"""Whether an expression has side effects."""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.op import Op
from ...ir.visitor import deep_recursion
from ..expr import Call, Expr, Function, Var
from ..expr_functor import PyExprVisitor
from ..operator_facts import FPurity
from ..struct_info import FuncStructInfo


def is_impure_call(call: Call) -> bool:
    """Whether a call may have a side effect. So may that of a value of which it is not known what it is."""
    if isinstance(call.op, Op):
        return not FPurity.of(call.op)
    info = getattr(call.op, "struct_info_", None)
    return not (isinstance(info, FuncStructInfo) and info.purity)


class _ImpureCalls(PyExprVisitor):
    def __init__(self, own_name: Var | GlobalVar | None):
        self.own_name = own_name
        self.found: Call | None = None

    def visit_call_(self, op: Call) -> None:
        if self.found is None and op.op is not self.own_name and is_impure_call(op):
            self.found = op
        super().visit_call_(op)

    def visit_function_(self, op: Function) -> None:
        """A local function has its effects where it is called."""


def find_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> Call | None:
    """A call in an expression that may have a side effect; None if there is none."""
    visitor = _ImpureCalls(own_name)
    with deep_recursion:
        visitor.visit_expr(expr.body if isinstance(expr, Function) else expr)
    return visitor.found


def contains_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> bool:
    """Whether evaluating an expression (of a function: its body) may have a side effect.

    `own_name` is what the function calls itself by: calls of it count as pure, since they do what the others do. Local
    functions count where they are called.
    """
    return find_impure_call(expr, own_name) is not None
