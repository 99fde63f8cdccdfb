"""`BlockDependenceInfo`: the dependencies among the blocks of a program that is not scheduled.

info = BlockDependenceInfo(mod)
info.get_block_scope(info.get_sref(root)).get_deps_by_src(info.get_sref(block))
"""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.visitor import Visitor
from ..runtime.error import InvalidValue
from ..runtime.object import Object
from .block_scope import BlockScope, StmtSRef
from .function import PrimFunc
from .stmt import Block


class BlockDependenceInfo(Object):
    """The handle of each block, whose `parent` is that of the nearest block around it, and the scope below it."""

    def __init__(self, mod: IRModule | PrimFunc):
        """`mod`: a function, or a module, of which all PrimFuncs are looked at."""
        functions = mod.functions.values() if isinstance(mod, IRModule) else [mod]
        collector = _Collector()
        for function in functions:
            if isinstance(function, PrimFunc):
                collector(function.body)
        self._handles = collector.handles
        self._scopes = {handle: BlockScope(below) for handle, below in collector.below.items()}

    def get_sref(self, block: Block) -> StmtSRef | None:
        """The handle of a block; None if it is none of the program's."""
        return self._handles.get(id(block))

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """The dependencies among the blocks directly below a block. Raises `InvalidValue` for a handle of another."""
        if block_sref not in self._scopes:
            raise InvalidValue("the handle belongs to no block of this program; get one by get_sref(block)")
        return self._scopes[block_sref]


class _Collector(Visitor):
    """The handles of blocks by their identity, and the handles directly below each, in the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        self.handles: dict[int, StmtSRef] = {}
        self.below: dict[StmtSRef, list[StmtSRef]] = {}
        self.around: StmtSRef | None = None

    def visit_Block(self, block: Any) -> None:
        outer, handle = self.around, StmtSRef(block, self.around)
        self.handles[id(block)], self.below[handle] = handle, []
        if outer is not None:
            self.below[outer].append(handle)
        self.around = handle
        self.generic_visit(block)
        self.around = outer
