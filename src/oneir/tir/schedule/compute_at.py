"""Moving a block into a loop of its consumers, or of its producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer, IntervalSet, IterMapLevel, detect_iter_map, inverse_affine_iter_map
from ...arith.constraint import conjuncts
from ...arith.int_set import NOTHING, is_infinite, union
from ...arith.iter_map import is_number
from ...arith.region import intersect_region
from ...arith.sizes import assume_positive
from ...ir import operators as ops
from ...ir.expr import FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Range, Var, const
from ..analysis.variables import variables
from ..block_scope import INLINE, ROOT, StmtSRef
from ..buffer import Buffer
from ..stmt import Block, BlockRealize, BufferRegion, For, ForKind, SeqStmt, Stmt
from ..stmt_functor import substitute
from .base import ScheduleBase
from .conditions import (
    as_block,
    as_loop,
    check_self_contained,
    check_subtree_compact_dataflow,
    is_higher,
    scope_root_of,
)
from .cover import unbound_region
from .domain import domain_of, is_affine_binding, loop_domains, loops_above, own_domains, uses
from .edit import ScopeEdit, removable
from .error import PrimitiveError
from .inline import check_not_output, compute_inline, reverse_compute_inline
from .instruction import InstructionKind
from .lookup import consumers_of, producers_of
from .random_variable import BlockRV, LoopRV
from .state import ScheduleState, children


def compute_at(state: ScheduleState, block: StmtSRef, loop: StmtSRef, preserve_unit_loops: bool, index: int) -> None:
    if loop is INLINE:
        compute_inline(state, block)
    elif loop is not ROOT:
        move(state, block, loop, preserve_unit_loops, index, to_consumers=True)


def reverse_compute_at(
    state: ScheduleState, block: StmtSRef, loop: StmtSRef, preserve_unit_loops: bool, index: int
) -> None:
    if loop is INLINE:
        reverse_compute_inline(state, block)
    elif loop is not ROOT:
        move(state, block, loop, preserve_unit_loops, index, to_consumers=False)


def can_compute_at(state: ScheduleState, block: StmtSRef, loop: StmtSRef, preserve_unit_loops: bool) -> bool:
    """Whether a block can be moved into a loop of its consumers."""
    try:
        _plan(state, block, loop, preserve_unit_loops, -1, True)
    except PrimitiveError:
        return False
    return True


def move(
    state: ScheduleState,
    block: StmtSRef,
    loop: StmtSRef,
    preserve_unit_loops: bool,
    index: int,
    to_consumers: bool,
) -> None:
    """Moves a block into a loop, under new loops over what the other blocks need in one iteration."""
    scope, new = _plan(state, block, loop, preserve_unit_loops, index, to_consumers)
    old = scope.stmt
    state.replace(scope, new, {old: new})
    state.block_info[block].affine_binding = is_affine_binding(state, block)


def _plan(
    state: ScheduleState,
    sref: StmtSRef,
    loop_sref: StmtSRef,
    preserve_unit_loops: bool,
    index: int,
    to_consumers: bool,
) -> tuple[StmtSRef, Block]:
    """The scope block, and its replacement after the move."""
    block, loop = as_block(state, sref), as_loop(state, loop_sref)
    check_self_contained(state, sref)
    scope = scope_root_of(state, sref, stage_pipeline=True)
    check_same_scope(state, sref, loop_sref, scope)
    if state.enable_check:
        check_subtree_compact_dataflow(state, top_of(sref, scope), scope)
    if to_consumers:
        check_not_output(state, sref, scope)
    producers, consumers = producers_of(state, sref), consumers_of(state, sref)
    subtrees = list(loop.body.seq) if isinstance(loop.body, SeqStmt) else [loop.body]
    position = insertion_point(state, sref, subtrees, producers, consumers, index, to_consumers)
    analyzer = Analyzer()
    for outer in loops_above(loop_sref):
        assume_positive(outer.stmt.extent, analyzer)  # where the block runs, its loops have iterations
        analyzer.bind(outer.stmt.loop_var, Range.from_min_extent(outer.stmt.min, outer.stmt.extent))
    required = _required(state, block, loop_sref, consumers if to_consumers else producers, to_consumers)
    domains = block_domains(
        state, block, block.writes if to_consumers else block.reads, required, analyzer, to_consumers
    )
    if not to_consumers:
        _check_all_iterations(state, block, [wanted for wanted, _ in domains], loop_domains(loop_sref))
    nest = make_nest(state.realize_of(sref), domains, analyzer, preserve_unit_loops)
    _check_lanes(state, block, loop_sref, nest)
    new = ScopeEdit({removable(state, sref): None}, {loop: (position, nest)})(scope.stmt)
    return scope, new


def _check_all_iterations(
    state: ScheduleState, block: Block, domains: Sequence[IntervalSet], loops: dict[Var, Range]
) -> None:
    """Raises `PrimitiveError` for a consumer with iterations that read nothing of the producers, as those that write
    padding.
    """
    analyzer = Analyzer()
    for v, domain in zip(block.iter_vars, domains, strict=True):
        whole = domain_of(v)
        first: Any = analyzer.int_set(domain.min_value, loops)
        last: Any = analyzer.int_set(domain.max_value, loops)
        low, high = first.min_value, last.max_value
        if (not is_infinite(low) and analyzer.can_prove(ops.greater(low, whole.min))) or (
            not is_infinite(high) and analyzer.can_prove(ops.less(high, whole.min + whole.extent - 1))
        ):
            raise PrimitiveError(
                state.mod,
                f"The loops do not reach all iterations of the block {{0}}: of {v.var.name} in {whole}, they reach "
                f"{low} to {high}",
                block,
            )


def _check_lanes(state: ScheduleState, block: Block, place: StmtSRef, nest: Any) -> None:
    """Raises `PrimitiveError` if all lanes of a vectorized loop would run the same iteration of the block, on the same
    memory.
    """
    while isinstance(nest, For):
        nest = nest.body
    used = variables(*nest.iter_values)
    for loop in loops_above(place):
        if loop.stmt.kind == ForKind.VECTORIZED and loop.stmt.loop_var not in used:
            raise PrimitiveError(
                state.mod, "The block {0} would do the same in each lane of the vectorized loop {1}", block, loop.stmt
            )


def top_of(sref: StmtSRef, scope: StmtSRef) -> StmtSRef:
    """The statement directly below a block that a statement stands in."""
    while sref.parent is not scope:
        sref = sref.parent
    return sref


def check_same_scope(state: ScheduleState, block: StmtSRef, loop: StmtSRef, scope: StmtSRef) -> None:
    """Raises `PrimitiveError` for a loop of another scope, or one around the block."""
    if loop.parent is None or state.scope_of(loop) is not scope or is_higher(loop, block):
        raise PrimitiveError(
            state.mod,
            "Expected the block {0} and loop {1} to be under the same block scope, and loop not to be the ancestor of "
            "block",
            block.stmt,
            loop.stmt,
        )


def insertion_point(
    state: ScheduleState,
    block: StmtSRef,
    subtrees: Sequence[Stmt],
    producers: Sequence[StmtSRef],
    consumers: Sequence[StmtSRef],
    index: int,
    to_consumers: bool,
) -> int:
    """The position of a block among the statements of a loop: after its producers, before its consumers.

    As `index`, -1 is the last such position, -2 the first, and another number that position.
    """
    last_producer, first_consumer = -1, len(subtrees)
    seen: set[StmtSRef] = set()
    for i, stmt in enumerate(subtrees):
        found = set(_blocks_in(state, stmt))
        seen |= found
        if not found.isdisjoint(producers):
            last_producer = i
        if first_consumer == len(subtrees) and not found.isdisjoint(consumers):
            first_consumer = i
    required = consumers if to_consumers else producers
    missing = [sref for sref in required if sref not in seen]
    if missing:
        kind = "consumer" if to_consumers else "producer"
        names = ", ".join(f"{{{i}}}" for i in range(len(missing)))
        raise PrimitiveError(
            state.mod,
            f"The primitive requires all the {kind}(s) of the given block to be present under the target loop. "
            f"However, there are {len(missing)} {kind}(s) not satisfying the constraint. "
            f"List of the {kind}(s): {names}",
            *[sref.stmt for sref in missing],
        )
    check_order(state, block, list(seen), producers, consumers)
    if last_producer >= first_consumer:
        raise PrimitiveError(
            state.mod,
            "Cannot find the insertion point that satisfies the producer-consumer constraint of block {0}: a producer "
            f"stands at position {last_producer} of the loop, a consumer at position {first_consumer}",
            block.stmt,
        )
    position = first_consumer if index == -1 else last_producer + 1 if index == -2 else index
    if not last_producer < position <= first_consumer:
        raise PrimitiveError(
            state.mod,
            f"The block {{0}} cannot be inserted at position {index}: the valid positions are "
            f"{last_producer + 1} to {first_consumer}",
            block.stmt,
        )
    return position


def check_order(
    state: ScheduleState,
    block: StmtSRef,
    inside: Sequence[StmtSRef],
    producers: Sequence[StmtSRef],
    consumers: Sequence[StmtSRef],
) -> None:
    """Raises `PrimitiveError` for a loop that comes before a producer or after a consumer."""
    order = {sref: i for i, sref in enumerate(state.child_blocks(scope_root_of(state, block)))}
    places = [order[sref] for sref in inside]
    late = [p for p in producers if p not in inside and order[p] > min(places)]
    early = [c for c in consumers if c not in inside and order[c] < max(places)]
    if late or early:
        kind, other = ("producer", late[0]) if late else ("consumer", early[0])
        where = "after" if late else "before"
        raise PrimitiveError(
            state.mod, f"The {kind} {{0}} of the block {{1}} stands {where} the target loop", other.stmt, block.stmt
        )


def _blocks_in(state: ScheduleState, stmt: Stmt) -> list[StmtSRef]:
    found: list[StmtSRef] = []
    pending = [stmt]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Block):
            found.append(state.stmt2ref[stmt])
        else:
            pending.extend(children(stmt))  # `+=` would make it the Array that a sequence has
    return found


# -- the domains of the moved block --


def _required(
    state: ScheduleState, block: Block, loop: StmtSRef, others: Sequence[StmtSRef], to_consumers: bool
) -> dict[Buffer, list[list[IntervalSet]]]:
    """For each buffer of the block, what the other blocks access in one iteration of a loop."""
    buffers = {region.buffer for region in (block.writes if to_consumers else block.reads)}
    found: dict[Buffer, list[list[IntervalSet]]] = {}
    for other in others:
        realize = state.realize_of(other)
        for region in other.stmt.reads if to_consumers else other.stmt.writes:
            if region.buffer in buffers:
                memory = region.buffer.scope() if to_consumers else None
                domains = loop_domains(other.parent, loop, memory)
                found.setdefault(region.buffer, []).append(relaxed(realize, region, domains))
    return found


def relaxed(realize: BlockRealize, region: BufferRegion, domains: Mapping[Var, Range]) -> list[IntervalSet]:
    """The bounds of a region while loops run over `domains`."""
    analyzer = Analyzer()
    result: list[IntervalSet] = []
    for r in unbound_region(realize, region):
        low: Any = analyzer.int_set(r.min, domains)
        high: Any = low if is_number(r.extent, 1) else analyzer.int_set(r.min + r.extent - 1, domains)
        result.append(IntervalSet(low.min_value, high.max_value))
    return result


@dataclass(slots=True)
class _Domain:
    """The values that a variable must take, and the interval that it must not leave; `NOTHING` where not known."""

    wanted: IntervalSet = NOTHING
    bound: IntervalSet = NOTHING

    def add(self, wanted: IntervalSet, bound: IntervalSet, analyzer: Analyzer) -> None:
        self.wanted = union([self.wanted, wanted], analyzer)
        self.bound = union([self.bound, bound], analyzer)


def block_domains(
    state: ScheduleState,
    block: Block,
    provided: Sequence[BufferRegion],
    required: Mapping[Buffer, list[list[IntervalSet]]],
    analyzer: Analyzer,
    produces: bool,
) -> list[tuple[IntervalSet, IntervalSet]]:
    """For each variable of a block, the values that it takes to provide what is required, and bounds to check.

    A consumer "provides" its reads: `required` are then the writes of its producers. Raises `PrimitiveError` if the
    values cannot be inferred.
    """
    domains = {v.var: _Domain() for v in block.iter_vars}
    by_buffer: dict[Buffer, list[BufferRegion]] = {}
    for region in provided:
        by_buffer.setdefault(region.buffer, []).append(region)
    for buffer, regions in by_buffer.items():
        if buffer not in required:
            continue
        wanted = [union(list(axis), analyzer) for axis in zip(*required[buffer], strict=True)]
        own = [
            union([_interval(r, analyzer) for r in axis], analyzer)
            for axis in zip(*[x.region for x in regions], strict=True)
        ]
        limits = [IntervalSet(const(0, dim.dtype), dim - 1) for dim in buffer.shape]
        if not _invert_points(block, own, wanted, limits, domains, analyzer):
            for here, there, limit in zip(own, wanted, limits, strict=True):
                _invert_axis(state, block, here, there, limit, domains, analyzer)
    settled = [_settled(domains[v.var], domain_of(v), analyzer) for v in block.iter_vars]
    if not produces:
        _check_provided(state, block, by_buffer, required, settled, analyzer)
    return settled


def _check_provided(
    state: ScheduleState,
    block: Block,
    reads: Mapping[Buffer, Sequence[BufferRegion]],
    provided: Mapping[Buffer, list[list[IntervalSet]]],
    settled: Sequence[tuple[IntervalSet, IntervalSet]],
    analyzer: Analyzer,
) -> None:
    """Raises `PrimitiveError` for a consumer that reads more than its producers write in one iteration."""
    values = {v.var: domain for v, (domain, _) in zip(block.iter_vars, settled, strict=True)}
    for buffer, parts in provided.items():
        wholes = [union(list(axis), analyzer) for axis in zip(*parts, strict=True)]
        for region in reads[buffer]:
            for r, whole, dim in zip(region.region, wholes, buffer.shape, strict=True):
                low: Any = analyzer.int_set(r.min, values)
                high: Any = analyzer.int_set(r.min + r.extent - 1, values)
                after = any(_at_most(whole.min_value, end, analyzer) for end in (low.min_value, const(0, dim.dtype)))
                before = any(_at_most(end, whole.max_value, analyzer) for end in (high.max_value, dim - 1))
                if not after or not before:
                    raise PrimitiveError(
                        state.mod,
                        f"The block {{0}} reads {region}, of which one iteration of the target loop does not provide "
                        "all",
                        block,
                    )


def _at_most(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    """Whether an end of an interval, which may be unknown, is provably at most another."""
    return not is_infinite(a) and not is_infinite(b) and analyzer.can_prove(ops.less_equal(a, b))


def _interval(r: Range, analyzer: Analyzer) -> IntervalSet:
    low = r.min
    return IntervalSet(low, low if is_number(r.extent, 1) else analyzer.simplify(low + r.extent - 1))


def _invert_points(
    block: Block,
    own: Sequence[IntervalSet],
    wanted: Sequence[IntervalSet],
    limits: Sequence[IntervalSet],
    domains: dict[Var, _Domain],
    analyzer: Analyzer,
) -> bool:
    """Adds the domains of variables where an iteration accesses one element and the indices are invertible.

    Returns whether that is so.
    """
    if not all(axis.is_single_point() for axis in own):
        return False
    indices: list[Any] = [axis.min_value for axis in own]
    if all(isinstance(i, Var) and i in domains for i in indices) and len({id(i) for i in indices}) == len(indices):
        for i, there, limit in zip(indices, wanted, limits, strict=True):
            domains[i].add(there, limit, analyzer)
        return True
    ranges = own_domains(block)
    found = detect_iter_map(indices, ranges, check_level=IterMapLevel.Bijective, simplify_trivial_iterators=False)
    if not found.indices:
        return False
    places = [Var(f"p{i}", index.dtype) for i, index in enumerate(indices)]
    there = dict(zip(places, wanted, strict=True))
    most = dict(zip(places, limits, strict=True))
    for var, value in inverse_affine_iter_map(found.indices, places).items():
        sets: list[Any] = [analyzer.int_set(value, there), analyzer.int_set(value, most)]
        domains[var].add(sets[0], sets[1], analyzer)
    return True


def _invert_axis(
    state: ScheduleState,
    block: Block,
    own: IntervalSet,
    wanted: IntervalSet,
    limit: IntervalSet,
    domains: dict[Var, _Domain],
    analyzer: Analyzer,
) -> None:
    """Adds the domain of a variable v from one dimension, of which an iteration accesses v, [v * c, ...], or v // c.

    Raises `PrimitiveError` for other accesses.
    """
    low = analyzer.simplify(own.min_value)
    if uses(low, domains) is None:
        return

    def add(var: Var, f: Callable[[PrimExpr], PrimExpr], g: Callable[[PrimExpr], PrimExpr]) -> None:
        domains[var].add(_map(wanted, f, g, analyzer), _map(limit, f, g, analyzer), analyzer)

    expr: Any = low
    if isinstance(low, Mul) and expr.b in domains:
        expr = Mul(expr.b, expr.a)
    var, factor = (expr.a, expr.b) if isinstance(expr, (Mul, FloorDiv, FloorMod)) else (expr, None)
    if isinstance(var, Var) and var in domains:
        if factor is None:
            add(var, lambda end: end, lambda end: end)
            return
        if isinstance(expr, Mul):
            add(var, lambda end: ops.floordiv(end, factor), lambda end: ops.floordiv(end, factor))
            return
        if isinstance(expr, FloorDiv) and analyzer.can_prove(factor > 0):
            add(var, lambda end: end * factor, lambda end: end * factor + factor - 1)
            return
        if isinstance(expr, FloorMod):
            return
    raise PrimitiveError(
        state.mod,
        f"The block {{0}} accesses a buffer at {low}: how often its variables must run for what the others need cannot "
        "be worked out",
        block,
    )


def _map(
    values: IntervalSet,
    f: Callable[[PrimExpr], PrimExpr],
    g: Callable[[PrimExpr], PrimExpr],
    analyzer: Analyzer,
) -> IntervalSet:
    """The interval with its ends mapped."""
    low, high = values.min_value, values.max_value
    return IntervalSet(
        low if is_infinite(low) else analyzer.simplify(f(low)),
        high if is_infinite(high) else analyzer.simplify(g(high)),
    )


def _settled(domain: _Domain, declared: Range, analyzer: Analyzer) -> tuple[IntervalSet, IntervalSet]:
    """The values to run over, and the bound to check in a predicate: `NOTHING` where the values never leave it."""
    own = IntervalSet(declared.min, analyzer.simplify(declared.min + declared.extent - 1))
    bound = own if domain.bound.is_nothing() else intersect_region([[domain.bound], [own]])[0]
    if bound.is_nothing():  # of a block that never runs
        return own, NOTHING
    wanted = domain.wanted
    if wanted.is_nothing() or is_infinite(wanted.min_value) or is_infinite(wanted.max_value):
        return bound, NOTHING
    wanted = IntervalSet(analyzer.simplify(wanted.min_value), analyzer.simplify(wanted.max_value))
    both = _intersection(wanted, bound, analyzer)
    if _same(wanted, both, analyzer):
        return wanted, NOTHING
    if _same(bound, both, analyzer):
        return bound, NOTHING
    return wanted, bound


def _intersection(a: IntervalSet, b: IntervalSet, analyzer: Analyzer) -> IntervalSet:
    return IntervalSet(
        analyzer.simplify(ops.maximum(a.min_value, b.min_value)),
        analyzer.simplify(ops.minimum(a.max_value, b.max_value)),
    )


def _same(a: IntervalSet, b: IntervalSet, analyzer: Analyzer) -> bool:
    return analyzer.can_prove_equal(a.min_value, b.min_value) and analyzer.can_prove_equal(a.max_value, b.max_value)


def make_nest(
    realize: BlockRealize,
    domains: Sequence[tuple[IntervalSet, IntervalSet]],
    analyzer: Analyzer,
    preserve_unit_loops: bool,
) -> Stmt:
    """New loops over the given values around a block."""
    predicate: PrimExpr = IntImm("bool", 1)
    values: list[PrimExpr] = []
    loops: list[tuple[Var, PrimExpr]] = []
    for iter_var, (domain, bound) in zip(realize.block.iter_vars, domains, strict=True):
        low, high = ops.match_types(domain.min_value, domain.max_value)
        extent = analyzer.simplify(high - low + 1)
        value = low
        if preserve_unit_loops or not is_number(extent, 1):
            var = Var(f"ax{len(loops)}", extent.dtype)
            analyzer.bind(var, Range.from_min_extent(const(0, extent.dtype), extent))
            loops.append((var, extent))
            value = ops.add(low, var)
        values.append(ops.cast(iter_var.var.dtype, value))
        if not bound.is_nothing():
            for condition in (ops.greater_equal(value, bound.min_value), ops.less(value, ops.add(bound.max_value, 1))):
                if not analyzer.can_prove(condition):
                    predicate = ops.logical_and(predicate, condition)
    for condition in _own_conditions(realize, values):
        if not analyzer.can_prove(condition):
            predicate = ops.logical_and(predicate, condition)
    stmt: Stmt = realize.replace(iter_values=type(realize.iter_values)(values), predicate=analyzer.simplify(predicate))
    for var, extent in reversed(loops):
        stmt = For(var, const(0, var.dtype), extent, ForKind.SERIAL, stmt)
    return stmt


def _own_conditions(realize: BlockRealize, values: Sequence[PrimExpr]) -> Iterator[PrimExpr]:
    """The conditions under which a block runs, for other values of its variables.

    Conditions on sums of several loops are left out: they keep a variable in its domain, over which the new loops run.
    """
    loops = {old: new for old, new in zip(realize.iter_values, values, strict=True) if isinstance(old, Var)}
    bound = variables(*realize.iter_values) - set(loops)
    for condition in conjuncts(realize.predicate):
        used = variables(condition)
        if used & set(loops) and not used & bound:
            yield substitute(condition, loops)


COMPUTE_AT = InstructionKind("ComputeAt", "compute_at", compute_at, ("block", "loop"), ("preserve_unit_loops", "index"))
REVERSE_COMPUTE_AT = InstructionKind(
    "ReverseComputeAt", "reverse_compute_at", reverse_compute_at, ("block", "loop"), ("preserve_unit_loops", "index")
)


class ComputeAt(ScheduleBase):
    """The part of a schedule that moves blocks."""

    def compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Moves a producer into a loop around its consumers: it computes what one iteration needs.

            for i, j in T.grid(128, 128):
                with T.block("B"): ...
            for i, j in T.grid(128, 128):
                with T.block("C"): ...

        becomes, with `compute_at(B, i of C)`,

            for i in range(128):
                for ax0 in range(128):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, ax0])
                        ...
                for j in range(128):
                    with T.block("C"): ...

        `index` says where among the statements of the loop: -1 at the last place before the consumers, -2 at the first
        after the producers, or that place. Loops of one iteration are made only if `preserve_unit_loops`.

        The block and the loop must be in one scope, which is a stage pipeline with compact data flow; the loop must not
        be around the block; the block must not be an output; and all its consumers must be inside of the loop. Raises
        `ScheduleError` otherwise.
        """
        self.apply(COMPUTE_AT, [self._block(block), loop], [preserve_unit_loops, index])

    def reverse_compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Moves a consumer into a loop around its producers: it consumes what one iteration provides.

            for i, j in T.grid(128, 128):
                with T.block("B"): ...
            for i, j in T.grid(128, 128):
                with T.block("C"): ...

        becomes, with `reverse_compute_at(C, i of B)`,

            for i in range(128):
                for j in range(128):
                    with T.block("B"): ...
                for ax0 in range(128):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, ax0])
                        ...

        The parameters and conditions are those of `compute_at` with producers for consumers, but the block may be an
        output. One iteration of the loop must provide all that the block reads in it, and all iterations together
        must cover all iterations of the block. Raises `ScheduleError` otherwise.
        """
        self.apply(REVERSE_COMPUTE_AT, [self._block(block), loop], [preserve_unit_loops, index])
