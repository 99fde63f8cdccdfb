"""LowerVtcmAlloc: tightly coupled memory is asked for from the runtime, since a stack has none of it.

A = T.allocate([64], "int8", "global.vtcm")     A = T.nd_mem_alloc_with_scope("global.vtcm", 1,
                                            ->                                T.tvm_stack_make_shape(64))
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..op import tvm_stack_make_shape
from ..op_vendor import nd_mem_alloc_with_scope
from ..stmt import Allocate, LetStmt
from .pass_base import PrimFuncPass

_SCOPE = "global.vtcm"


class LowerVtcmAlloc(PrimFuncPass):
    """Replaces allocations in scopes of `global.vtcm` by what `nd_mem_alloc_with_scope` gives.

    The runtime of the processor with that memory has to provide the call; the targets of this project have none.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Lower()(func.body))


class _Lower(Mapper):
    def visit_Allocate(self, node: Allocate) -> Any:
        scope = getattr(node.buffer_var.type_annotation, "storage_scope", "")
        if not scope.startswith(_SCOPE):
            return self.generic_visit(node)
        memory = nd_mem_alloc_with_scope(scope, const(len(node.extents), "int64"), tvm_stack_make_shape(*node.extents))
        return LetStmt(node.buffer_var, memory, self.visit(node.body))
