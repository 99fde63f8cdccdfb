"""CompactBufferAllocation: memory that a block allocates shrinks to the part of it that is used.

for i in range(8):                            for i in range(8):
    with T.block(""):                             with T.block(""):
        B = T.alloc_buffer((8, 8))       ->           B = T.alloc_buffer((1, 8))
        for j in range(8): B[i, j] = ...              for j in range(8): B[0, j] = ...

The part is found for each dimension: the interval of its indices while the variables that are defined inside of the
block run over their ranges. An extent that depends on loops around the block becomes its largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer, IntervalSet
from ...arith.constraint import conjuncts, reads_memory
from ...arith.int_set import EVERYTHING, is_infinite, union
from ...arith.interval_set import IntSetEvaluator
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Call, IntImm, Let, PrimExpr, Range, Select, Var, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..analysis.variables import variables
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..schedule.domain import shares_memory
from ..stmt import (
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    MatchBufferRegion,
)
from .analyzed import reads
from .pass_base import PrimFuncPass

DIM_ALIGN = "buffer_dim_align"
"""The annotation of a block with [write, axis, factor, offset]: a stride of the axis that is `offset` above a multiple
of `factor`."""


class CompactBufferAllocation(PrimFuncPass):
    """Shrinks allocated buffers to what is accessed; with `is_strict`, none grows where accesses leave its shape."""

    is_strict: bool = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        uses = _Uses(self.is_strict)
        uses(func.body)
        buffers: dict[Buffer, Buffer] = {}
        begins: dict[Buffer, list[PrimExpr]] = {}
        for buffer, use in uses.uses.items():
            compacted = uses.compact(use)
            new = buffer
            if compacted is not None:
                shape, begins[buffer] = compacted
                new = buffer.replace(shape=shape)
            if buffer in uses.aligned and not use.whole:
                new = new.replace(strides=aligned_strides(new.shape, uses.aligned[buffer]))
            if new is not buffer:
                buffers[buffer] = new
        if not buffers:
            return func
        return func.with_body(_Compact(buffers, begins, uses.analyzer)(func.body))


@dataclass(eq=False)
class _Use:
    """The accesses to one allocated buffer."""

    buffer: Buffer
    depth: int
    """How many variables are defined outside of the allocating block."""
    region: list[IntervalSet] | None = None
    whole: bool = False
    """Whether the buffer must stay as it is."""


class _Uses(Visitor):
    """Collects, for each allocated buffer, the indices with which it is accessed."""

    def __init__(self, strict: bool) -> None:
        super().__init__()
        self.strict = strict
        self.analyzer = Analyzer()
        self.uses: dict[Buffer, _Use] = {}
        self.pointers: dict[Var, _Use] = {}
        self.defined: list[tuple[Var, IntervalSet]] = []
        self.conditions: list[PrimExpr] = []
        self.aligned: dict[Buffer, list[Sequence[int]]] = {}
        self.threads: dict[Var, str] = {}
        self.evaluators: dict[tuple[int, str], IntSetEvaluator] = {}
        """By where buffers are allocated, and their scope."""

    # -- ranges and conditions --

    def under(self, condition: PrimExpr, node: Any) -> None:
        count = len(self.conditions)
        self.conditions.extend(conjuncts(condition))
        self.within(node)
        del self.conditions[count:]

    def define(self, var: Var, values: IntervalSet, body: Any) -> None:
        self.defined.append((var, values))
        self.within(body)
        self.defined.pop()

    def within(self, node: Any) -> None:
        """Visits what stands where other variables or conditions are known than around it."""
        around, self.evaluators = self.evaluators, {}
        self.visit(node)
        self.evaluators = around

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        if loop.thread_binding is not None:
            self.threads[loop.loop_var] = loop.thread_binding.thread_tag
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), allow_override=True)
        self.define(loop.loop_var, IntervalSet(loop.min, loop.min + loop.extent - 1), loop.body)

    def visit_LetStmt(self, node: LetStmt | Let) -> None:
        self.visit(node.value)
        self.define(node.var, IntervalSet(node.value, node.value) if node.var.dtype.is_int else EVERYTHING, node.body)

    visit_Let = visit_LetStmt

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.visit(node.condition)
        self.under(node.condition, node.then_case)
        if node.else_case is not None:
            self.under(ops.logical_not(node.condition), node.else_case)

    def visit_Select(self, node: Select) -> None:
        # Both values of a Select are evaluated, whatever the condition is.
        self.visit(node.condition)
        self.visit(node.true_value)
        self.visit(node.false_value)

    def visit_Call(self, node: Call) -> None:
        if isinstance(node.op, Op) and node.op.name == "tir.if_then_else":
            condition, then, otherwise = node.args
            self.visit(condition)
            self.under(condition, then)
            self.under(ops.logical_not(condition), otherwise)
            return
        self.generic_visit(node)

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        self.visit(realize.predicate)
        self.under(realize.predicate, realize.block)

    def visit_Block(self, block: Block) -> None:
        for buffer in block.alloc_buffers:
            use = _Use(buffer, len(self.defined))
            use.whole = bool(buffer.strides) or not (
                isinstance(buffer.elem_offset, IntImm) and buffer.elem_offset.value == 0
            )
            self.uses[buffer] = self.pointers[buffer.data] = use
        for index, axis, factor, offset in block.annotations.get(DIM_ALIGN, ()):
            if int(index) < len(block.writes):  # a store that nobody needed is gone
                buffer = block.writes[int(index)].buffer
                self.aligned.setdefault(buffer, []).append((int(axis), int(factor), int(offset)))
        for match in block.match_buffers:
            self.visit(match)
        self.visit(block.body)

    # -- accesses --

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> None:
        """A view of a region uses the region. A view whose strides are numbers pins those of its source."""
        use = self.uses.get(match.source.buffer)
        if use is not None and any(not isinstance(s, Var) for s in match.buffer.strides[:-1]):
            use.whole = True
        self.visit(match.source)

    def visit_BufferRegion(self, region: BufferRegion) -> None:
        self.access(region.buffer, [(r.min, r.min + (r.extent - 1)) for r in region.region])

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        for index in load.indices:
            self.visit(index)
        if load.predicate is not None:
            self.visit(load.predicate)
        self.access(load.buffer, [(i, i) for i in load.indices])

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit(store.value)
        for index in store.indices:
            self.visit(index)
        if store.predicate is not None:
            self.visit(store.predicate)
        self.access(store.buffer, [(i, i) for i in store.indices])

    def visit_Buffer(self, buffer: Buffer) -> None:
        """The buffer of an access; its pointer is no use of the pointer."""

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.visit(node.buffer.data)
        self.visit(node.body)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        self.visit(node.value)
        self.visit(node.body)

    def visit_Var(self, var: Var) -> None:
        """A pointer outside of an access: the memory may be accessed anywhere."""
        use = self.pointers.get(var)
        if use is not None:
            use.whole = True

    def access(self, buffer: Buffer, indices: list[tuple[PrimExpr, PrimExpr]]) -> None:
        use = self.uses.get(buffer)
        if use is None:
            other = self.pointers.get(buffer.data)
            if other is not None:
                other.whole = True
            return
        if use.whole:
            return
        evaluated = self._evaluator(use)
        region = [self._interval(first, last, evaluated) for first, last in indices]
        if use.region is not None:
            region = [union([a, b], self.analyzer) for a, b in zip(use.region, region, strict=True)]
        use.region = region

    def _evaluator(self, use: _Use) -> IntSetEvaluator:
        """What gives the intervals of indices here, the same one for all buffers that are allocated at one place."""
        scope = use.buffer.scope()
        found = self.evaluators.get((use.depth, scope))
        if found is None:
            domains: dict[Var, Any] = dict(self.defined[use.depth :])
            if scope != "global":
                # Enclosing threads that share the memory all use it.
                outer_threads = [(var, values) for var, values in self.defined[: use.depth] if var in self.threads]
                domains.update(entry for entry in outer_threads if shares_memory(scope, self.threads[entry[0]]))
            limited = {var: self._limited(var, values) for var, values in domains.items()}
            found = self.evaluators[use.depth, scope] = IntSetEvaluator(self.analyzer, limited)
        return found

    def _interval(self, first: PrimExpr, last: PrimExpr, evaluated: IntSetEvaluator) -> IntervalSet:
        low = evaluated(first)
        if last is first:
            return self._limited(first, low)
        return IntervalSet(low.min_value, evaluated(last).max_value)

    def _limited(self, expr: PrimExpr, values: IntervalSet) -> IntervalSet:
        """The values of an expression, limited by the enclosing conditions that compare it to constants."""
        if isinstance(expr, IntImm):
            return values
        for condition in self.conditions:
            limits = _limits_of(expr, condition)
            if limits is None or reads(expr):
                continue
            low, high = _narrowed(values.min_value, limits[0], max), _narrowed(values.max_value, limits[1], min)
            # A branch that never runs needs no memory, but an access to one element does no harm.
            if not (isinstance(low, IntImm) and isinstance(high, IntImm) and low.value > high.value):
                values = IntervalSet(low, high)
        return values

    # -- the new shapes --

    def compact(self, use: _Use) -> tuple[Array[PrimExpr], list[PrimExpr]] | None:
        """The new shape, and what is subtracted from each index; None when the buffer stays."""
        if use.whole or use.region is None:
            return None
        shape: list[PrimExpr] = []
        begins: list[PrimExpr] = []
        for interval, dim in zip(use.region, use.buffer.shape, strict=True):
            ends = (interval.min_value, interval.max_value)
            # A value read from memory may differ at the next access.
            known = not any(is_infinite(end) or reads_memory(end) for end in ends)
            extent = self._extent(interval, dim) if known else None
            shape.append(dim if extent is None else extent)
            begins.append(const(0, dim.dtype) if extent is None else interval.min_value)
        if all(new is old for new, old in zip(shape, use.buffer.shape, strict=True)):
            return None
        return Array(shape), begins

    def _extent(self, interval: IntervalSet, dim: PrimExpr) -> PrimExpr | None:
        """How many elements of a dimension are used; None for all of them."""
        analyzer = self.analyzer
        if reads(interval.min_value) or reads(interval.max_value):
            return None
        extent: Any = analyzer.simplify(interval.max_value - interval.min_value + 1)
        if not isinstance(extent, IntImm):
            bound = analyzer.const_int_bound(extent).max_value
            if self._varies(extent):
                if not isinstance(dim, IntImm) or bound >= dim.value:
                    return None
                extent = const(int(bound), dim.dtype)
            elif isinstance(dim, IntImm) and not analyzer.can_prove(extent < dim):
                return None
        extent = ops.cast(dim.dtype, extent)
        if isinstance(extent, IntImm) and extent.value <= 0:
            extent = const(1, dim.dtype)
        if self.strict and isinstance(extent, IntImm) and isinstance(dim, IntImm):
            return extent if extent.value < dim.value else None
        return None if analyzer.can_prove_equal(extent, dim) else extent

    def _varies(self, extent: PrimExpr) -> bool:
        """Whether an extent depends on a loop or on a value computed in the function."""
        return any(var in self.analyzer.sets for var in variables(extent))


def _limits_of(expr: PrimExpr, condition: PrimExpr) -> tuple[int | None, int | None] | None:
    """The smallest and the largest value of `expr` for which a comparison of it with a constant holds."""
    a, b = getattr(condition, "a", None), getattr(condition, "b", None)
    kind = type(condition).__name__
    if isinstance(a, IntImm) and kind in _MIRRORED:
        a, b, kind = b, a, _MIRRORED[kind]
    if kind not in _MIRRORED or not isinstance(b, IntImm) or not isinstance(a, PrimExpr) or not ops.same_expr(a, expr):
        return None
    low = b.value + (kind == "GT") if kind in ("GT", "GE", "EQ") else None
    high = b.value - (kind == "LT") if kind in ("LT", "LE", "EQ") else None
    return low, high


def _narrowed(bound: PrimExpr, limit: int | None, inner: Callable[[int, int], int]) -> PrimExpr:
    """One end of an interval, moved to a constant limit where that lies further inside."""
    if limit is None or not (isinstance(bound, IntImm) or is_infinite(bound)):
        return bound
    return const(inner(bound.value, limit), bound.dtype) if isinstance(bound, IntImm) else const(limit)


_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ"}
"""Each comparison, and the one that it is with its sides exchanged."""


class _Compact(Mapper):
    """Replaces buffers by smaller ones, and shifts indices."""

    def __init__(self, buffers: dict[Buffer, Buffer], begins: dict[Buffer, list[PrimExpr]], analyzer: Analyzer):
        super().__init__()
        self.buffers, self.begins, self.analyzer = buffers, begins, analyzer

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def moved(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> Array[PrimExpr]:
        begins = self.begins.get(buffer)
        if begins is None:
            return Array(indices)
        return Array(
            i if isinstance(b, IntImm) and b.value == 0 else self.analyzer.simplify(i - ops.cast(i.dtype.element, b))
            for i, b in zip(indices, begins, strict=True)
        )

    def visit_For(self, loop: For) -> For:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), allow_override=True)
        return self.generic_visit(loop)

    def visit_BufferLoad(self, load: BufferLoad) -> BufferLoad:
        new = self.generic_visit(load)
        return new.replace(indices=self.moved(load.buffer, new.indices)) if load.buffer in self.begins else new

    def visit_BufferStore(self, store: BufferStore) -> BufferStore:
        new = self.generic_visit(store)
        return new.replace(indices=self.moved(store.buffer, new.indices)) if store.buffer in self.begins else new

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        new = self.generic_visit(region)
        if region.buffer not in self.begins:
            return new
        begins = self.moved(region.buffer, [r.min for r in new.region])
        return new.replace(
            region=Array(Range.from_min_extent(b, r.extent) for b, r in zip(begins, new.region, strict=True))
        )

    def visit_Block(self, block: Block) -> Block:
        block = self.generic_visit(block)
        if DIM_ALIGN in block.annotations:
            kept = {key: value for key, value in block.annotations.items() if key != DIM_ALIGN}
            block = block.replace(annotations=kept)
        return block


def aligned_strides(shape: Array[PrimExpr], alignments: list[Sequence[int]]) -> Array[PrimExpr]:
    """Row-major strides in which those of some axes are `offset` above a multiple of `factor`."""
    by_axis = {axis: (factor, offset) for axis, factor, offset in alignments}
    strides: list[Any] = []
    stride: Any = const(1, shape[-1].dtype)
    for axis in reversed(range(len(shape))):
        if axis in by_axis:
            factor, offset = by_axis[axis]
            stride = stride + ops.floormod(factor + offset - ops.floormod(stride, factor), factor)
        strides.insert(0, stride)
        stride = stride * shape[axis]
    return Array(strides)
