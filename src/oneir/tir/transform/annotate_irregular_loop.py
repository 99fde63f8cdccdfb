"""AnnotateIrregularLoop: marks loops that may be left early, so that no pass splits or reorders them.

A loop that `T.continue_loop()` or `T.break_loop()` stands in directly gets the annotation "irregular_loop_mark".
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Call
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import InvalidValue
from ..function import PrimFunc
from ..stmt import For, ForKind, While
from .pass_base import PrimFuncPass

MARK = "irregular_loop_mark"


class AnnotateIrregularLoop(PrimFuncPass):
    """Marks loops that `continue` or `break` may leave early.

    Raises `InvalidValue` where such a loop is not serial.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Annotate()(func.body))


class _Annotate(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.jumps = [ops.as_op("tir.continue_loop"), ops.as_op("tir.break_loop")]
        self.irregular = False

    def visit_Call(self, node: Call) -> Any:
        self.irregular = self.irregular or node.op in self.jumps
        return self.generic_visit(node)

    def visit_While(self, node: While) -> Any:
        outer = self.irregular
        new = self.generic_visit(node)
        self.irregular = outer
        return new

    def visit_For(self, node: For) -> Any:
        outer, self.irregular = self.irregular, False
        new = self.generic_visit(node)
        irregular, self.irregular = self.irregular, outer
        if not irregular or MARK in new.annotations:
            return new
        if node.kind is not ForKind.SERIAL:
            kind = node.kind.name.lower()
            raise InvalidValue(f"the loop over {node.loop_var.name} is left early, so it must be serial, found {kind}")
        return new.replace(annotations={**new.annotations, MARK: 1})
