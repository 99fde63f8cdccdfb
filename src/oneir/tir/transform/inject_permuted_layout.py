"""InjectPermutedLayout: rows of shared memory are permuted, so that eight rows are read at once from different banks.

Shared memory has 32 banks of 4 bytes. Rows of a tile begin in few of them, so that equal columns of neighbouring rows
collide. A buffer that a block with the annotation "permuted_layout" writes keeps its shape, but its columns, in pieces
of 16 bytes, are exchanged by row: piece `c` of row `r` lies where piece `c ^ (r // p % n)` was. Of `n` pieces in a row,
up to eight take part; `p` rows are 128 bytes, or one row is more.
"""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Visitor
from ...runtime.error import InvalidValue
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Block, BufferRegion, BufferStore
from .analyzed import AnalyzedMapper
from .pass_base import PrimFuncPass

PERMUTED = "permuted_layout"
_PIECE_BYTES = 16
_BANK_BYTES = 128
"""All banks together."""


class InjectPermutedLayout(PrimFuncPass):
    """Permutes the rows of shared memory that blocks with the annotation "permuted_layout" write.

    It is for functions without matched views. Raises `InvalidValue` for a buffer that is not in shared memory, or whose
    rows are not a power of two of at least 16 bytes.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        found = _Permuted()
        found(func.body)
        return func.with_body(_Permute(found.buffers)(func.body)) if found.buffers else func


class _Permuted(Visitor):
    """The pieces of a row, and the elements of a piece, of each buffer to permute."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: dict[Buffer, tuple[int, int]] = {}

    def visit_Block(self, node: Block) -> None:
        if node.annotations.get(PERMUTED):
            for region in node.writes:
                self.buffers[region.buffer] = _pieces(region.buffer)
        self.generic_visit(node)


def _pieces(buffer: Buffer) -> tuple[int, int]:
    row = buffer.shape[-1] if len(buffer.shape) > 1 else None
    elements = _PIECE_BYTES * 8 // buffer.dtype.bits
    size = row.value if isinstance(row, IntImm) else 0
    if not buffer.scope().startswith("shared") or buffer.strides or size < elements or size & (size - 1):
        raise InvalidValue(
            f"{PERMUTED} is for shared memory with rows of {elements} elements times a power of two; found "
            f"`{buffer.name}` in {buffer.scope()} memory with the shape {tuple(buffer.shape)}"
        )
    return size // elements, elements


class _Permute(AnalyzedMapper):
    def __init__(self, buffers: dict[Buffer, tuple[int, int]]):
        super().__init__()
        self.buffers = buffers

    def indices(self, buffer: Buffer, indices: Any) -> Array[PrimExpr]:
        *outer, row, column = [self.visit(index) for index in indices]
        pieces, elements = self.buffers[buffer]
        rows = max(1, _BANK_BYTES // _PIECE_BYTES // pieces)
        turn = ops.floormod(ops.floordiv(row, rows), min(pieces, _BANK_BYTES // _PIECE_BYTES))
        piece = self.analyzer.simplify(ops.floordiv(column, elements))
        within = self.analyzer.simplify(ops.floormod(column, elements))
        moved = ops.bitwise_xor(piece, self.analyzer.simplify(turn)) * elements + within
        return Array([*outer, row, moved])

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        if node.buffer not in self.buffers:
            return self.generic_visit(node)
        return node.replace(indices=self.indices(node.buffer, node.indices))

    def visit_BufferStore(self, node: BufferStore) -> Any:
        if node.buffer not in self.buffers:
            return self.generic_visit(node)
        return node.replace(value=self.visit(node.value), indices=self.indices(node.buffer, node.indices))

    def visit_BufferRegion(self, node: BufferRegion) -> Any:
        """A part of a row may lie anywhere in it."""
        new = self.generic_visit(node)
        if node.buffer not in self.buffers:
            return new
        return BufferRegion(new.buffer, [*new.region[:-1], Range(0, new.buffer.shape[-1])])
