"""Buffers of blocks: looking them up, replacing them, and their storage scopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.container import Array
from ...ir.expr import PrimExpr, Range, Var, pointer_to
from ...runtime.error import InvalidValue
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad
from ..stmt import Block, BufferRegion, BufferStore, MatchBufferRegion
from .edit import BlockEdit
from .error import PrimitiveError
from .state import ScheduleState

_MEMORIES = ("global", "shared", "warp", "local", "wmma", "texture", "amx", "m16n8k8", "metal")


def check_memory(memory: str) -> None:
    """Raises `InvalidValue` for what is no storage scope."""
    if memory.split(".")[0] not in _MEMORIES:
        raise InvalidValue(f"{memory!r} is no storage scope; scopes begin with {', '.join(_MEMORIES)}")


def nth_region(state: ScheduleState, block: Block, index: int, write: bool) -> BufferRegion:
    """A region that a block reads or writes, by its position; raises `PrimitiveError` if that is out of range."""
    regions = block.writes if write else block.reads
    if not 0 <= index < len(regions):
        name = "write" if write else "read"
        raise PrimitiveError(
            state.mod,
            f"The argument `{name}_buffer_index` {index} is out of range: the block {{0}} {name}s {len(regions)} "
            "buffer region(s)",
            block,
        )
    return regions[index]


def buffer_index(block: Block, buffer: int | str | Buffer, write: bool) -> int:
    """The position of a buffer among those that a block reads or writes, given as such, by name or as the buffer.

    Raises `InvalidValue` if there is none, or several of the name.
    """
    if isinstance(buffer, int):
        return buffer
    regions = block.writes if write else block.reads
    found = [i for i, r in enumerate(regions) if r.buffer is buffer or r.buffer.name == buffer]
    kind = "writes" if write else "reads"
    name = buffer if isinstance(buffer, str) else buffer.name
    if not found:
        raise InvalidValue(
            f"the block {block.name_hint} {kind} no buffer {name!r}; it {kind} {[r.buffer.name for r in regions]}"
        )
    if isinstance(buffer, str) and len({regions[i].buffer for i in found}) > 1:
        raise InvalidValue(f"the block {block.name_hint} {kind} {len(found)} buffers of the name {name!r}")
    return found[0]


def in_memory(buffer: Buffer, memory: str, name: str | None = None, shape: Any = None) -> Buffer:
    """A buffer like another with memory of its own: as a cache, "A" in "shared" is "A_shared"."""
    name = f"{buffer.name}_{memory}" if name is None else name
    return buffer.replace(
        data=Var(name, pointer_to(buffer.dtype, memory)),
        name=name,
        shape=buffer.shape if shape is None else Array(shape),
        strides=Array(),
        elem_offset=None,
    )


class Redirect(BlockEdit):
    """Replaces a buffer by another in all accesses, regions, `match_buffer`s and pointers.

    The other buffer may hold a part only: then `offset` is where that part begins.
    """

    def __init__(self, old: Buffer, new: Buffer, offset: Sequence[PrimExpr] | None = None):
        super().__init__()
        self.old, self.new, self.offset = old, new, offset
        self.analyzer = Analyzer()

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_Var(self, var: Var) -> Var:
        return self.new.data if var is self.old.data else var

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        return self._access(self.generic_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        return self._access(self.generic_visit(store))

    def _access(self, node: Any) -> Any:
        if node.buffer is not self.old:
            return node
        return node.replace(buffer=self.new, indices=Array(self._moved(i) for i in enumerate(node.indices)))

    def _moved(self, item: tuple[int, PrimExpr]) -> PrimExpr:
        axis, index = item
        return index if self.offset is None else self.analyzer.simplify(index - self.offset[axis])

    def visit_BufferRegion(self, region: BufferRegion) -> Any:
        if region.buffer is not self.old:
            return region
        ranges = [
            r if self.offset is None else Range.from_min_extent(self._moved((axis, r.min)), r.extent)
            for axis, r in enumerate(region.region)
        ]
        return region.replace(buffer=self.new, region=Array(ranges))

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> Any:
        return match.replace(source=self.visit(match.source))


def allocation_of(state: ScheduleState, sref: StmtSRef, buffer: Buffer) -> StmtSRef | None:
    """The block around a statement that allocates a buffer; None if it is a parameter."""
    above: StmtSRef | None = sref
    while above is not None:
        if isinstance(above.stmt, Block) and buffer in above.stmt.alloc_buffers:
            return above
        above = above.parent
    return None


def replace_buffer(state: ScheduleState, sref: StmtSRef, old: Buffer, new: Buffer) -> None:
    """Replaces a buffer that an enclosing block allocates; raises `PrimitiveError` for a parameter."""
    site = allocation_of(state, sref, old)
    if site is None:
        raise PrimitiveError(
            state.mod,
            f"Expected the buffer {old.name} to be allocated by a block of the function, but it is a parameter",
            sref.stmt,
        )
    block: Block = site.stmt
    edit = Redirect(old, new)
    changed = edit.visit(block)
    changed = edit.changed(
        block, changed.replace(alloc_buffers=Array(new if b is old else b for b in block.alloc_buffers))
    )
    state.replace(site, changed, edit.reuse)
