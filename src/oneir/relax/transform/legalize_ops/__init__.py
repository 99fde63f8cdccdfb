"""LegalizeOps: operators become calls of PrimFuncs.

    lv = R.add(x, y)    ->    lv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((4,), dtype="float32"))

Each call is rewritten as its operator's legalization says, and so is what comes out of that, until nothing is left.
A call whose result's or arguments' shapes are not known stays.

Results of calls on a device of the program stay there; `PlaceKernels` makes the kernels for its target.

Legalizations are stated where operators are declared; the published modules that hold them (`binary`, `manipulate`,
...) are the families of `oneir.relax.op`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from ....ir.global_info import VDevice
from ....ir.module import IRModule
from ....ir.op import Op
from ....ir.transform import ModulePass, PassContext
from ...analysis.placement import device_of, on_device
from ...expr import Binding, Call, Expr, VarBinding
from ...expr_functor import PyExprMutator
from ...op import (
    binary,
    ccl,
    create,
    datatype,
    distributed,
    grad,
    image,
    index,
    linear_algebra,
    manipulate,
    nn,
    qdq,
    search,
    statistical,
    unary,
    vision,
)
from ...op import inspect as inspect_op
from ...op.base import call_tir
from ...operator_facts import CallRewrite, FDataDependent, FLegalize, RequiresArgumentShapes
from ...struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo

__all__ = [
    "LegalizeOps",
    "binary",
    "ccl",
    "create",
    "datatype",
    "distributed",
    "grad",
    "image",
    "index",
    "inspect_op",
    "is_shape_known",
    "linear_algebra",
    "manipulate",
    "nn",
    "qdq",
    "search",
    "statistical",
    "unary",
    "vision",
]


class LegalizeOps(ModulePass):
    """Rewrites operators into calls of PrimFuncs.

    `customize_legalize_map` has rules `rule(builder, call) -> expr`, by operator name, that replace the
    operators' own. With `enable_warning`, each call that stays is named in a warning.
    """

    customize_legalize_map: Mapping[str, CallRewrite] | None = None
    enable_warning: bool = False

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Legalizer(mod, self.customize_legalize_map or {}, self.enable_warning).transform_functions(mod)


def is_shape_known(info: StructInfo) -> bool:
    """Whether all extents in struct info are written out, though they may be symbolic."""
    if isinstance(info, TensorStructInfo):
        return info.extents is not None
    if isinstance(info, ShapeStructInfo):
        return info.values is not None
    if isinstance(info, TupleStructInfo):
        return all(map(is_shape_known, info.fields))
    return isinstance(info, PrimStructInfo)


class _Legalizer(PyExprMutator):
    def __init__(self, mod: IRModule, rules: Mapping[str, CallRewrite], warn: bool):
        super().__init__(mod)
        self.rules, self.warn = rules, warn

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        rule = self.rules.get(call.op.name) or FLegalize.of(call.op)
        if rule is None:
            return call
        if not self._known(call):
            if self.warn:
                warnings.warn(f"{call.op.name} stays: the shapes of `{call}` are not known", stacklevel=2)
            return call
        legal, emitted = self._applied(rule, call)
        device = device_of(call.struct_info)
        legal = self._placed(legal, device)
        if emitted:
            for binding in emitted:
                if device is not None and isinstance(binding, VarBinding):
                    binding = binding.replace(value=self._placed(binding.value, device))
                self.visit_binding(binding)
            return self.visit_expr(legal)
        return legal if legal is call else self._again(legal)

    def _applied(self, rule: CallRewrite, call: Call) -> tuple[Expr, list[Binding]]:
        """What a rule gives, and what it emitted for that: in these, too, other operators may stand."""
        builder = self.builder_
        dataflow = builder.current_block_is_dataflow()
        builder.begin_scope()
        if dataflow:
            builder.begin_dataflow_block()
        else:
            builder.begin_binding_block()
        legal = rule(builder, call)
        blocks = builder.end_blocks()
        builder.end_scope()
        return legal, [binding for block in blocks for binding in block.bindings]

    def _placed(self, expr: Expr, device: VDevice | None) -> Expr:
        """A call of a kernel that gives its results on a device; other expressions as they are."""
        if device is None or not isinstance(expr, Call) or expr.op is not call_tir.op:
            return expr
        return Call(expr.op, expr.args, expr.attrs, [on_device(info, device) for info in expr.sinfo_args], expr.span)

    def _known(self, call: Call) -> bool:
        if RequiresArgumentShapes.of(call.op) is False:
            return True
        if not all(is_shape_known(a.struct_info) for a in call.args if _has_shape(a)):
            return False
        return bool(FDataDependent.of(call.op)) or is_shape_known(call.struct_info)

    def _again(self, legal: Expr) -> Expr:
        """The result of a rule, in which other operators may stand."""
        if isinstance(legal, Call) and isinstance(legal.op, Op) and not self._nested(legal):
            return legal if FLegalize.of(legal.op) is None else self.visit_call_(legal)
        return self.visit_expr(legal)

    def _nested(self, call: Call) -> bool:
        return any(isinstance(a, Call) for a in call.args)


def _has_shape(expr: Expr) -> bool:
    return isinstance(getattr(expr, "struct_info_", None), (TensorStructInfo, ShapeStructInfo, TupleStructInfo))
