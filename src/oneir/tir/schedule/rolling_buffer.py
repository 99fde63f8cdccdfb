"""Rolling buffers: circular buffers that hold only the elements in use, where neighbouring tiles overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...arith.int_set import is_infinite
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import FloorDiv, IntImm, Mul, PrimExpr, Range, Var, const
from ..analysis import get_block_read_write_region
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For
from ..stmt_functor import substitute
from .base import ScheduleBase
from .blockize import lowest_common
from .buffers import buffer_index, nth_region
from .compute_at import relaxed
from .conditions import as_block, scope_root_of
from .domain import loop_domains, loops_above
from .edit import BlockEdit
from .error import PrimitiveError
from .inline import check_not_output
from .instruction import InstructionKind
from .lookup import consumers_of
from .random_variable import BlockRV
from .state import ScheduleState


@dataclass
class Roll:
    """The axis along which a buffer is circular, and over how many elements; for each axis the loop that moves the
    tile, and by how many elements neighbouring tiles overlap.
    """

    axis: int
    extent: PrimExpr
    loops: list[Var | None]
    overlaps: list[int]


def rolling_buffer(state: ScheduleState, sref: StmtSRef, write_buffer_index: int) -> None:
    block = as_block(state, sref)
    region = nth_region(state, block, write_buffer_index, write=True)
    scope = scope_root_of(state, sref)
    check_not_output(state, sref, scope)
    consumers = consumers_of(state, sref)
    place = lowest_common([*consumers, sref])
    if not isinstance(place.stmt, For):
        raise PrimitiveError(
            state.mod,
            "rolling_buffer injection is invalid. The block {0} should be tiled so that the lca of the access location "
            f"of the target buffer {region.buffer.name} is a for loop. ",
            block,
        )
    variables = [v.var for v in block.iter_vars[: len(region.region)]]
    if not all(r.min is var and is_number(r.extent, 1) for r, var in zip(region.region, variables, strict=False)):
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} is expected to write one element of the buffer {region.buffer.name}, at its variables",
            block,
        )
    tile = _tile(state, sref, region, place)
    roll = _match(state, sref, region.buffer, tile)
    buffer = region.buffer
    shape = [roll.extent if i == roll.axis else dim for i, dim in enumerate(buffer.shape)]
    edit = _Rolling(buffer, buffer.replace(shape=Array(shape)), roll, block)
    old: Block = scope.stmt
    changed = edit(old.body)
    new = old.replace(body=changed, alloc_buffers=Array(edit.new if b is buffer else b for b in old.alloc_buffers))
    state.replace(scope, new, {**edit.reuse, old: new})
    for consumer in consumers:
        # It reads what earlier iterations left.
        state.block_info[consumer].region_cover = False


def _tile(state: ScheduleState, sref: StmtSRef, region: BufferRegion, place: StmtSRef) -> list[Range]:
    """The region that a block writes in one iteration of a loop."""
    analyzer = Analyzer()
    ranges: list[Range] = []
    parts = relaxed(state.realize_of(sref), region, loop_domains(sref.parent, place))
    for values, dim in zip(parts, region.buffer.shape, strict=True):
        low, high = values.min_value, values.max_value
        known = not (is_infinite(low) or is_infinite(high))
        ranges.append(Range.from_min_extent(low, analyzer.simplify(high - low + 1)) if known else Range(dim))
    return ranges


def _match(state: ScheduleState, sref: StmtSRef, buffer: Buffer, tile: Sequence[Range]) -> Roll:
    """How a tile moves with the loops around it."""
    loops: list[Var | None] = []
    overlaps: list[int] = []
    for r in tile:
        step = step_of_tile(r.min)
        overlap = 0
        if step is not None and isinstance(r.extent, IntImm):
            overlap = r.extent.value - step[1]
        # Where tiles do not overlap, compacting the buffer is enough.
        loops.append(step[0] if step is not None and overlap > 0 else None)
        overlaps.append(overlap)
    for loop in list(loops_above(sref.parent))[::-1]:
        if loop.stmt.loop_var in loops:
            axis = loops.index(loop.stmt.loop_var)
            return Roll(axis, tile[axis].extent, loops, overlaps)
    raise PrimitiveError(
        state.mod,
        f"The target buffer {buffer.name} with region {list(tile)} should have at least one dimension range that "
        "matches a rolling pattern such as hh.outer * stride + hh.inner. ",
        sref.stmt,
    )


def step_of_tile(low: Any) -> tuple[Var, int] | None:
    """The loop by which the start of a tile moves, and how far in one iteration."""
    divisor = 1
    if isinstance(low, FloorDiv) and isinstance(low.b, IntImm):
        low, divisor = low.a, low.b.value
    if isinstance(low, Var):
        return low, -(-1 // divisor)
    if isinstance(low, Mul) and isinstance(low.a, Var) and isinstance(low.b, IntImm):
        return low.a, -(-low.b.value // divisor)
    return None


class _Rolling(BlockEdit):
    """Makes accesses to the buffer circular, and the producer skip elements that the last tile computed."""

    def __init__(self, old: Buffer, new: Buffer, roll: Roll, producer: Block):
        super().__init__()
        self.old, self.new, self.roll, self.producer = old, new, roll, producer

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        return self._access(self.generic_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        return self._access(self.generic_visit(store))

    def _access(self, node: Any) -> Any:
        if node.buffer is not self.old:
            return node
        indices = list(node.indices)
        indices[self.roll.axis] = ops.floormod(indices[self.roll.axis], self.roll.extent)
        return node.replace(buffer=self.new, indices=Array(indices))

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return region

    def visit_Block(self, block: Block) -> Any:
        regions = (*block.reads, *block.writes)
        if all(r.buffer is not self.old for r in regions):
            return block
        new = self.generic_visit(block)
        reads, writes = get_block_read_write_region(new, {self.new.data: self.new})
        # Each iteration along the axis depends on those before it.
        iter_vars = [
            v.replace(iter_type=IterVar.DimInfo) if i == self.roll.axis else v for i, v in enumerate(block.iter_vars)
        ]
        new = new.replace(
            iter_vars=Array(iter_vars),
            reads=self._regions(block.reads, reads),
            writes=self._regions(block.writes, writes),
        )
        return self.changed(block, new)

    def _regions(self, olds: Sequence[BufferRegion], found: Sequence[BufferRegion]) -> Array[BufferRegion]:
        return Array(found[0] if r.buffer is self.old else r for r in olds)

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        new = realize.replace(block=self.visit(realize.block))
        if realize.block is not self.producer:
            return new
        condition = realize.predicate
        for value, loop, overlap in zip(realize.iter_values, self.roll.loops, self.roll.overlaps, strict=False):
            if loop is not None and overlap > 0:
                fresh = ops.greater_equal(substitute(value, {loop: const(0, loop.dtype)}), overlap)
                condition = ops.logical_and(condition, ops.logical_or(ops.less(loop, 1), fresh))
        return new.replace(predicate=Analyzer().simplify(condition))


ROLLING_BUFFER = InstructionKind("RollingBuffer", "rolling_buffer", rolling_buffer, ("block",), ("write_buffer_index",))


class RollingBuffer(ScheduleBase):
    """The part of a schedule that makes buffers roll."""

    def rolling_buffer(self, block: BlockRV | str, write_buffer_index: int | str | Buffer) -> None:
        """Makes a buffer circular, with room for one tile, and computes only those elements of a tile that the last one
        lacked.

            for i in range(4):
                for ax0 in range(6):
                    with T.block("P"):  # P[vi] = ..., with vi = i * 4 + ax0
                for j, k in T.grid(4, 3):
                    with T.block("C"):  # reads P[vi + vk]

        becomes

            for i in range(4):
                for ax0 in range(6):
                    with T.block("P"):  # P[vi % 6] = ..., where i < 1 or ax0 >= 2
                for j, k in T.grid(4, 3):
                    with T.block("C"):  # reads P[(vi + vk) % 6]

        The block must not be an output, and stand with its consumers in one loop, whose tiles overlap. Raises
        `ScheduleError` otherwise.
        """
        handle = self._block(block)
        index = buffer_index(self.get(handle), write_buffer_index, write=True)
        self.apply(ROLLING_BUFFER, [handle], [index])
