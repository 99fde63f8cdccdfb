"""The anchor block of a function: the one that dominates its cost."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.visitor import Visitor
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, For
from .estimate_tir_flops import estimate_tir_flops


class _Blocks(Visitor):
    """The blocks without blocks inside, with the loops around them."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[For] = []
        self.found: list[tuple[Block, list[For]]] = []

    def visit_For(self, loop: For) -> None:
        self.loops.append(loop)
        self.visit(loop.body)
        self.loops.pop()

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        count = len(self.found)
        self.visit(realize.block.body)
        if len(self.found) == count:
            self.found.append((realize.block, list(self.loops)))


def find_anchor_block(mod: IRModule) -> Block | None:
    """The reduction with the most operations; without a reduction, the only block; None when there are several."""
    blocks = _Blocks()
    for func in mod.functions.values():
        if isinstance(func, PrimFunc):
            blocks(func.body)
    reductions = [item for item in blocks.found if item[0].init is not None]
    if not reductions:
        return blocks.found[0][0] if len(blocks.found) == 1 else None
    return max(reductions, key=lambda item: _operations(*item))[0]


def _operations(block: Block, loops: list[For]) -> float:
    count = max(1.0, estimate_tir_flops(block.body))
    for loop in loops:
        count *= getattr(loop.extent, "value", 1)
    return count
