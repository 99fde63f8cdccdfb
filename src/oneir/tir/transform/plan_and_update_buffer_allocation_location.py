"""PlanAndUpdateBufferAllocationLocation: memory is allocated in the innermost loop or block that needs it.

B = T.alloc_buffer((8, 8))         for i in range(8):
for i in range(8):                     with T.block(""):
    with T.block("B"): ...      ->         B = T.alloc_buffer((8, 8))
    with T.block("C"): ...                 with T.block("B"): ...
                                           with T.block("C"): ...

`CompactBufferAllocation` then shrinks it to what one iteration uses.
"""

from __future__ import annotations

import functools
from typing import Any

from ...arith import Analyzer, IntSet
from ...arith.int_set import IntervalSet, is_infinite, union
from ...ir.container import Array
from ...ir.expr import Var
from ...ir.visitor import Mapper
from ..analysis.block_access_region import get_block_read_write_region
from ..analysis.detect_buffer_access_lca import AccessScopes, Scope, lowest_common
from ..buffer import Buffer
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, For, ForKind
from .pass_base import PrimFuncPass, function_pass


class _Planner:
    """Finds the scope in which each buffer is allocated."""

    def __init__(self, func: PrimFunc):
        self.scopes = AccessScopes(func)

    def place(self, buffer: Buffer, owner: Block) -> For | Block:
        """Where a buffer is allocated that `owner` allocates now.

        Below a loop it starts anew in each iteration, so no iteration may need what an earlier one has left in it.
        """
        blocks = self._blocks(buffer)
        if any(scope.stmt is owner or scope.stmt is None for scope in blocks):
            return owner
        lowest = functools.reduce(lowest_common, blocks, self.scopes.lowest(buffer))
        for candidate in lowest.ancestors():
            if candidate.stmt is owner:
                break
            if (
                candidate.stmt is not None
                and self._fits(buffer, candidate, owner)
                and _alone(buffer, candidate, blocks)
            ):
                return candidate.stmt
        return owner

    def _blocks(self, buffer: Buffer) -> list[Scope]:
        """The innermost blocks around the accesses, in order: a block says how it depends on loops."""
        found: dict[int, Scope] = {}
        for scope in self.scopes.accesses[buffer]:
            block = next((s for s in scope.ancestors() if not isinstance(s.stmt, For)), scope)
            found[id(block)] = block
        return list(found.values())

    @staticmethod
    def _fits(buffer: Buffer, candidate: Scope, owner: Block) -> bool:
        """Whether memory of this kind can belong to one iteration of all loops around."""
        if isinstance(candidate.stmt, For) and candidate.stmt.kind == ForKind.VECTORIZED:
            return False
        shared_by = {"global": "blockIdx", "shared": "threadIdx"}.get(buffer.scope().split(".")[0])
        for scope in candidate.ancestors():
            if scope.stmt is owner:
                break
            if isinstance(scope.stmt, For) and scope.stmt.thread_binding is not None:
                tag = scope.stmt.thread_binding.thread_tag
                if shared_by is not None and (tag.startswith(shared_by) or shared_by == "blockIdx"):
                    return False
        return True


def _alone(buffer: Buffer, candidate: Scope, blocks: list[Scope]) -> bool:
    """Whether one run of the scope reads only what it has written, as far as regions tell."""
    analyzer = Analyzer()
    read: list[IntervalSet] | None = None
    written: list[IntervalSet] | None = None
    for scope in blocks:
        block = scope.stmt
        assert isinstance(block, Block)
        domains = _domains(scope, candidate)
        reads = [r for r in block.reads if r.buffer is buffer]
        if reads and written is None:
            return False
        for region in reads:
            read = _cover(read, region, domains, analyzer)
        for region in block.writes:
            if region.buffer is buffer:
                written = _cover(written, region, domains, analyzer)
    return read is None or written is None or not _exceeds(read, written, analyzer)


def _domains(scope: Scope, candidate: Scope) -> dict[Var, Any]:
    """The sets over which variables between a block and the scope around it run."""
    domains: dict[Var, Any] = {}
    for outer in scope.ancestors():
        stmt = outer.stmt
        if isinstance(stmt, Block) and outer.realize is not None:
            for iter_var, value in zip(stmt.iter_vars, outer.realize.iter_values, strict=True):
                domains[iter_var.var] = IntSet.single_point(value)
        if outer is candidate:
            break
        if isinstance(stmt, For):
            domains[stmt.loop_var] = IntervalSet(stmt.min, stmt.min + stmt.extent - 1)
    return domains


def _cover(
    known: list[IntervalSet] | None, region: BufferRegion, domains: dict[Var, Any], analyzer: Analyzer
) -> list[IntervalSet]:
    sets = []
    for r in region.region:
        first, last = analyzer.int_set(r.min, domains), analyzer.int_set(r.min + r.extent - 1, domains)
        assert isinstance(first, IntervalSet) and isinstance(last, IntervalSet)
        sets.append(IntervalSet(first.min_value, last.max_value))
    return sets if known is None else [union([a, b], analyzer) for a, b in zip(known, sets, strict=True)]


def _exceeds(read: list[IntervalSet], written: list[IntervalSet], analyzer: Analyzer) -> bool:
    """Whether something is certainly read outside of what is written."""
    for r, w in zip(read, written, strict=True):
        for smaller, larger in ((r.min_value, w.min_value), (w.max_value, r.max_value)):
            if not (is_infinite(smaller) or is_infinite(larger)) and analyzer.can_prove(smaller < larger):
                return True
    return False


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


def plan_buffer_allocation(func: PrimFunc) -> PrimFunc:
    """The function with each buffer allocated in the innermost scope that contains its uses."""
    planner = _Planner(func)
    places: dict[int, list[Buffer]] = {}
    moved: set[Buffer] = set()
    for owner in planner.scopes.blocks:
        for buffer in owner.alloc_buffers:
            if buffer not in planner.scopes.accesses:
                moved.add(buffer)
                continue
            place = planner.place(buffer, owner)
            if place is not owner:
                moved.add(buffer)
                places.setdefault(id(place), []).append(buffer)
    if not moved:
        return func
    return func.with_body(_Placer(places, moved, planner.scopes.buffers)(func.body))


def PlanAndUpdateBufferAllocationLocation() -> PrimFuncPass:
    """Allocates each buffer in the innermost loop or block that contains all uses of one run of it."""
    return function_pass(plan_buffer_allocation, "tir.PlanAndUpdateBufferAllocationLocation")
