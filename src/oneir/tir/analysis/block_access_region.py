"""What a block reads and writes, found by looking at its body.

The loops inside the block are covered: `A[vi * 4 + k]` under `for k in range(4)` is the region `A[vi * 4:vi * 4 + 4]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import (
    Add,
    Broadcast,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    PrimExpr,
    Ramp,
    Range,
    Sub,
    Var,
    const,
)
from ...ir.op import Op
from ...ir.visitor import Visitor, post_order_visit
from ..buffer import Buffer
from ..expr import BufferLoad
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, MatchBufferRegion
from ..stmt_functor import substitute

Bounds = tuple[PrimExpr, PrimExpr]
"""The smallest and the largest value of an index."""


class _Linear:
    """constant + sum of coefficient * term, in which equal terms meet."""

    __slots__ = ("constant", "terms")

    def __init__(self, expr: PrimExpr):
        self.constant = 0
        self.terms: list[tuple[PrimExpr, int]] = []
        self.add(expr, 1)

    def add(self, expr: PrimExpr, factor: int) -> None:
        if isinstance(expr, IntImm):
            self.constant += factor * expr.value
        elif isinstance(expr, Add):
            self.add(expr.a, factor)
            self.add(expr.b, factor)
        elif isinstance(expr, Sub):
            self.add(expr.a, factor)
            self.add(expr.b, -factor)
        elif isinstance(expr, Mul) and isinstance(expr.b, IntImm):
            self.add(expr.a, factor * expr.b.value)
        elif isinstance(expr, Mul) and isinstance(expr.a, IntImm):
            self.add(expr.b, factor * expr.a.value)
        else:
            for i, (term, old) in enumerate(self.terms):
                if ops.same_expr(term, expr):
                    self.terms[i] = (term, old + factor)
                    return
            self.terms.append((expr, factor))

    def as_expr(self, dtype: Any) -> PrimExpr:
        result: Any = const(0, dtype)
        for term, factor in self.terms:
            if factor > 0:
                result = ops.add(result, ops.multiply(term, factor))
        for term, factor in self.terms:
            if factor < 0:
                result = ops.subtract(result, ops.multiply(term, -factor))
        if self.constant < 0:
            return ops.subtract(result, -self.constant)
        return ops.add(result, self.constant)


def _difference(a: PrimExpr, b: PrimExpr) -> _Linear:
    out = _Linear(a)
    out.add(b, -1)
    return out


def _mentions(expr: PrimExpr, loops: Mapping[Var, Bounds]) -> bool:
    found = False

    def look(node: Any) -> None:
        nonlocal found
        found = found or (node._is_variable and node in loops)

    post_order_visit(expr, look)
    return found


def bounds_of(expr: PrimExpr, loops: Mapping[Var, Bounds]) -> Bounds | None:
    """The smallest and largest value of an index while the variables of `loops` run; None when it is not known."""
    if isinstance(expr, Var):
        return loops.get(expr, (expr, expr))
    if isinstance(expr, IntImm) or not _mentions(expr, loops):
        if isinstance(expr, Ramp):
            return _ramp_bounds(expr, (expr.base, expr.base))
        return bounds_of(expr.value, loops) if isinstance(expr, Broadcast) else (expr, expr)
    if isinstance(expr, Cast):
        inner = bounds_of(expr.value, loops)
        return None if inner is None else (ops.cast(expr.dtype, inner[0]), ops.cast(expr.dtype, inner[1]))
    if isinstance(expr, Ramp):
        inner = bounds_of(expr.base, loops)
        return None if inner is None else _ramp_bounds(expr, inner)
    if isinstance(expr, (Add, Sub)):
        a, b = bounds_of(expr.a, loops), bounds_of(expr.b, loops)
        if a is None or b is None:
            return None
        if isinstance(expr, Add):
            return ops.add(a[0], b[0]), ops.add(a[1], b[1])
        return ops.subtract(a[0], b[1]), ops.subtract(a[1], b[0])
    if isinstance(expr, Mul):
        return _product_bounds(expr, loops)
    if isinstance(expr, (FloorDiv, FloorMod)) and isinstance(expr.b, IntImm) and expr.b.value > 0:
        return _division_bounds(expr, expr.b, bounds_of(expr.a, loops))
    return None


def _ramp_bounds(ramp: Ramp, base: Bounds) -> Bounds | None:
    if not isinstance(ramp.lanes, int) or not isinstance(ramp.stride, IntImm):
        return None
    reach = ramp.stride.value * (ramp.lanes - 1)
    return (base[0], ops.add(base[1], reach)) if reach >= 0 else (ops.add(base[0], reach), base[1])


def _product_bounds(expr: Mul, loops: Mapping[Var, Bounds]) -> Bounds | None:
    scaled, factor = (expr.a, expr.b) if not _mentions(expr.b, loops) else (expr.b, expr.a)
    inner = bounds_of(scaled, loops)
    if inner is None or _mentions(factor, loops):
        return None
    low, high = ops.multiply(inner[0], factor), ops.multiply(inner[1], factor)
    if isinstance(factor, IntImm):
        return (low, high) if factor.value >= 0 else (high, low)
    # A factor that is not a constant is a size, which is not negative.
    return low, high


def _division_bounds(expr: FloorDiv | FloorMod, divisor: IntImm, inner: Bounds | None) -> Bounds | None:
    if inner is None:
        return (const(0, expr.dtype), ops.subtract(divisor, 1)) if isinstance(expr, FloorMod) else None
    low, high = ops.floordiv(inner[0], divisor), ops.floordiv(inner[1], divisor)
    if isinstance(expr, FloorDiv):
        return low, high
    if isinstance(low, IntImm) and isinstance(high, IntImm) and low.value == high.value:
        return ops.floormod(inner[0], divisor), ops.floormod(inner[1], divisor)
    return const(0, expr.dtype), ops.subtract(divisor, 1)


def _union(a: Bounds | None, b: Bounds | None) -> Bounds | None:
    if a is None or b is None:
        return None
    return _extreme(a[0], b[0], smaller=True), _extreme(a[1], b[1], smaller=False)


def _extreme(a: PrimExpr, b: PrimExpr, smaller: bool) -> PrimExpr:
    difference = _difference(a, b)
    if all(factor == 0 for _, factor in difference.terms):
        return a if (difference.constant <= 0) == smaller or difference.constant == 0 else b
    return ops.minimum(a, b) if smaller else ops.maximum(a, b)


class _Accesses:
    """The parts of each buffer that were met, in the order of the first meeting."""

    def __init__(self) -> None:
        self.by_buffer: dict[Buffer, list[Bounds | None]] = {}

    def add(self, buffer: Buffer, region: list[Bounds | None]) -> None:
        old = self.by_buffer.get(buffer)
        self.by_buffer[buffer] = region if old is None else [_union(a, b) for a, b in zip(old, region, strict=True)]

    def regions(self, without: Mapping[Buffer, Any]) -> Array[BufferRegion]:
        return Array(
            BufferRegion(buffer, [_range(b, dim) for b, dim in zip(bounds, buffer.shape, strict=True)])
            for buffer, bounds in self.by_buffer.items()
            if buffer not in without
        )


def _range(bounds: Bounds | None, dim: PrimExpr) -> Range:
    if bounds is None:
        return Range(dim)
    low, high = bounds
    if low is high:
        return Range.from_min_extent(low, const(1, low.dtype))
    difference = _difference(high, low)
    difference.constant += 1
    return Range.from_min_extent(low, difference.as_expr(low.dtype))


class _Detector(Visitor):
    def __init__(self, buffer_var_map: Mapping[Var, Buffer]):
        super().__init__()
        self.buffers = dict(buffer_var_map)
        self.matched: dict[Var, MatchBufferRegion] = {}
        self.loops: dict[Var, Bounds] = {}
        self.reads, self.writes, self.opaque = _Accesses(), _Accesses(), _Accesses()

    def access(self, into: _Accesses, buffer: Buffer, region: list[Bounds | None]) -> None:
        match = self.matched.get(buffer.data)
        if match is not None:
            buffer, region = match.source.buffer, _through_match(match, region)
        if buffer.data in self.buffers:
            into.add(buffer, region)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.access(self.reads, load.buffer, [bounds_of(i, self.loops) for i in load.indices])
        for index in load.indices:
            self.visit(index)
        if load.predicate is not None:
            self.visit(load.predicate)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.access(self.writes, store.buffer, [bounds_of(i, self.loops) for i in store.indices])
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)
        if store.predicate is not None:
            self.visit(store.predicate)

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        low, extent = bounds_of(loop.min, self.loops), bounds_of(loop.extent, self.loops)
        if low is not None and extent is not None:
            self.loops[loop.loop_var] = (low[0], ops.subtract(ops.add(low[1], extent[1]), 1))
        self.visit(loop.body)
        self.loops.pop(loop.loop_var, None)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        """A block inside: what it says it reads and writes, for the values of its variables."""
        block = realize.block
        for value in realize.iter_values:
            self.visit(value)
        values = {v.var: value for v, value in zip(block.iter_vars, realize.iter_values, strict=True)}
        for into, regions in ((self.reads, block.reads), (self.writes, block.writes)):
            for region in regions:
                self.access(into, region.buffer, [self.range_bounds(r, values) for r in region.region])

    def range_bounds(self, r: Range, values: Mapping[Var, Any]) -> Bounds | None:
        low, extent = substitute(r.min, values), substitute(r.extent, values)
        first = bounds_of(low, self.loops)
        if first is None or _mentions(extent, self.loops):
            return None
        if isinstance(extent, IntImm) and extent.value == 1:
            return first
        return first[0], ops.subtract(ops.add(first[1], extent), 1)

    def visit_Call(self, call: Call) -> None:
        if isinstance(call.op, Op) and call.op.name == "tir.tvm_access_ptr":
            buffer, mask = self.buffers.get(call.args[1]), call.args[4]
            if buffer is not None and isinstance(mask, IntImm) and mask.value in (1, 2):
                into = self.reads if mask.value == 1 else self.writes
                self.access(into, buffer, [None] * len(buffer.shape))
                return
        self.generic_visit(call)

    def visit_Var(self, var: Var) -> None:
        """A pointer that stands by itself: what happens to its memory is not known."""
        buffer = self.buffers.get(var)
        if buffer is not None:
            self.access(self.opaque, buffer, [None] * len(buffer.shape))

    def visit_Buffer(self, buffer: Buffer) -> None:
        """The buffer of an access; its pointer is no use of the pointer."""


def _through_match(match: MatchBufferRegion, region: list[Bounds | None]) -> list[Bounds | None]:
    """A part of a view as a part of what it views."""
    source = match.source.region
    lead = len(source) - len(region)
    out: list[Bounds | None] = [(r.min, ops.subtract(ops.add(r.min, r.extent), 1)) for r in source[:lead]]
    for r, bounds in zip(source[lead:], region, strict=True):
        if bounds is None:
            out.append((r.min, ops.subtract(ops.add(r.min, r.extent), 1)))
        else:
            out.append((ops.add(r.min, bounds[0]), ops.add(r.min, bounds[1])))
    return out


def get_block_access_region(block: Block, buffer_var_map: Mapping[Var, Buffer]) -> Array[Array[BufferRegion]]:
    """What a block reads, what it writes, and what it uses by pointer.

    Only buffers whose pointer is in `buffer_var_map` count. A block with an init does not list what it writes among
    what it reads.
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
    """What a block reads and what it writes; what it uses by pointer counts as both."""
    detector = _Detector(buffer_var_map)
    reads, writes, opaque = get_block_access_region(block, buffer_var_map)
    both = []
    for regions in (reads, writes):
        merged = _Accesses()
        for region in (*regions, *opaque):
            merged.add(region.buffer, [detector.range_bounds(r, {}) for r in region.region])
        both.append(merged.regions({}))
    return Array(both)
