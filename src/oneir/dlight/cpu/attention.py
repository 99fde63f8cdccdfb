"""Attention: sums of values, weighted with the softmax of scores, which are products of queries and keys.

    scores[i, j] += Q[i, k] * K[j, k]            for io in T.parallel(queries // 16):
    top[i] = max(top[i], scores[i, j])               scores of 16 queries and all keys
    e[i, j] = exp(scores[i, j] - top[i])     ->      their largest, exponentials, sums, weights
    total[i] += e[i, j]                              the sums of values for the 16 queries
    out[i, d] += e[i, j] / total[i] * V[j, d]

All that belongs to a few queries is computed together, so that scores take memory for those only. Both products have
their sums in registers; keys are copied into panels in which neighbouring keys are a vector. Queries past the end
repeat the last one: nobody reads what is computed for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arith import Analyzer
from ...ir.container import Array
from ...ir.expr import LT, FloorMod, Min, PrimExpr, Range, Var, const
from ...ir.visitor import Mapper
from ...target.cpu import cpu_info
from ...target.target import Target
from ...tir.analysis import get_block_read_write_region
from ...tir.buffer import Buffer, decl_buffer
from ...tir.expr import BufferLoad, IterVar, Select
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.stmt import Block, BlockRealize, BufferStore, For
from ...tir.stmt_functor import loads, substitute
from ..analysis.attention import Chain, chain_of, inline_elementwise_blocks
from ..analysis.contraction import is_contraction, operands
from ..analysis.leaves import extent_of, leaves, reduces, variables, with_plain_indices
from .base import CPUScheduleRule, parallelize
from .contraction import in_vectors, vector_widths
from .spatial import schedule_leaf

QUERIES = 16
"""The rows of a block of queries."""
MOST_VECTORS = 4
"""The most vectors of a tile; they leave registers for four rows or more."""


class Attention(CPUScheduleRule):
    """Products of queries and keys, softmax, and products with values, a few queries at a time."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(with_plain_indices(func))
        found = leaves(sch)
        if found is None or [is_contraction(leaf) for leaf in found if leaf.reduces] != [True, False, False, True]:
            return None
        inline_elementwise_blocks(sch)
        chain = chain_of(leaves(sch) or [])
        if chain is None:
            return None
        lanes = cpu_info(target).vector_bytes // sch.get(sch.get_block(chain.result)).writes[0].buffer.dtype.itemsize
        keys = next(leaf for leaf in leaves(sch) or () if leaf.block.name_hint == chain.scores).extents[-2]
        panel = panel_of_keys(keys, lanes)
        result = next(leaf for leaf in leaves(sch) or () if leaf.block.name_hint == chain.result)
        widths = vector_widths(result.extents[-2] or 0, lanes)
        width = max((w for w in widths if w <= MOST_VECTORS * lanes), default=None)
        copy = None if width is None else in_panels(sch, chain, panel)
        if width is None or copy is None:
            return None
        output = result.block.writes[0].buffer
        if output in sch.mod["main"].buffer_map.values():
            sch.cache_write(sch.get_block(chain.result), 0, "global")
        sch = Schedule(with_whole_blocks(sch.mod["main"], chain, panel))
        compute_by_queries(sch, chain, copy, panel, width, lanes)
        return sch


# -- keys in panels, queries in whole blocks --


