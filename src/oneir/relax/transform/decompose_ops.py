"""DecomposeOpsForInference, DecomposeOpsForTraining: operators become simpler ones, where theirs say how.

    y = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1, ...)
->
    y = ((x - mean) / sqrt(var + epsilon) * gamma + beta, mean, var)
"""

from __future__ import annotations

import re

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ApplyPassToFunction, Pass, Sequential
from ..expr import Call, Expr, Function
from ..expr_functor import PyExprMutator
from .pass_base import graph_pass


def DecomposeOpsForInference(func_name: str | None = None) -> Pass:
    """A pass that decomposes operators as they behave in inference, in the function `func_name` or in all."""
    return _in_function(_decompose("FDecompose", "DecomposeOps"), func_name)


def DecomposeOpsForTraining(func_name: str | None = None) -> Pass:
    """A pass that decomposes operators as they behave in training, in the function `func_name` or in all."""
    steps = [_decompose("FDecomposeForTraining", "MutateOpsForTraining"), _decompose("FDecompose", "DecomposeOps")]
    return _in_function(Sequential(steps, name="DecomposeOpsForTraining"), func_name)


def _in_function(transform: Pass, func_name: str | None) -> Pass:
    return transform if func_name is None else ApplyPassToFunction(transform, re.escape(func_name))


def _decompose(fact: str, name: str) -> Pass:
    def decompose(func: Function, mod: IRModule) -> Function:
        return _Decomposer(mod, fact).visit_expr(func)

    return graph_pass(decompose, name)


class _Decomposer(PyExprMutator):
    def __init__(self, mod: IRModule, fact: str):
        super().__init__(mod)
        self.fact = fact

    def visit_call_(self, op: Call) -> Expr:
        rule = op.op.get_attr(self.fact) if isinstance(op.op, Op) else None
        if rule is None:
            return super().visit_call_(op)
        return rule(self.visit_expr_post_order(op), self.builder_)
