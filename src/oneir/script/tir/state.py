"""What the parser knows, at one point, about the function and the blocks that it is inside of."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Range, Var
from ...runtime.error import InvalidValue
from ...tir.buffer import Buffer
from ...tir.expr import IterVar
from ...tir.stmt import BufferRegion, MatchBufferRegion, Stmt


class BlockState:
    """The parts of a block that were stated so far; `reads` and `writes` are None until they are stated."""

    def __init__(self, name: str):
        self.name = name
        self.iter_vars: list[IterVar] = []
        self.iter_values: list[Any] = []
        self.reads: list[BufferRegion] | None = None
        self.writes: list[BufferRegion] | None = None
        self.init: Stmt | None = None
        self.predicate: Any = None
        self.alloc_buffers: list[Buffer] = []
        self.match_buffers: list[MatchBufferRegion] = []
        self.annotations: dict[str, Any] | None = None


class IfState:
    """The branches of a `T.If` that were written so far."""

    def __init__(self) -> None:
        self.then_case: Stmt | None = None
        self.else_case: Stmt | None = None


class FunctionState:
    """The parts of a function that were stated so far; the loops, blocks and threads around the present statement."""

    def __init__(self, name: str):
        self.name = name
        self.params: list[Var] = []
        self.buffer_map: dict[Var, Buffer] = {}
        self.attrs: dict[str, Any] | None = None
        self.ret_type: Any = None
        self.alloc_buffers: list[Buffer] = []
        self.blocks: list[BlockState] = []
        self.branches: list[IfState] = []
        self.domains: dict[Var, Range] = {}
        """Loop variables of the loops around, with the range of each."""
        self.threads: dict[Var, IterVar] = {}
        self.undeclared: dict[Stmt, tuple[list[BufferRegion], list[BufferRegion]]] = {}
        """What was stated of blocks that may turn out to be the root, by the body of each."""

    def block(self, what: str) -> BlockState:
        """The innermost block; `what` needs one."""
        if not self.blocks:
            raise InvalidValue(f'{what} describes a block: write it inside `with T.block("name"):`')
        return self.blocks[-1]

    def visible_buffers(self) -> dict[Var, Buffer]:
        """The buffers that stand for memory here, by their data pointers."""
        found = {b.data: b for b in self.buffer_map.values()}
        found.update((b.data, b) for b in self.alloc_buffers)
        for block in self.blocks:
            found.update((b.data, b) for b in block.alloc_buffers)
            found.update((m.buffer.data, m.buffer) for m in block.match_buffers)
        return found
