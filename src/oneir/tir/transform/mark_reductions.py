"""MarkReductions: marks the updates of reduction blocks, which may be reordered.

The updates of a block with a reduction axis may run in any order. Lowering blocks loses this, so the update becomes the
body of an attribute `reduction_update`; code generation allows reassociation of such sums of scalars, which LLVM needs
to vectorize them.
"""

from __future__ import annotations

from ...ir.expr import const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import AttrStmt, Block
from .pass_base import PrimFuncPass

REDUCTION_UPDATE = "reduction_update"


class MarkReductions(PrimFuncPass):
    """Marks the updates of reduction blocks as independent of their order."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Mark()(func.body))


class _Mark(Mapper):
    def visit_Block(self, block: Block) -> Block:
        block = self.generic_visit(block)
        marked = isinstance(block.body, AttrStmt) and block.body.attr_key == REDUCTION_UPDATE
        if marked or not any(iv.iter_type == IterVar.CommReduce for iv in block.iter_vars):
            return block
        return block.replace(body=AttrStmt(const(0), REDUCTION_UPDATE, const(1), block.body))
