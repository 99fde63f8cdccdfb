"""Rewriting statements while noting which block became which."""

from __future__ import annotations

from typing import Any

from ...ir.visitor import Mapper
from ..stmt import Block


class BlockEdit(Mapper):
    """A mapper that keeps in `reuse` the new block for each old one that changed, for `ScheduleState.replace`."""

    def __init__(self) -> None:
        super().__init__()
        self.reuse: dict[Block, Block] = {}

    def visit_Block(self, block: Block) -> Any:
        return self.changed(block, self.generic_visit(block))

    def changed(self, old: Block, new: Block) -> Block:
        """Notes what became of a block."""
        if new is not old:
            self.reuse[old] = new
        return new
