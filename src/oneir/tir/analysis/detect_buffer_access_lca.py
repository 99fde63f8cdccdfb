"""The lowest common ancestor of the accesses to each buffer: a loop or block that contains all of them.

for i in range(8):          # the loop i for B, whose accesses stand in two blocks of it
    with T.block("B"): ...
    with T.block("C"): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir.expr import Var
from ...ir.visitor import Visitor
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, DeclBuffer, For, Stmt
from .variables import variables


class Scope:
    """A loop or a block, and what it stands in; the outermost scope is the function, whose `stmt` is None."""

    __slots__ = ("depth", "parent", "realize", "stmt")

    def __init__(self, parent: Scope | None, stmt: For | Block | None, realize: BlockRealize | None = None):
        self.parent, self.stmt, self.realize = parent, stmt, realize
        self.depth: int = 0 if parent is None else parent.depth + 1

    def ancestors(self) -> Iterator[Scope]:
        """The scope itself and those around it, from the inside out."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


def lowest_common(a: Scope, b: Scope) -> Scope:
    """The lowest scope that contains both."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None
        a = a.parent
    return a


class AccessScopes(Visitor):
    """Finds the scopes of a function, and for each buffer those in which it is accessed, in order."""

    def __init__(self, func: PrimFunc):
        super().__init__()
        self.root = self.scope = Scope(None, None)
        self.buffers: dict[Var, Buffer] = {buffer.data: buffer for buffer in func.buffer_map.values()}
        self.accesses: dict[Buffer, list[Scope]] = {}
        self.loops: dict[Var, Scope] = {}
        self.blocks: list[Block] = []
        self.launches: list[Scope] = []
        """The loops whose iterations are blocks of threads, which have global memory in common."""
        self(func.body)

    def lowest(self, buffer: Buffer) -> Scope:
        """The lowest scope that contains all accesses to a buffer, and all iterations that update one value.

        The loops of a reduction update one value, so its buffer is allocated outside of them. So is a buffer of a block
        with ordered variables, whose loops may carry values from one iteration to the next; and global memory where
        there are blocks of threads, which have it in common.
        """
        scopes = self.accesses[buffer]
        lowest = scopes[0]
        for scope in scopes[1:]:
            lowest = lowest_common(lowest, scope)
        for scope in scopes:
            outer = self._carrying_loop(scope, buffer)
            if outer is not None and outer.parent is not None:
                lowest = lowest_common(lowest, outer.parent)
        if buffer.scope() == "global":
            for launch in self.launches:
                lowest = lowest_common(lowest, launch)
        return lowest

    def _carrying_loop(self, scope: Scope, buffer: Buffer) -> Scope | None:
        """The outermost loop that is a reduction or ordered axis of a block that uses the buffer."""
        found: Scope | None = None
        for outer in scope.ancestors():
            if not isinstance(outer.stmt, Block) or outer.realize is None:
                continue
            writes = any(region.buffer is buffer for region in outer.stmt.writes)
            for iter_var, value in zip(outer.stmt.iter_vars, outer.realize.iter_values, strict=True):
                reduces = iter_var.iter_type == IterVar.CommReduce and writes
                if reduces or iter_var.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
                    for var in variables(value):
                        loop = self.loops.get(var)
                        if loop is not None and (found is None or loop.depth < found.depth):
                            found = loop
        return found

    def access(self, buffer: Buffer) -> None:
        self.accesses.setdefault(buffer, []).append(self.scope)

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        outer = self.scope
        self.scope = self.loops[loop.loop_var] = Scope(outer, loop)
        if loop.thread_binding is not None and loop.thread_binding.thread_tag.startswith("blockIdx"):
            self.launches.append(self.scope)
        self.visit(loop.body)
        self.scope = outer

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        for value in realize.iter_values:
            self.visit(value)
        self.visit(realize.predicate)
        block, outer = realize.block, self.scope
        self.blocks.append(block)
        for buffer in block.alloc_buffers:
            self.buffers[buffer.data] = buffer
        self.scope = Scope(outer, block, realize)
        for match in block.match_buffers:
            self.visit(match.source)
        if block.init is not None:
            self.visit(block.init)
        self.visit(block.body)
        self.scope = outer

    def visit_BufferRegion(self, region: BufferRegion) -> None:
        self.access(region.buffer)
        for r in region.region:
            self.visit(r)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        for index in load.indices:
            self.visit(index)
        self.access(load.buffer)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)
        self.access(store.buffer)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.visit(node.buffer.data)
        self.visit(node.body)

    def visit_Var(self, var: Var) -> None:
        buffer = self.buffers.get(var)
        if buffer is not None:
            self.access(buffer)


def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, Stmt | None]:
    """For each buffer that is accessed, the lowest `For` or `Block` around all accesses; None is the function."""
    scopes = AccessScopes(func)
    result: dict[Buffer, Any] = {buffer: scopes.lowest(buffer).stmt for buffer in scopes.accesses}
    return result