def panel_of_keys(keys: int | None, lanes: int) -> int:
    """The number of neighbouring keys in a panel: several registers of them, unless much of the last panel were
    padding.
    """
    if keys is None:
        return 2 * lanes
    slower = {MOST_VECTORS: 1.0, 2: 1.05, 1: 1.3}
    return lanes * min(slower, key=lambda count: -(-keys // (count * lanes)) * count * slower[count])


def in_panels(sch: Schedule, chain: Chain, panel: int) -> str | None:
    """Copies the keys into panels of neighbouring keys, and names the block that does.

    None where the product has queries and keys at other places than expected.
    """
    handle = sch.get_block(chain.scores)
    block = sch.get(handle)
    found = operands(block)
    row, key, depth = (iv.var for iv in block.iter_vars[-3:])
    if found is None:
        return None
    query, keys = found
    if row in _used(keys) or key not in _used(keys) or key in _used(query) or row not in _used(query):
        return None
    index = next(i for i, region in enumerate(block.reads) if region.buffer is keys.buffer)
    copy = sch.reindex(handle, ("read", index))
    order = [iv.var for iv in block.iter_vars if iv.var in _used(keys)]
    at_key, at_depth = order.index(key), order.index(depth)

    def panels(*axes: Any) -> list[Any]:
        outer = [axis for i, axis in enumerate(axes) if i not in (at_key, at_depth)]
        return [*outer, axes[at_key] // panel, axes[at_depth], axes[at_key] % panel]

    sch.transform_layout(copy, ("write", 0), panels, pad_value=0.0)
    return sch.get(copy).name_hint


def _used(load: BufferLoad) -> set[Var]:
    return {v for index in load.indices for v in variables(index)}


def with_whole_blocks(func: PrimFunc, chain: Chain, panel: int) -> PrimFunc:
    """The function with the number of queries rounded up to whole blocks, and that of keys to whole panels where scores
    and weights are computed.
    """
    return func.replace(body=_WholeBlocks(chain, panel)(func.body))


class _WholeBlocks(Mapper):
    def __init__(self, chain: Chain, panel: int):
        super().__init__()
        self.chain, self.panel = chain, panel
        self.names = {chain.scores, *chain.softmax, chain.result}
        self.analyzer = Analyzer()
        self.extents: dict[Var, PrimExpr] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.rows: dict[Buffer, int] = {}
        """The axis of each buffer that is the queries."""

    def visit_For(self, loop: For) -> Any:
        new = self.generic_visit(loop)
        extent = self.extents.get(loop.loop_var)
        return new if extent is None else new.replace(extent=extent)

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        block = realize.block
        if block.name_hint not in self.names:
            return self.generic_visit(realize)
        factors = self.factors(block)
        for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if iv.var in factors and isinstance(value, Var):
                self.extents[value] = self.rounded(extent_of(iv), factors[iv.var])
        return realize.replace(block=self.widened(block, factors))

    def factors(self, block: Block) -> dict[Var, int]:
        """The numbers that a block's axes are rounded up to multiples of."""
        if block.name_hint == self.chain.scores:
            row, key, _ = (iv.var for iv in block.iter_vars[-3:])
            return {row: QUERIES, key: self.panel}
        for load in loads(block.body):
            if load.buffer in self.rows:
                row = load.indices[self.rows[load.buffer]]
                if isinstance(row, Var):
                    # The reductions of the softmax stop at the last key; all else runs over whole panels.
                    some = reduces(block) and block.name_hint != self.chain.result
                    return {row: QUERIES} if some else {row: QUERIES, block.iter_vars[-1].var: self.panel}
        return {}

    def rounded(self, extent: PrimExpr, factor: int) -> PrimExpr:
        """An extent, rounded up to a multiple of the factor."""
        return self.analyzer.simplify((extent + (factor - 1)) // factor * factor)

    def widened(self, block: Block, factors: Mapping[Var, int]) -> Block:
        """The block with rounded axes, writing to a buffer of rounded extents."""
        store = block.body
        assert isinstance(store, BufferStore)
        last = {iv.var: extent_of(iv) - 1 for iv in block.iter_vars if iv.var in factors}
        axes = [
            iv.replace(dom=Range(const(0, iv.var.dtype), self.rounded(extent_of(iv), factors[iv.var])))
            if iv.var in factors
            else iv
            for iv in block.iter_vars
        ]
        old = store.buffer
        shape = list(old.shape)
        for position, index in enumerate(store.indices):
            if isinstance(index, Var) and index in factors:
                shape[position] = self.rounded(shape[position], factors[index])
                if factors[index] == QUERIES and old not in self.rows:
                    self.rows[old] = position
        new = self.buffers[old] = decl_buffer(shape, old.dtype, old.name, scope=old.scope())
        body = _Clamp(self.buffers, last)(store)
        if block.name_hint == self.chain.softmax[-1]:
            body = self.with_zero_weight_for_padding(body, block.iter_vars[-1])
        init = None if block.init is None else _Clamp(self.buffers, {})(block.init)
        block = block.replace(iter_vars=Array(axes), body=body, init=init)
        known = [*(load.buffer for load in loads(body)), new]
        reads, writes = get_block_read_write_region(block, {b.data: b for b in known})
        return block.replace(reads=[r for r in reads if r.buffer is not new], writes=writes)

    def with_zero_weight_for_padding(self, store: BufferStore, keys: IterVar) -> BufferStore:
        """The store, with a weight of zero for padded keys."""
        extent = extent_of(keys)
        if self.analyzer.can_prove_equal(extent, self.rounded(extent, self.panel)):
            return store
        zero = const(0, store.value.dtype)
        return store.replace(value=Select(LT(keys.var, extent), store.value, zero))

    def visit_Block(self, block: Block) -> Any:
        block = self.generic_visit(block)
        return _Clamp(self.buffers, {})(block) if self.buffers else block


class _Clamp(Mapper):
    """Replaces the buffers by the wider ones, and clamps indices into all other buffers."""

    def __init__(self, buffers: Mapping[Buffer, Buffer], last: Mapping[Var, PrimExpr]):
        super().__init__()
        self.buffers, self.last = buffers, last

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        if not self.last or load.buffer in self.buffers:
            return self.generic_visit(load)
        index = load.indices[-1] if load.indices else None
        in_panel = index.a if isinstance(index, FloorMod) else None
        values = {var: Min(var, end) for var, end in self.last.items() if var is not in_panel}
        return load.replace(indices=Array(substitute(index, values) for index in load.indices))


# -- the schedule --


def compute_by_queries(sch: Schedule, chain: Chain, copy: str, panel: int, width: int, lanes: int) -> None:
    """Moves the chain into a loop over blocks of queries, and makes tiles and vectors of what is inside."""
    by_name = {leaf.block.name_hint: leaf for leaf in leaves(sch) or ()}
    result, scores = by_name[chain.result], by_name[chain.scores]
    work = result.work + scores.work
    *batch, row, vector, reduction = result.loops
    outer, inner = sch.split(row, [None, QUERIES])
    handles = [by_name[name].handle for name in (chain.scores, *chain.softmax)]
    consumers = sch.get_consumers(result.handle)
    for consumer in consumers:
        sch.reverse_compute_at(consumer, outer)
    for handle in reversed(handles):
        sch.compute_at(handle, outer, preserve_unit_loops=True)
    depth = len(batch) + 1
    # Primitives see a reduction only while its init is inside the block, so inits are split off last.
    starts = {
        result.handle: _tile(sch, result.handle, [inner, vector, reduction], width, lanes),
        scores.handle: _tile(sch, scores.handle, sch.get_loops(scores.handle)[-3:], panel, lanes),
    }
    for name in chain.softmax:
        if by_name[name].reduces:
            starts[by_name[name].handle] = sch.get_loops(by_name[name].handle)[-1]
    schedule_leaf(sch, by_name[copy])
    parallelize(sch, sch.get_loops(result.handle)[:depth], work)
    for handle, start in starts.items():
        sch.decompose_reduction(handle, start)


def _tile(sch: Schedule, handle: BlockRV, loops: list[LoopRV], width: int, lanes: int) -> LoopRV:
    """Keeps the sums of a tile of a product in registers; returns the loop of the reduction."""
    row, vector, reduction = loops
    rows = QUERIES if width <= lanes else 8 if width <= 2 * lanes else 4
    rows_out, rows_in = sch.split(row, [None, rows])
    around, vectors = sch.split(vector, [None, width])
    sch.reorder(around, rows_out, reduction, rows_in, vectors)
    in_vectors(sch, [rows_in, vectors], width)
    follower = sch.cache_write(handle, 0, "local")
    sch.reverse_compute_at(follower, rows_out)
    in_vectors(sch, sch.get_loops(follower)[-2:], width)
    return reduction
