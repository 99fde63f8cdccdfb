"""Inference of the regions that a block, or any statement, reads and writes.

The loops inside of it are covered: `A[vi * 4 + k]` under `for k in range(4)` is the region `A[vi * 4:vi * 4 + 4]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...arith import Analyzer, IntervalSet
from ...arith.int_set import IntSetEvaluator, as_int_set, is_infinite, union
from ...ir.container import Array
from ...ir.expr import Call, IntImm, PrimExpr, Range, Var, const
from ...ir.op import Op
from ...ir.visitor import Visitor
from ...runtime.registry import register_global_func
from ..buffer import Buffer
from ..expr import BufferLoad
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, MatchBufferRegion, Stmt
from ..stmt_functor import substitute


class _Accesses:
    """The accessed regions of each buffer, in the order of first access."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.by_buffer: dict[Buffer, list[IntervalSet]] = {}

    def add(self, buffer: Buffer, region: list[IntervalSet]) -> None:
        old = self.by_buffer.get(buffer)
        if old is not None:
            region = [union([a, b], self.analyzer) for a, b in zip(old, region, strict=True)]
        self.by_buffer[buffer] = region

    def regions(self, without: Mapping[Buffer, Any]) -> Array[BufferRegion]:
        return Array(
            BufferRegion(buffer, [self.range(s, dim) for s, dim in zip(sets, buffer.shape, strict=True)])
            for buffer, sets in self.by_buffer.items()
            if buffer not in without
        )

    def range(self, values: IntervalSet, dim: PrimExpr) -> Range:
        low, high = values.min_value, values.max_value
        if is_infinite(low) or is_infinite(high):
            return Range(dim)
        if low is high:
            return Range.from_min_extent(low, const(1, low.dtype))
        return Range.from_min_extent(low, self.analyzer.simplify(high - low + 1))


class _Detector(Visitor):
    def __init__(self, buffer_var_map: Mapping[Var, Buffer]):
        super().__init__()
        self.buffers = dict(buffer_var_map)
        self.matched: dict[Var, MatchBufferRegion] = {}
        self.analyzer = Analyzer()
        self.loops: dict[Var, IntervalSet] = {}
        self.evaluator = IntSetEvaluator(self.analyzer, self.loops)
        self.reads, self.writes, self.opaque = (_Accesses(self.analyzer) for _ in range(3))

    def values(self, index: PrimExpr) -> IntervalSet:
        """The values of an index while the loops inside the block run."""
        if not self.loops and index.dtype.is_scalar:
            return IntervalSet(index, index)
        return self.evaluator.visit(index)

    def access(self, into: _Accesses, buffer: Buffer, region: Iterable[IntervalSet]) -> None:
        """Adds a region of a buffer, which is worked out only if the buffer counts."""
        match = self.matched.get(buffer.data)
        source = buffer if match is None else match.source.buffer
        if source.data in self.buffers:
            into.add(source, list(region) if match is None else _through_match(match, list(region)))

    def whole(self, into: _Accesses, buffer: Buffer) -> None:
        self.access(into, buffer, map(_interval, map(Range, buffer.shape)))

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.access(self.reads, load.buffer, map(self.values, load.indices))
        for index in load.indices:
            self.visit(index)
        if load.predicate is not None:
            self.visit(load.predicate)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.access(self.writes, store.buffer, map(self.values, store.indices))
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)
        if store.predicate is not None:
            self.visit(store.predicate)

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        low, last = self.values(loop.min), self.values(loop.min + loop.extent - 1)
        self.enter(loop.loop_var, IntervalSet(low.min_value, last.max_value))
        self.visit(loop.body)
        self.enter(loop.loop_var, None)

    def enter(self, var: Var, values: IntervalSet | None) -> None:
        """Enters or leaves a loop; intervals evaluated before are no longer valid."""
        if values is None:
            del self.loops[var]
        else:
            self.loops[var] = values
        self.evaluator = IntSetEvaluator(self.analyzer, self.loops)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        """An inner block: the regions that it declares, for the values of its variables."""
        block = realize.block
        for value in realize.iter_values:
            self.visit(value)
        values = {v.var: value for v, value in zip(block.iter_vars, realize.iter_values, strict=True)}
        for into, regions in ((self.reads, block.reads), (self.writes, block.writes)):
            for region in regions:
                self.access(into, region.buffer, (self.covered(r, values) for r in region.region))

    def covered(self, r: Range, values: Mapping[Var, Any]) -> IntervalSet:
        low, extent = substitute(r.min, values), substitute(r.extent, values)
        first = self.values(low)
        if isinstance(extent, IntImm) and extent.value == 1:
            return first
        return IntervalSet(first.min_value, self.values(low + extent - 1).max_value)

    def visit_Call(self, call: Call) -> None:
        if isinstance(call.op, Op) and call.op.name == "tir.tvm_access_ptr":
            pointer, mask = call.args[1], call.args[4]
            buffer = self.buffers.get(pointer) if isinstance(pointer, Var) else None
            if buffer is not None and isinstance(mask, IntImm) and mask.value in (1, 2):
                into = self.reads if mask.value == 1 else self.writes
                self.whole(into, buffer)
                return
        self.generic_visit(call)

    def visit_Var(self, var: Var) -> None:
        """A pointer outside of an access: how its memory is accessed is not known."""
        buffer = self.buffers.get(var)
        if buffer is not None:
            self.whole(self.opaque, buffer)

    def visit_Buffer(self, buffer: Buffer) -> None:
        """The buffer of an access: its data pointer does not count as used by itself."""


