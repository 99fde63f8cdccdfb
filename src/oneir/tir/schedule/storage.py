"""Storage of buffers: their scope, their dtype, and the alignment of their axes."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from ...ir.expr import Cast, Var, pointer_to
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad
from ..stmt import Block, BufferStore, MatchBufferRegion
from .annotate import replace_annotations
from .base import ScheduleBase
from .buffers import Redirect, allocation_of, buffer_index, check_memory, in_memory, nth_region, replace_buffer
from .cache import only_writer
from .conditions import as_block, scope_root_of
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV
from .state import ScheduleState

ALIGN = "buffer_dim_align"
"""The annotation of a block that says how the axes of what it writes are aligned."""


def set_scope(state: ScheduleState, sref: StmtSRef, buffer_index: int, storage_scope: str) -> None:
    check_memory(storage_scope)
    buffer = nth_region(state, as_block(state, sref), buffer_index, write=True).buffer
    if buffer.scope() != storage_scope:
        replace_buffer(state, sref, buffer, in_memory(buffer, storage_scope, buffer.name))


class _Recast(Redirect):
    """Redirects accesses to a buffer, and to views of it, to others of another dtype, with casts around them."""

    def __init__(self, old: Buffer, new: Buffer):
        super().__init__(old, new)
        self.recast: dict[Buffer, Buffer] = {old: new}

    def visit_Block(self, block: Block) -> Any:
        for match in block.match_buffers:
            if match.source.buffer is self.old:
                self.recast[match.buffer] = with_dtype(match.buffer, self.new.dtype)
        return super().visit_Block(block)

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> MatchBufferRegion:
        view = self.recast.get(match.buffer, match.buffer)
        return match.replace(buffer=view, source=self.visit(match.source))

    def visit_Var(self, var: Var) -> Var:
        return next((new.data for old, new in self.recast.items() if old.data is var), var)

    def visit_BufferLoad(self, load: BufferLoad) -> Cast | BufferLoad:
        new = self.recast.get(load.buffer)
        changed: BufferLoad = self.generic_visit(load)
        return changed if new is None else Cast(load.dtype, changed.replace(buffer=new))

    def visit_BufferStore(self, store: BufferStore) -> BufferStore:
        new = self.recast.get(store.buffer)
        if new is None:
            return self.generic_visit(store)
        value = self.visit(store.value)
        lanes = store.value.dtype.lanes
        cast = Cast(new.dtype.with_lanes(lanes), value)
        return BufferStore(new, cast, [self.visit(index) for index in store.indices], store.predicate)


def with_dtype(buffer: Buffer, dtype: DataType) -> Buffer:
    """A buffer like another, of other elements, with memory of its own."""
    return buffer.replace(data=Var(buffer.data.name, pointer_to(dtype, buffer.scope())), dtype=dtype)


def unsafe_set_dtype(state: ScheduleState, sref: StmtSRef, buffer_index: int, dtype: str) -> None:
    buffer = nth_region(state, as_block(state, sref), buffer_index, write=True).buffer
    if buffer.dtype == dtype:
        return
    site = allocation_of(state, sref, buffer)
    if site is None:
        raise PrimitiveError(
            state.mod, f"Expected the buffer {buffer.name} to be allocated by a block, but it is a parameter", sref.stmt
        )
    new = with_dtype(buffer, DataType(dtype))
    old = site.stmt
    edit = _Recast(buffer, new)
    changed = edit.visit(old)
    allocated = [new if b is buffer else b for b in old.alloc_buffers]
    changed = edit.changed(old, changed.replace(alloc_buffers=type(old.alloc_buffers)(allocated)))
    state.replace(site, changed, edit.reuse)


def storage_align(state: ScheduleState, sref: StmtSRef, buffer_index: int, axis: int, factor: int, offset: int) -> None:
    block = as_block(state, sref)
    buffer = nth_region(state, block, buffer_index, write=True).buffer
    if allocation_of(state, sref, buffer) is None:
        raise PrimitiveError(
            state.mod, "The accessed buffer of the block {0} is not allocated within the current function", block
        )
    only_writer(state, scope_root_of(state, sref), buffer)
    if factor <= 0:
        raise PrimitiveError(
            state.mod, f"The input `factor` of storage_align is expected to be a positive number, found {factor}"
        )
    ndim = len(buffer.shape)
    if not -ndim <= axis < ndim:
        raise PrimitiveError(
            state.mod,
            f"The buffer to set storage alignment {buffer.name} has {ndim} dimension(s), so `axis` is required to be "
            f"in [{-ndim}, {ndim}) for storage_align. However, the input `axis` is {axis}",
        )
    axis += ndim if axis < 0 else 0
    known = [tuple(int(v) for v in entry) for entry in block.annotations.get(ALIGN, ())]
    entries = [entry for entry in known if entry[:2] != (buffer_index, axis)]
    entries.append((buffer_index, axis, factor, offset))
    replace_annotations(state, sref, {**block.annotations, ALIGN: [list(entry) for entry in entries]})


SET_SCOPE = InstructionKind("SetScope", "set_scope", set_scope, ("block",), ("buffer_index", "storage_scope"))
UNSAFE_SET_DTYPE = InstructionKind(
    "UnsafeSetDType", "unsafe_set_dtype", unsafe_set_dtype, ("block",), ("buffer_index", "dtype")
)
STORAGE_ALIGN = InstructionKind(
    "StorageAlign", "storage_align", storage_align, ("block",), ("buffer_index", "axis", "factor", "offset")
)


class Storage(ScheduleBase):
    """The part of a schedule that changes how buffers are stored. They are given by position, by name, or as such."""

    def set_scope(self, block: BlockRV | str, buffer_index: int | str | Buffer, storage_scope: str) -> None:
        """Sets the storage scope of a buffer that a block writes.

        B = T.alloc_buffer((128,))     ->     B = T.alloc_buffer((128,), scope="shared")

        A block of the function must allocate the buffer. Raises `ScheduleError` otherwise, and `InvalidValue` for an
        unknown scope.
        """
        handle, index = self._written(block, buffer_index)
        self.apply(SET_SCOPE, [handle], [index, storage_scope])

    def unsafe_set_dtype(self, block: BlockRV | str, buffer_index: int | str | Buffer, dtype: str) -> None:
        """Changes the dtype of a buffer that a block writes, with casts at each access. Values may change.

        B = T.alloc_buffer((128,))     ->     B = T.alloc_buffer((128,), "float16")
        B[vi] = A[vi]                  ->     B[vi] = T.Cast("float16", A[vi])
        """
        handle, index = self._written(block, buffer_index)
        self.apply(UNSAFE_SET_DTYPE, [handle], [index, dtype])

    def storage_align(
        self, block: BlockRV | str, buffer_index: int | str | Buffer, axis: int, factor: int, offset: int
    ) -> None:
        """Makes the stride of an axis of a buffer that a block writes k * factor + offset, by an annotation of the
        block.

        with T.block("B"): ...     ->     with T.block("B"): T.block_attr({"buffer_dim_align": [[0, 1, 16, 1]]}); ...

        A block of the function must allocate the buffer, and only this one write it. Raises `ScheduleError` otherwise.
        """
        handle, index = self._written(block, buffer_index)
        self.apply(STORAGE_ALIGN, [handle], [index, axis, factor, offset])

    def _written(self, block: BlockRV | str, buffer: int | str | Buffer) -> tuple[BlockRV, int]:
        handle = self._block(block)
        return handle, buffer_index(self.get(handle), buffer, write=True)
