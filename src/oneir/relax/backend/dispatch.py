"""What passes that dispatch operators share: calls are rewritten where the device that computes them has threads."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.module import IRModule
from ...ir.op import Op
from ...target.target import Target
from ..expr import Call, Expr
from ..expr_functor import PyExprMutator
from ..operator_facts import CallRewrite
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from ..transform.legalize_ops import is_shape_known

IS_SCHEDULED = {"tir.is_scheduled": True}
"""The attribute of kernels that come with their threads."""


def target_of(info: StructInfo) -> Target | None:
    """The target of the device that a value is on; where that is not said, the one that is entered, if there is one."""
    if isinstance(info, TupleStructInfo):
        return target_of(info.fields[0]) if info.fields else Target.current(allow_none=True)
    if isinstance(info, TensorStructInfo) and info.vdevice is not None and info.vdevice.target is not None:
        return Target(info.vdevice.target)
    return Target.current(allow_none=True)


class Dispatcher(PyExprMutator):
    """Rewrites calls on devices with threads by rules, by operator name. Calls of unknown shapes stay."""

    def __init__(self, mod: IRModule, rules: Mapping[str, CallRewrite]):
        super().__init__(mod)
        self.rules = rules

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op) or call.op.name not in self.rules:
            return call
        infos = [op.struct_info, *(argument.struct_info for argument in call.args)]
        target = target_of(infos[0])
        if target is None or "gpu" not in target.keys or not all(map(is_shape_known, infos)):
            return call
        return self.rules[call.op.name](self.builder_, call)
