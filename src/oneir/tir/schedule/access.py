"""Declaring the regions that a block accesses, in place of the inferred ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array, is_sequence
from ...ir.expr import Range
from ...runtime.error import InvalidValue
from ..block_scope import StmtSRef
from ..index_map import IndexMap
from ..stmt import Block, BufferRegion
from .base import ScheduleBase
from .buffers import nth_region
from .conditions import as_block
from .error import PrimitiveError
from .instruction import Code, InstructionKind, index_text
from .layout import BUFFER_TYPES, default_dtype
from .random_variable import BlockRV
from .state import ScheduleState


def annotate_buffer_access(
    state: ScheduleState, sref: StmtSRef, buffer_index: int, buffer_index_type: int, index_map: IndexMap
) -> None:
    block, write = as_block(state, sref), bool(buffer_index_type)
    buffer = nth_region(state, block, buffer_index, write).buffer
    ends = index_map.map_indices([v.var for v in block.iter_vars])
    if len(ends) != 2 * len(buffer.shape):
        raise PrimitiveError(
            state.mod,
            f"A region of the buffer {buffer.name} has {len(buffer.shape)} ranges, found {len(ends) // 2}",
            block,
        )
    analyzer = Analyzer()
    ranges = [
        Range.from_min_extent(begin, analyzer.simplify(end - begin))
        for begin, end in zip(ends[::2], ends[1::2], strict=True)
    ]
    regions = list(block.writes if write else block.reads)
    regions[buffer_index] = BufferRegion(buffer, ranges)
    key = "explicit_write_region" if write else "explicit_read_region"
    known = [int(i) for i in block.annotations.get(key, ())]
    annotations = {**block.annotations, key: known if buffer_index in known else [*known, buffer_index]}
    new = block.replace(**{"writes" if write else "reads": Array(regions)}, annotations=annotations)
    state.replace(sref, new, {block: new})


def unsafe_hide_buffer_access(state: ScheduleState, sref: StmtSRef, buf_type: str, buf_index_array: list[int]) -> None:
    block = as_block(state, sref)
    if buf_type not in BUFFER_TYPES:
        raise PrimitiveError(
            state.mod,
            "The buffer type for hide_buffer_access schedule should either be 'read' or 'write', got "
            f"{buf_type} instead.",
        )
    name = f"{buf_type}s"
    regions = getattr(block, name)
    for index in buf_index_array:
        if not 0 <= index < len(regions):
            raise PrimitiveError(
                state.mod,
                "The buffer index array for hide_buffer_access schedule should be a list of integers between 0 and "
                f"{len(regions) - 1}, got {index} instead.",
            )
    kept = Array(r for i, r in enumerate(regions) if i not in buf_index_array)
    new: Block = block.replace(**{name: kept})
    state.replace(sref, new, {block: new})


def _render_ranges(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the region as a function that gives (begin, end) for each dimension."""
    index_map = values["gen_new_ranges"]
    ends = [index_text(end) for end in index_map.final_indices]
    ranges = ", ".join(f"({begin}, {end})" for begin, end in zip(ends[::2], ends[1::2], strict=True))
    names = ", ".join(v.name for v in index_map.initial_indices)
    kind = BUFFER_TYPES[int(values["buffer_index_type"])]
    return {
        "block": values["block"],
        "buffer_index": values["buffer_index"],
        "buf_type": kind,
        "gen_new_ranges": Code(f"lambda {names}: [{ranges}]"),
    }


ANNOTATE_BUFFER_ACCESS = InstructionKind(
    "AnnotateBufferAccess",
    "annotate_buffer_access",
    annotate_buffer_access,
    ("block", "buffer_index", "buffer_index_type", "gen_new_ranges"),
    render=_render_ranges,
)
UNSAFE_HIDE_BUFFER_ACCESS = InstructionKind(
    "UnsafeHideBufferAccess",
    "unsafe_hide_buffer_access",
    unsafe_hide_buffer_access,
    ("block", "buf_type", "buf_index_array"),
)


class Access(ScheduleBase):
    """The part of a schedule that changes which accesses blocks declare."""

    def annotate_buffer_access(
        self, block: BlockRV | str, buffer_index: int, buf_type: str, gen_new_ranges: Callable[..., Any]
    ) -> None:
        """Declares which region of a buffer a block reads or writes: `gen_new_ranges` gives, for the block's variables,
        an index or (begin, end) for each dimension.

        T.reads(A[vi - 1, vj])     ->     T.reads(A[vi - 1:vi + 1, vj])

        The region must have a range for each dimension. The annotation "explicit_read_region" or
        "explicit_write_region" of the block records that its region was given and not inferred.

        Raises `ScheduleError` if a condition does not hold.
        """
        handle = self._block(block)
        stmt: Block = self.get(handle)
        if buf_type not in BUFFER_TYPES:
            raise InvalidValue(f"a buffer is read or written, found {buf_type!r}; expected 'read' or 'write'")

        dtype = default_dtype(stmt)

        def ends(*variables: Any) -> list[Any]:
            ranges = gen_new_ranges(*variables)
            items = ranges if is_sequence(ranges) else [ranges]
            return [ops.cast(dtype, end) for r in items for end in (r if is_sequence(r) else (r, r + 1))]

        mapped = IndexMap.from_func(ends, ndim=len(stmt.iter_vars), index_dtype=dtype)
        self.apply(ANNOTATE_BUFFER_ACCESS, [handle, buffer_index, BUFFER_TYPES.index(buf_type), mapped])

    def unsafe_hide_buffer_access(self, block: BlockRV | str, buf_type: str, buf_index_array: Sequence[int]) -> None:
        """Removes some of the regions that a block declares as read ("read") or written ("write").

        T.reads(A[vi], B[vi])     ->     T.reads(B[vi]), with `unsafe_hide_buffer_access(block, "read", [0])`

        The declaration no longer covers what the block accesses, so later primitives may change results. The positions
        must be those of regions that are declared.
        """
        indices = [int(i) for i in buf_index_array]
        self.apply(UNSAFE_HIDE_BUFFER_ACCESS, [self._block(block), buf_type, indices])
