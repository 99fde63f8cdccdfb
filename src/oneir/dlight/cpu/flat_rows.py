"""Axes that lie one after the other in memory become one, where that makes better tiles or an extent is unknown.

    for b, i, j, k in T.grid(n, m, 64, 32):           for bi, j, k in T.grid(n * m, 64, 32):
        C[b, i, j] += A[b, i, k] * B[k, j]     ->         C[bi, j] += A[bi, k] * B[k, j]

A tile then has rows of the next sentence, or of the next line of an image, where it would end with some that nobody
needs: an image of 13 x 13 has 169 rows, which are 11 tiles of 16 and not 13. And what is computed element by element is
one long loop, however short the last axis turns out to be. Parameters are seen as tensors of fewer axes, which is the
same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arith import Analyzer
from ...ir.container import Array
from ...ir.expr import PrimExpr, Range, Var, as_int, const
from ...ir.structural import structural_equal
from ...ir.visitor import Mapper, Visitor
from ...target.cpu import CPUInfo
from ...tir.analysis import get_block_read_write_region
from ...tir.analysis.variables import variables
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from ...tir.stmt import BlockRealize, BufferStore, For
from ...tir.stmt_functor import loads, substitute
from ..analysis.contraction import is_contraction
from ..analysis.leaves import Leaf, extent_of, leaves
from .contraction_axes import contraction_axes
from .register_tile import register_tile

WORTH = 0.98
"""What part of its estimated time a contraction of known extents may take as one of flat rows, to become one: four
sentences of 37 words in BERT were estimated at 0.97, and took 0.93. With estimates from 0.987 on, MobileNetV2 and Swin
for two images took 0.99 and 1.02, which is no gain."""


def with_flat_rows(sch: Schedule, name: str, info: CPUInfo) -> Schedule:
    """The schedule with one axis of rows in the contraction of that name, if the number of the last is unknown, or if
    all are known and tiles of all rows are estimated to take less time.
    """
    while (place := _place_of_rows(sch, name, info)) is not None:
        pairs = _pairs(sch, *place)
        if pairs is None or as_int(extent_of(pairs.of_blocks[name][0])) == 1:
            break
        flat = Schedule(_flattened(sch.mod["main"], pairs))
        (rows, cycles), (all_rows, cycles_flat) = (_rows_and_cycles(each, name, info) for each in (sch, flat))
        if rows is not None and (all_rows is None or cycles_flat > WORTH * cycles):
            break
        sch = flat
    return sch


def _rows_and_cycles(sch: Schedule, name: str, info: CPUInfo) -> tuple[int | None, float]:
    """The extent of the axis of rows in the contraction of that name, and estimated cycles of a row."""
    main = next(leaf for leaf in leaves(sch) or () if leaf.block.name_hint == name)
    axes = contraction_axes(main, info)
    tile = None if axes is None else register_tile(main, axes, info)
    if axes is None or tile is None or axes.rows is None:
        return None, math.inf
    rows = main.extents[axes.rows]
    return rows, tile.cycles / (rows or 1)


def with_flat_axes(sch: Schedule, short: int = 0) -> Schedule:
    """The schedule with one axis for those of a buffer that all blocks run along as one, if some are unknown, or if
    rows have fewer elements than `short`.
    """
    while (pairs := next(_flat_pairs(sch, short), None)) is not None:
        sch = Schedule(_flattened(sch.mod["main"], pairs))
    return sch


def _flat_pairs(sch: Schedule, short: int) -> Iterator[_Pairs]:
    """Axes that may become one, where an extent is unknown or a row is short."""
    regions = [region for leaf in reversed(leaves(sch) or ()) for region in (*leaf.block.writes, *leaf.block.reads)]
    for buffer in dict.fromkeys(region.buffer for region in regions):
        for place in reversed(range(len(buffer.shape) - 1)):
            outer, inner = (as_int(extent) for extent in buffer.shape[place : place + 2])
            is_last = place == len(buffer.shape) - 2
            if outer is None or inner is None or (is_last and outer > 1 and 1 < inner < short):
                pairs = _pairs(sch, buffer, place)
                if pairs is not None and pairs.of_blocks:
                    yield pairs


@dataclass(slots=True)
class _Pairs:
    """Two axes of blocks, outer and inner, and the axis of each buffer that the outer one runs along; the inner one
    runs along the next.
    """

    of_blocks: dict[str, tuple[IterVar, IterVar]] = field(default_factory=dict)
    of_buffers: dict[Buffer, int] = field(default_factory=dict)


def _place_of_rows(sch: Schedule, name: str, info: CPUInfo) -> tuple[Buffer, int] | None:
    """The result of a contraction, and the axis of it before that of its rows."""
    main = next(leaf for leaf in leaves(sch) or () if leaf.block.name_hint == name)
    axes = contraction_axes(main, info) if is_contraction(main) else None
    store = main.block.body
    if axes is None or axes.rows is None or not isinstance(store, BufferStore):
        return None
    rows = main.block.iter_vars[axes.rows].var
    place = next((i for i, index in enumerate(store.indices) if index is rows), 0)
    return None if place == 0 else (store.buffer, place - 1)


def _pairs(sch: Schedule, buffer: Buffer, place: int) -> _Pairs | None:
    """An axis of a buffer and the next, and those of all blocks and buffers that run along them; None where some block
    does not run along both as one.
    """
    found, pairs, known = leaves(sch) or [], _Pairs(of_buffers={buffer: place}), -1
    while known != len(pairs.of_blocks) + len(pairs.of_buffers):
        known = len(pairs.of_blocks) + len(pairs.of_buffers)
        if not all(_extend(pairs, leaf) for leaf in found):
            return None
    changed = [leaf for leaf in found if leaf.block.name_hint in pairs.of_blocks]
    return pairs if all(_is_whole_nest(sch, leaf) for leaf in changed) else None


def _is_whole_nest(sch: Schedule, leaf: Leaf) -> bool:
    """Whether a block runs for all values of its loops, which are its axes, and nothing else stands in them."""
    stmt: object = sch.get(leaf.loops[0]) if leaf.loops else None
    begins = []
    while isinstance(stmt, For):
        begins.append(as_int(stmt.min))
        stmt = stmt.body
    return (
        isinstance(stmt, BlockRealize)
        and set(begins) == {0}
        and as_int(stmt.predicate) == 1
        and all(isinstance(value, Var) for value in stmt.iter_values)
        and all(iv.dom is not None and as_int(iv.dom.min) == 0 for iv in leaf.block.iter_vars)
    )


def _extend(pairs: _Pairs, leaf: Leaf) -> bool:
    """Adds the axes of a block that run along known axes of buffers, and what else they run along; whether they always
    do so together.
    """
    block = leaf.block
    parts = [part for part in (block.body, block.init) if part is not None]
    stores = [part for part in parts if isinstance(part, BufferStore)]
    if len(stores) < len(parts):
        return False
    sums = [iv for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce]
    once, analyzer = {iv.var: const(0, iv.var.dtype) for iv in sums if as_int(extent_of(iv)) == 1}, Analyzer()
    accesses = [
        (access.buffer, [analyzer.simplify(substitute(index, once)) for index in access.indices])
        for store in stores
        for access in (store, *loads(store.value))
    ]
    axes = {iv.var: iv for iv in block.iter_vars}
    pair = pairs.of_blocks.get(block.name_hint)
    for buffer, indices in accesses:
        place = pairs.of_buffers.get(buffer)
        if place is not None and pair is None:
            outer, inner = (axes.get(index) if isinstance(index, Var) else None for index in indices[place : place + 2])
            if outer is None or inner is None or outer is inner or outer.iter_type != inner.iter_type:
                return False
            pair = pairs.of_blocks[block.name_hint] = outer, inner
    if pair is None:
        return True
    in_values = _VariablesOfValues(stores).found
    return in_values.isdisjoint(iv.var for iv in pair) and all(_runs_along(pairs, *a, *pair) for a in accesses)


class _VariablesOfValues(Visitor):
    """The variables that values depend on beside the elements that they read."""

    def __init__(self, stores: Sequence[BufferStore]):
        super().__init__()
        self.found: set[Var] = set()
        for store in stores:
            self(store.value)

    def visit_Var(self, var: Var) -> None:
        self.found.add(var)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        pass


def _runs_along(pairs: _Pairs, buffer: Buffer, indices: list[PrimExpr], outer: IterVar, inner: IterVar) -> bool:
    """Whether an access runs along two axes as one, which is noted, or along neither."""
    used = [i for i, index in enumerate(indices) if not variables(index).isdisjoint({outer.var, inner.var})]
    if not used:
        return buffer not in pairs.of_buffers
    place = used[0]
    whole = (
        used == [place, place + 1]
        and indices[place] is outer.var
        and indices[place + 1] is inner.var
        and structural_equal(buffer.shape[place], extent_of(outer))
        and structural_equal(buffer.shape[place + 1], extent_of(inner))
        and not buffer.strides
        and not buffer.axis_separators
    )
    return whole and pairs.of_buffers.setdefault(buffer, place) == place


def _flattened(func: PrimFunc, pairs: _Pairs) -> PrimFunc:
    """The function with one axis instead of two in blocks and buffers."""
    return func.replace(body=_Flatten(pairs)(func.body))


class _Flatten(Mapper):
    def __init__(self, pairs: _Pairs):
        super().__init__()
        self.pairs = pairs
        self.buffers = {buffer: _merged(buffer, place) for buffer, place in pairs.of_buffers.items()}
        self.extents: dict[PrimExpr, PrimExpr] = {}
        """Those of the outer loops."""
        self.inner: set[PrimExpr] = set()
        """The variables of inner loops, of which only the bodies are left."""
        self.axis: IterVar | None = None
        """That of the block which is visited."""

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def visit_For(self, loop: For) -> Any:
        new = self.generic_visit(loop)
        if loop.loop_var in self.inner:
            return new.body
        extent = self.extents.get(loop.loop_var)
        return new if extent is None else new.replace(extent=extent)

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        pair = self.pairs.of_blocks.get(realize.block.name_hint)
        if pair is None:
            return self.generic_visit(realize)
        outer, inner = pair
        values = dict(zip(realize.block.iter_vars, realize.iter_values, strict=True))
        extent = extent_of(outer) * extent_of(inner)
        self.extents[values[outer]] = extent
        self.inner.add(values.pop(inner))
        axis = IterVar(Range(extent), Var(f"{outer.var.name}_{inner.var.name}", outer.var.dtype), outer.iter_type)
        self.axis, block = axis, realize.block
        init = None if block.init is None else self(block.init)
        axes = [axis if iv is outer else iv for iv in values]
        block = block.replace(iter_vars=axes, body=self(block.body), init=init)
        touched = [self(region.buffer) for region in (*block.reads, *block.writes)]
        reads, writes = get_block_read_write_region(block, {buffer.data: buffer for buffer in touched})
        own = [region.buffer for region in writes]
        block = block.replace(reads=[region for region in reads if region.buffer not in own], writes=writes)
        return realize.replace(iter_values=list(values.values()), block=block)

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        if load.buffer not in self.buffers:
            return self.generic_visit(load)
        return BufferLoad(self.buffers[load.buffer], self.merged(load.buffer, load.indices))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        if store.buffer not in self.buffers:
            return self.generic_visit(store)
        indices = self.merged(store.buffer, store.indices)
        return store.replace(buffer=self.buffers[store.buffer], indices=indices, value=self(store.value))

    def merged(self, buffer: Buffer, indices: Array[PrimExpr]) -> list[PrimExpr]:
        """The indices with that of the axis which two have become."""
        assert self.axis is not None
        place = self.pairs.of_buffers[buffer]
        return [*indices[:place], self.axis.var, *indices[place + 2 :]]


def _merged(buffer: Buffer, place: int) -> Buffer:
    """The same memory with one axis instead of two."""
    shape = list(buffer.shape)
    return buffer.replace(shape=[*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :]])
