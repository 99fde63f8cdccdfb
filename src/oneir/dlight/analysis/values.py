"""Parts of a function for other values, and the bodies of functions that are written, not scheduled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import operators as ops
from ...ir.expr import PrimExpr
from ...ir.visitor import Mapper
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad
from ...tir.stmt import Block, BlockRealize, Stmt
from ...tir.stmt_functor import substitute


class Loaded(Mapper):
    """Replaces the loads of a buffer by a value."""

    def __init__(self, buffer: Buffer, value: PrimExpr):
        super().__init__()
        self.buffer, self.value = buffer, value

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        if load.buffer is self.buffer:
            return ops.cast(load.dtype, self.value)
        return self.generic_visit(load)


def at_values(block: Block, node: Any, values: Sequence[PrimExpr]) -> Any:
    """A part of a block for some values of its axes."""
    return substitute(node, {iv.var: value for iv, value in zip(block.iter_vars, values, strict=True)})


def root_block(body: Stmt, buffers: Sequence[Buffer] = ()) -> Stmt:
    """The body of a function that allocates some buffers."""
    return BlockRealize([], True, Block([], [], [], "root", body, alloc_buffers=list(buffers)))
