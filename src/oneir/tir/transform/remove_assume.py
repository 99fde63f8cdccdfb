"""RemoveAssume: removes `T.assume(...)`, which is of no use to the code generator."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import map_array
from ...ir.expr import Call
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..stmt import Evaluate, For, IfThenElse, SeqStmt, Stmt, flat_seq, is_no_op
from .analyzed import has_effect
from .pass_base import PrimFuncPass

_ASSUME = ops.as_op("tir.assume")


class RemoveAssume(PrimFuncPass):
    """Removes `T.assume`."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_RemoveAssume()(func.body))


class Removing(Mapper):
    """A mutator that also removes statements that become no-ops, with the loops and branches around them."""

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        seq = map_array(node.seq, self.visit)
        return node if seq is node.seq else flat_seq(seq)

    def visit_For(self, loop: For) -> Stmt:
        new: Any = self.generic_visit(loop)
        return Evaluate(0) if new is not loop and is_no_op(new.body) else new

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        new: Any = self.generic_visit(node)
        if new is node:
            return node
        if new.else_case is not None and is_no_op(new.else_case):
            new = new.replace(else_case=None)
        removable = is_no_op(new.then_case) and new.else_case is None and not has_effect(new.condition)
        return Evaluate(0) if removable else new


class _RemoveAssume(Removing):
    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        call = node.value
        return Evaluate(0) if isinstance(call, Call) and call.op is _ASSUME else node
