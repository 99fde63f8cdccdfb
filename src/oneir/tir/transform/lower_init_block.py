"""LowerInitBlock: the initialization of a reduction becomes a conditional at the start of the block's body."""

from __future__ import annotations

from ...ir import operators as ops
from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import Block, IfThenElse, Stmt, flat_seq
from .pass_base import PrimFuncPass


class LowerInitBlock(PrimFuncPass):
    """Turns the init of each block into a conditional that runs where all reduction variables are at their minimum."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_LowerInit()(func.body))


class _LowerInit(Mapper):
    def visit_Block(self, block: Block) -> Block:
        block = self.generic_visit(block)
        if block.init is None:
            return block
        return block.replace(init=None, body=flat_seq([initialization(block), block.body]))


def initialization(block: Block) -> Stmt:
    """The block's init statement, where every reduction variable is at its first value."""
    assert block.init is not None
    at_start = None
    for iv in block.iter_vars:
        if iv.iter_type == IterVar.CommReduce:
            assert iv.dom is not None
            is_first = ops.equal(iv.var, iv.dom.min)
            at_start = is_first if at_start is None else ops.logical_and(at_start, is_first)
    if at_start is None or isinstance(at_start, IntImm):
        return block.init
    return IfThenElse(at_start, block.init)