def _interval(r: Range) -> IntervalSet:
    values = as_int_set(r)
    assert isinstance(values, IntervalSet)
    return values


def _through_match(match: MatchBufferRegion, region: list[IntervalSet]) -> list[IntervalSet]:
    """A region of a view as a region of its source buffer."""
    source = match.source.region
    lead = len(source) - len(region)
    out = [_interval(r) for r in source[:lead]]
    for r, values in zip(source[lead:], region, strict=True):
        low, high = values.min_value, values.max_value
        known = not (is_infinite(low) or is_infinite(high))
        out.append(IntervalSet(r.min + low, r.min + high) if known else _interval(r))
    return out


def get_block_access_region(block: Block, buffer_var_map: Mapping[Var, Buffer]) -> Array[Array[BufferRegion]]:
    """The regions that a block reads, those that it writes, and those accessed by pointer.

    Only buffers whose pointer is in `buffer_var_map` count. The accumulators of a block
    with an init are not listed as read.
    """
    detector = _Detector(buffer_var_map)
    for match in block.match_buffers:
        detector.matched[match.buffer.data] = match
        detector.buffers[match.buffer.data] = match.buffer
    if block.init is not None:
        detector(block.init)
    detector(block.body)
    written = detector.writes.by_buffer if block.init is not None else {}
    return Array((detector.reads.regions(written), detector.writes.regions({}), detector.opaque.regions({})))


def get_block_read_write_region(block: Block, buffer_var_map: Mapping[Var, Buffer]) -> Array[Array[BufferRegion]]:
    """The regions that a block reads and those that it writes; those accessed by pointer count as both."""
    reads, writes, opaque = get_block_access_region(block, buffer_var_map)
    if not opaque:
        return Array((reads, writes))
    analyzer = Analyzer()
    both: list[Array[BufferRegion]] = []
    for regions in (reads, writes):
        merged = _Accesses(analyzer)
        for region in (*regions, *opaque):
            merged.add(region.buffer, [_interval(r) for r in region.region])
        both.append(merged.regions({}))
    return Array(both)


@register_global_func("arith.DomainTouched")
def domain_touched(stmt: Stmt, buffer: Buffer, consider_loads: bool, consider_stores: bool) -> Array[Range]:
    """The box of all elements of a buffer that a statement loads, stores, or both, one range a dimension.

    It covers all iterations of the loops inside of the statement, so it may use only variables from outside of them.
    A dimension whose indices have no known bounds is whole; without an access of the wanted kind there are no ranges.
    """
    detector = _Detector({buffer.data: buffer})
    detector(stmt)
    wanted = [found for found, on in ((detector.reads, consider_loads), (detector.writes, consider_stores)) if on]
    touched = _Accesses(detector.analyzer)
    for accesses in (*wanted, detector.opaque):
        if buffer in accesses.by_buffer:
            touched.add(buffer, accesses.by_buffer[buffer])
    return Array(r for region in touched.regions({}) for r in region.region)
