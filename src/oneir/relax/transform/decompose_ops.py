"""DecomposeOpsForInference, DecomposeOpsForTraining: operators become simpler ones, by the facts that theirs have.

    y = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1, ...)
->
    y = ((x - mean) / sqrt(var + epsilon) * gamma + beta, mean, var)
"""

from __future__ import annotations

import re

from ...ir.module import IRModule
from ...ir.op import Fact
from ...ir.transform import ApplyPassToFunction, ModulePass, Pass, PassContext, PassInfo, Sequential
from ..expr import Call, Expr, Function
from ..expr_functor import PyExprMutator
from ..operator_facts import Decomposition, FDecompose, FDecomposeForTraining
from .pass_base import FunctionPass


class _InFunction(ModulePass):
    """Runs its steps over the function `func_name`, or over all.

    To contexts and instruments it is `ApplyPassToFunction` in the one case, the steps in the other.
    """

    func_name: str | None = None

    @property
    def info(self) -> PassInfo:
        return self._chosen().info

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self._chosen().transform_module(mod, ctx)

    def _chosen(self) -> Pass:
        steps = self._steps()
        return steps if self.func_name is None else ApplyPassToFunction(steps, re.escape(self.func_name))

    def _steps(self) -> Pass:
        raise NotImplementedError


class DecomposeOpsForInference(_InFunction):
    """Decomposes operators as they behave in inference, in the function `func_name` or in all."""

    def _steps(self) -> Pass:
        return _DecomposeForInference()


class DecomposeOpsForTraining(_InFunction):
    """Decomposes operators as they behave in training, in the function `func_name` or in all."""

    def _steps(self) -> Pass:
        return Sequential([_DecomposeForTraining(), _DecomposeForInference()], name="DecomposeOpsForTraining")


class _DecomposeForInference(FunctionPass, name="DecomposeOps"):
    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Decomposer(mod, FDecompose).visit_expr(func)


class _DecomposeForTraining(FunctionPass, name="MutateOpsForTraining"):
    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Decomposer(mod, FDecomposeForTraining).visit_expr(func)


class _Decomposer(PyExprMutator):
    def __init__(self, mod: IRModule, fact: Fact[Decomposition]):
        super().__init__(mod)
        self.fact = fact

    def visit_call_(self, op: Call) -> Expr:
        rule = self.fact.of(op.op)
        if rule is None:
            return super().visit_call_(op)
        call = self.visit_expr_post_order(op)
        assert isinstance(call, Call)
        return rule(call, self.builder_)
