"""Contractions whose extents are no multiples of their tile compute whole tiles all the same.

    for i, j, k in T.grid(197, 64, 32):          for i, j, k in T.grid(204, 64, 32):
        C[i, j] += A[i, k] * B[k, j]       ->        C[i, j] += A[T.min(i, 196), k] * B[k, j]

Rows past the end repeat the last one, which costs less than code for a part of a tile, or a condition in the inner
loop. They stay in the buffer between the contraction and what follows it: nobody reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...arith import Analyzer
from ...ir.container import Array
from ...ir.expr import Min, PrimExpr, Range, Var, as_int, const
from ...ir.visitor import Mapper
from ...tir.analysis import get_block_read_write_region
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, BufferStore, For
from ...tir.stmt_functor import substitute
from ..analysis.contraction import has_room, panel_width
from ..analysis.leaves import extent_of


def computing_whole_tiles(func: PrimFunc, names: Collection[str], factors: Mapping[Var, int]) -> PrimFunc:
    """The function with axes of the blocks of these names rounded up to multiples; they write buffers made inside."""
    return func.replace(body=_RoundUp(names, factors)(func.body))


class _RoundUp(Mapper):
    def __init__(self, names: Collection[str], factors: Mapping[Var, int]):
        super().__init__()
        self.names, self.factors = names, factors
        self.analyzer = Analyzer()
        self.extents: dict[Var, PrimExpr] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_For(self, loop: For) -> Any:
        new = self.generic_visit(loop)
        extent = self.extents.get(loop.loop_var)
        return new if extent is None else new.replace(extent=extent)

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        if realize.block.name_hint not in self.names:
            return self.generic_visit(realize)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if iv.var in self.factors and isinstance(value, Var):
                self.extents[value] = self.rounded(extent_of(iv), self.factors[iv.var])
        return realize.replace(block=self.widened(realize.block))

    def rounded(self, extent: PrimExpr, factor: int) -> PrimExpr:
        """The next multiple of the factor."""
        return self.analyzer.simplify((extent + (factor - 1)) // factor * factor)

    def widened(self, block: Block) -> Block:
        """The block over whole tiles, with a buffer that has room for them."""
        store = block.body
        assert isinstance(store, BufferStore)
        last: dict[Var, PrimExpr] = {}
        whole_extents: dict[Var, PrimExpr] = {}
        axes = []
        for iv in block.iter_vars:
            factor = self.factors.get(iv.var)
            if factor is not None:
                last[iv.var] = extent_of(iv) - 1
                whole_extents[iv.var] = self.rounded(extent_of(iv), factor)
                iv = iv.replace(dom=Range(const(0, iv.var.dtype), whole_extents[iv.var]))
            axes.append(iv)
        old = store.buffer
        shape = [
            self.rounded(extent, self.factors[index]) if isinstance(index, Var) and index in self.factors else extent
            for index, extent in zip(store.indices, old.shape, strict=True)
        ]
        new = self.buffers[old] = decl_buffer(shape, old.dtype, old.name, scope=old.scope())
        whole = {*self.buffers}
        body = _Clamp(whole, old, new, last, whole_extents)(store)
        init = None if block.init is None else _Clamp(whole, old, new, last, whole_extents)(block.init)
        block = block.replace(iter_vars=Array(axes), body=body, init=init)
        reads, writes = get_block_read_write_region(block, {b.data: b for b in (new, *_buffers(block))})
        return block.replace(reads=[r for r in reads if r.buffer is not new], writes=writes)

    def visit_Block(self, block: Block) -> Any:
        block = self.generic_visit(block)
        return _Replace(self.buffers)(block) if self.buffers else block


def _buffers(block: Block) -> list[Buffer]:
    return [region.buffer for region in (*block.reads, *block.writes)]


class _Clamp(Mapper):
    """Operands at indices that stay inside, but for those that are whole already; the sum in its new buffer."""

    def __init__(
        self,
        whole: Collection[Buffer],
        old: Buffer,
        new: Buffer,
        last: Mapping[Var, PrimExpr],
        extents: Mapping[Var, PrimExpr],
    ):
        super().__init__()
        self.whole, self.old, self.new, self.last, self.extents = whole, old, new, last, extents

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.new if buffer is self.old else buffer

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        if load.buffer in self.whole:
            return self.generic_visit(load)
        values = {var: Min(var, end) for var, end in self.last.items() if not self.ends_late(load, var)}
        return load.replace(indices=Array(substitute(index, values) for index in load.indices))

    def ends_late(self, load: BufferLoad, var: Var) -> bool:
        """Whether there is something to read at the end of the last tile: the zeros of panels, or longer rows."""
        extent = as_int(self.extents[var])
        return panel_width(load, var) is not None or (extent is not None and has_room(load, var, extent))


class _Replace(Mapper):
    def __init__(self, buffers: Mapping[Buffer, Buffer]):
        super().__init__()
        self.buffers = buffers

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)
