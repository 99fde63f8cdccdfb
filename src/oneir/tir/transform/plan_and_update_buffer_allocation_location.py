"""PlanAndUpdateBufferAllocationLocation: memory is allocated in the innermost loop or block that needs it.

B = T.alloc_buffer((8, 8))         for i in range(8):
for i in range(8):                     with T.block(""):
    with T.block("B"): ...      ->         B = T.alloc_buffer((8, 8))
    with T.block("C"): ...                 with T.block("B"): ...
                                           with T.block("C"): ...

`CompactBufferAllocation` then shrinks it to what one iteration uses.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.container import Array
from ...ir.expr import Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..analysis.block_access_region import get_block_read_write_region
from ..analysis.written_before_read import (
    Accesses,
    Frame,
    collect_accesses,
    common_path,
    reads_own_writes,
    reduction_loops,
)
from ..buffer import Buffer
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, For, ForKind, While
from .pass_base import PrimFuncPass


class PlanAndUpdateBufferAllocationLocation(PrimFuncPass):
    """Allocates each buffer in the innermost loop or block that contains all uses of one run of it."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        collected = collect_accesses(func.body)
        places: dict[int, list[Buffer]] = {}
        moved: set[Buffer] = set()
        for buffer, known in collected.by_buffer.items():
            target = place(known, collected.analyzer) if known.accesses else None
            if target is None:
                moved.add(buffer)
            elif target is not known.owner:
                moved.add(buffer)
                places.setdefault(id(target), []).append(buffer)
        if not moved:
            return func
        outside = {buffer.data: buffer for buffer in (*func.buffer_map.values(), *collected.by_buffer)}
        return func.with_body(_Placer(places, moved, outside)(func.body))


def place(known: Accesses, analyzer: Analyzer) -> For | Block:
    """Where a buffer is allocated: the innermost loop or block that contains all accesses and preserves
    the values read.

    Inside of a loop each iteration has a new buffer, so no iteration may read what an earlier one wrote.
    """
    path = common_path(access.path for access in known.accesses)
    begin = next((i + 1 for i, frame in enumerate(path) if _block_of(frame) is known.owner), len(path))
    path = path[begin:]
    reduced = {var for access in known.accesses for var in reduction_loops(access.path)}
    # Where no loop contains all accesses, nothing has to be proved of iterations.
    enters = any(isinstance(frame.node, For) for frame in path)
    isolated = enters and (_belongs_to_threads(known.buffer, path) or reads_own_writes(known, analyzer))
    found: For | Block = known.owner
    for frame in path:
        node = frame.node
        if frame.is_init or isinstance(node, While):
            break
        if isinstance(node, For):
            if not isolated or node.loop_var in reduced or not _may_enter(known.buffer, node):
                break
            if not _is_shared_by(known.buffer, node):
                found = node
        elif isinstance(node, BlockRealize):
            found = node.block
    return found


def _block_of(frame: Frame) -> Block | None:
    return frame.node.block if isinstance(frame.node, BlockRealize) and not frame.is_init else None


def _belongs_to_threads(buffer: Buffer, path: tuple[Frame, ...]) -> bool:
    """Whether memory local to threads of a device is used inside of their loops, so that it must be allocated there."""
    threaded = any(isinstance(frame.node, For) and frame.node.thread_binding is not None for frame in path)
    return threaded and buffer.scope() != "global"


def _may_enter(buffer: Buffer, loop: For) -> bool:
    """Whether each iteration of a loop can have memory of this kind for itself."""
    if loop.kind is ForKind.VECTORIZED:
        return False
    if loop.thread_binding is None:
        return True
    return buffer.scope() != "global" or not loop.thread_binding.thread_tag.startswith(("blockIdx", "threadIdx"))


def _is_shared_by(buffer: Buffer, loop: For) -> bool:
    """Whether a loop's iterations are threads of a block that have a buffer in common.

    A serial loop inside of them, which all threads run at the same time, may have it all the same.
    """
    axis = loop.thread_binding
    return axis is not None and axis.thread_tag.startswith("threadIdx") and buffer.scope().startswith("shared")


class _Placer(Mapper):
    """Moves allocations to where `places` says."""

    def __init__(self, places: dict[int, list[Buffer]], moved: set[Buffer], buffers: dict[Var, Buffer]):
        super().__init__()
        self.places, self.moved, self.buffers = places, moved, buffers
        self.pending = set(moved)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_IterVar(self, iter_var: IterVar) -> IterVar:
        return iter_var

    def visit_Block(self, block: Block) -> Block:
        own = self.places.get(id(block), [])
        kept = [b for b in block.alloc_buffers if b not in self.moved]
        reads, writes = self._outside(block.reads), self._outside(block.writes)
        self.pending.difference_update(own)
        init = None if block.init is None else self.visit(block.init)
        body = self.visit(block.body)
        self.pending.update(own)
        allocated = block.alloc_buffers
        if own or len(kept) != len(allocated):
            allocated = Array((*kept, *own))
        return block.replace(reads=reads, writes=writes, alloc_buffers=allocated, init=init, body=body)

    def _outside(self, regions: Array[BufferRegion]) -> Array[BufferRegion]:
        """Regions of buffers that exist outside of the block."""
        kept = Array(r for r in regions if r.buffer not in self.pending)
        return regions if len(kept) == len(regions) else kept

    def visit_For(self, loop: For) -> For:
        own = self.places.get(id(loop))
        if own is None:
            return loop.replace(body=self.visit(loop.body))
        self.pending.difference_update(own)
        body = self.visit(loop.body)
        self.pending.update(own)
        if isinstance(body, BlockRealize) and not body.block.iter_vars and body.block.name_hint == "":
            block = body.block.replace(alloc_buffers=Array((*body.block.alloc_buffers, *own)))
            return loop.replace(body=body.replace(block=block))
        block = Block((), (), (), "", body, None, own)
        outside = {data: buffer for data, buffer in self.buffers.items() if buffer not in own}
        reads, writes = get_block_read_write_region(block, outside)
        block = block.replace(reads=self._outside(reads), writes=self._outside(writes))
        return loop.replace(body=BlockRealize((), True, block))

    def visit_PrimExpr(self, expr: Any) -> Any:
        return expr
