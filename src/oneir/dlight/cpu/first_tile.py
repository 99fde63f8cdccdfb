"""What all tiles of rows read is made by the first one.

    for t in range((m + 3) // 4):                 for t in range((m + 3) // 4):
        for g in range(64):                           if t == 0:
            digits[g] = weight[g] & 15                    for g in range(64):
            dots = ... digits[g] ...        ->                digits[g] = weight[g] & 15
                                                              dots = ... digits[g] ...
                                                      else:
                                                          for g in range(64):
                                                              dots = ... digits[g] ...

So weights are unpacked while the first tile waits for memory. Where there is one tile only, keeping what it makes is in
vain.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...ir.container import Array
from ...ir.expr import Var, const
from ...ir.visitor import Mapper, Visitor
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, Evaluate, For, IfThenElse, SeqStmt, flat_seq
from ...tir.stmt_functor import RenewDefs, substitute


def made_by_the_first(func: PrimFunc, loop_var: Var, names: Collection[str]) -> PrimFunc:
    """The function with the blocks of these names in the first iteration only of the loop over `loop_var`."""
    return func.replace(body=_First(loop_var, names)(func.body))


class _First(Mapper):
    def __init__(self, loop_var: Var, names: Collection[str]):
        super().__init__()
        self.loop_var, self.names = loop_var, names
        self.shared: dict[Buffer, None] = {}
        self.added: dict[Buffer, Buffer] = {}

    def visit_For(self, loop: For) -> Any:
        if loop.loop_var is not self.loop_var:
            return self.generic_visit(loop)
        written = _Written(self.names)
        written(loop.body)
        self.shared = written.by_names
        zero, renewed = const(0, self.loop_var.dtype), RenewDefs()
        # Buffers of both would be as large as all iterations need them.
        self.added = {buffer: renewed.renew_buffer(buffer) for buffer in written.others}
        first = renewed(substitute(loop.body, {self.loop_var: zero}))
        loop = loop.replace(body=IfThenElse(self.loop_var.equal(zero), first, _Without(self.names)(loop.body)))
        block = Block([], [], [], "tiles", loop, alloc_buffers=[*self.shared])
        return BlockRealize([], const(True), block)

    def visit_Block(self, block: Block) -> Any:
        new = self.generic_visit(block)
        if new is block or not self.added:
            return new
        kept = [buffer for buffer in new.alloc_buffers if buffer not in self.shared]
        own = [self.added[buffer] for buffer in kept if buffer in self.added]
        return new.replace(alloc_buffers=Array([*kept, *own]))


class _Written(Visitor):
    """The local buffers that blocks write: those of some names, and others."""

    def __init__(self, names: Collection[str]):
        super().__init__()
        self.names = names
        self.by_names: dict[Buffer, None] = {}
        self.others: dict[Buffer, None] = {}

    def visit_Block(self, block: Block) -> None:
        found = self.by_names if block.name_hint in self.names else self.others
        found |= {region.buffer: None for region in block.writes if region.buffer.scope() == "local"}


class _Without(Mapper):
    """Removes blocks, and the loops around them."""

    def __init__(self, names: Collection[str]):
        super().__init__()
        self.names = names

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        return Evaluate(const(0)) if realize.block.name_hint in self.names else realize

    def visit_For(self, loop: For) -> Any:
        new = self.generic_visit(loop)
        return new.body if isinstance(new.body, Evaluate) else new

    def visit_SeqStmt(self, seq: SeqStmt) -> Any:
        kept = [self.visit(stmt) for stmt in seq.seq]
        return flat_seq([stmt for stmt in kept if not isinstance(stmt, Evaluate)])
