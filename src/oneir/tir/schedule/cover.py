"""Region cover: whether the blocks that a block depends on have written all that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...arith import (
    Analyzer,
    IntervalSet,
    IntSet,
    estimate_region_lower_bound,
    estimate_region_upper_bound,
    union_lower_bound,
)
from ...arith.int_set import is_infinite
from ...arith.iter_map import is_number
from ...ir.expr import Range, Var
from ...ir.operators import less_equal, same_expr
from ..block_scope import DepKind, StmtSRef
from ..buffer import Buffer
from ..stmt import Block, BlockRealize, BufferRegion
from ..stmt_functor import substitute
from .domain import is_trivial, loop_domains

if TYPE_CHECKING:
    from .state import ScheduleState


def covers_its_reads(state: ScheduleState, scope_root: StmtSRef, consumer: StmtSRef) -> bool:
    """Whether the producers of a block below `scope_root` write all that it reads.

    Producers are compared at the lowest statement around both: what they write during one iteration of it must hold
    what the consumer reads during that iteration.
    """
    producers: dict[StmtSRef, list[StmtSRef]] = {}
    path = [consumer]
    while path[-1] is not scope_root:
        path.append(path[-1].parent)
    enclosing = set(path)
    for dependency in state.get_block_scope(scope_root).get_deps_by_dst(consumer):
        if dependency.kind in (DepKind.RAW, DepKind.WAW):
            place = dependency.src
            while place not in enclosing:
                place = place.parent
            producers.setdefault(place, []).append(dependency.src)
    return all(_covered_at(state, place, list(dict.fromkeys(srefs)), consumer) for place, srefs in producers.items())


def _covered_at(state: ScheduleState, place: StmtSRef, producers: list[StmtSRef], consumer: StmtSRef) -> bool:
    consumer_realize = state.realize_of(consumer)
    for read in consumer.stmt.reads:
        written: list[Sequence[IntSet]] = []
        whole = False
        for producer in producers:
            realize = state.realize_of(producer)
            for write in producer.stmt.writes:
                if write.buffer is read.buffer:
                    whole = whole or _writes_all(realize, write, loop_domains(producer.parent, place))
                    if not whole:
                        written.append(written_region(realize, write, producer, place))
        if whole or not written:
            continue
        if not covers(read.buffer, written, consumed_region(consumer_realize, read, consumer, place)):
            return False
    return True


def _writes_all(realize: BlockRealize, region: BufferRegion, domains: dict[Var, Range]) -> bool:
    """Whether a block with one loop for each of its variables writes its whole buffer: a check without an analyzer."""
    block = realize.block
    if not is_trivial(realize, domains):
        return False
    values: dict[Any, Any] = {v.var: value for v, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    for r, dim in zip(region.region, region.buffer.shape, strict=True):
        if isinstance(r.min, Var) and is_number(r.extent, 1) and r.min in values:
            domain = domains.get(values[r.min])
            if domain is None or not is_number(domain.min, 0) or not same_expr(domain.extent, dim):
                return False
        elif not (is_number(r.min, 0) and same_expr(r.extent, dim)):
            return False
    return True


def unbound_region(realize: BlockRealize, region: BufferRegion) -> list[Range]:
    """A region in terms of a block's variables as one in terms of the loops around it."""
    block: Block = realize.block
    values = {v.var: value for v, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    return [Range.from_min_extent(substitute(r.min, values), substitute(r.extent, values)) for r in region.region]


def written_region(realize: BlockRealize, region: BufferRegion, sref: StmtSRef, place: StmtSRef) -> Sequence[IntSet]:
    """A region that is certainly written in one iteration of an outer statement `place`; empty if not known."""
    domains = loop_domains(sref.parent, place, region.buffer.scope())
    return estimate_region_lower_bound(unbound_region(realize, region), domains, realize.predicate) or ()


def consumed_region(realize: BlockRealize, region: BufferRegion, sref: StmtSRef, place: StmtSRef) -> Sequence[IntSet]:
    """A region that holds all that may be accessed in one iteration of an outer statement `place`."""
    domains = loop_domains(sref.parent, place, region.buffer.scope())
    return estimate_region_upper_bound(unbound_region(realize, region), domains, realize.predicate)


def covers(buffer: Buffer, written: Sequence[Sequence[IntSet]], consumed: Sequence[IntSet]) -> bool:
    """Whether the regions written contain the region consumed."""
    analyzer = Analyzer()
    if any(not region for region in written):
        return False
    for axis, (dim, wanted) in enumerate(zip(buffer.shape, consumed, strict=True)):
        found = union_lower_bound([region[axis] for region in written])
        if not isinstance(found, IntervalSet) or found.is_nothing() or not isinstance(wanted, IntervalSet):
            return False
        low, high = wanted.min_value, wanted.max_value
        first, last = found.min_value, found.max_value
        # Only the part inside of the buffer must be written.
        from_start = any(not is_infinite(end) and analyzer.can_prove(less_equal(first, end)) for end in (low, dim * 0))
        to_end = any(not is_infinite(end) and analyzer.can_prove(less_equal(end, last)) for end in (high, dim - 1))
        if not from_start or not to_end:
            return False
    return True
