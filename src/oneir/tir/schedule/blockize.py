"""Making one block of a loop nest, or of several blocks with the loops around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arith import Analyzer, IterMapLevel, normalize_iter_map_to_expr, subspace_divide
from ...arith.int_set import IntervalSet, is_infinite, union
from ...arith.iter_map import is_number
from ...ir.container import Array, is_sequence
from ...ir.expr import IntImm, PrimExpr, Range, Var, const
from ..analysis.variables import variables
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import IterVar
from ..stmt import Block, BlockRealize, BufferRegion, For, SeqStmt, Stmt
from ..stmt_functor import substitute
from .base import ScheduleBase
from .conditions import as_loop, check_self_contained
from .domain import domain_of, loops_above, uses
from .edit import SubstituteEdit, as_list
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, LoopRV
from .reduction import init_condition, only_block
from .state import ScheduleState


@dataclass
class _Division:
    """The variables of a block divided into those of a new outer block and those that it keeps."""

    outer: list[IterVar] = field(default_factory=list[IterVar])
    outer_values: list[PrimExpr] = field(default_factory=list[PrimExpr])
    outer_predicate: PrimExpr = field(default_factory=lambda: IntImm("bool", 1))
    inner: list[IterVar] = field(default_factory=list[IterVar])
    inner_values: list[PrimExpr] = field(default_factory=list[PrimExpr])
    inner_predicate: PrimExpr = field(default_factory=lambda: IntImm("bool", 1))
    renamed: dict[Var, PrimExpr] = field(default_factory=dict[Var, PrimExpr])


_Pair = tuple[tuple[PrimExpr, PrimExpr], tuple[PrimExpr, PrimExpr]]


def _divide(
    state: ScheduleState, realize: BlockRealize, lowest: StmtSRef, inner: Sequence[For], preserve_unit_iters: bool
) -> list[_Pair]:
    """For each variable, the value and extent of its outer and of its inner part; last, the outer and inner predicates.

    Raises `PrimitiveError` if the values cannot be divided between the loops `inner` and the others from `lowest`
    outwards.
    """
    check_self_contained(state, state.stmt2ref[realize.block])
    if any(not is_number(domain_of(v).min, 0) for v in realize.block.iter_vars):
        raise PrimitiveError(state.mod, "The variables of the block {0} are expected to start at 0", realize.block)
    domains: dict[Var, Range] = {}
    for sref in loops_above(lowest):
        domains[sref.stmt.loop_var] = Range.from_min_extent(sref.stmt.min, sref.stmt.extent)
    variables = [loop.loop_var for loop in inner]
    found = subspace_divide(
        realize.iter_values,
        domains,
        variables,
        realize.predicate,
        IterMapLevel.Surjective,
        simplify_trivial_iterators=not preserve_unit_iters,
    )
    if found:
        parts = [[(normalize_iter_map_to_expr(mark.source), mark.extent) for mark in pair] for pair in found]
        return [(pair[0], pair[1]) for pair in parts]
    trivial = _divide_trivially(realize, set(domains) - set(variables), set(variables))
    if trivial is None:
        raise PrimitiveError(
            state.mod,
            "The bindings of the inner block {1} can not be blockized by the loops starting at {0}.",
            inner[-1] if inner else realize.block,
            realize.block,
        )
    return trivial


def _divide_trivially(realize: BlockRealize, outer: set[Var], inner: set[Var]) -> list[_Pair] | None:
    """The parts of values that each depend on outer loops only or on inner loops only; None if one depends on both."""
    if not is_number(realize.predicate, 1):
        return None
    pairs: list[_Pair] = []
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        whole = (value, domain_of(iter_var).extent)
        unit = (const(0, value.dtype), const(1, value.dtype))
        is_outer, is_inner = uses(value, outer) is not None, uses(value, inner) is not None
        if is_outer and is_inner:
            return None
        pairs.append((whole, unit) if is_outer else (unit, whole) if is_inner else (unit, unit))
    true = (const(0, "int32"), IntImm("bool", 1))
    return [*pairs, (true, true)]


def _division_of(
    block: Block, pairs: list[_Pair], preserve_unit_iters: bool, shared: list[IterVar] | None = None
) -> _Division:
    """New variables for the outer and the inner block; the outer ones may be `shared` with another block."""
    division = _Division()
    for i, (iter_var, (outer, inner)) in enumerate(zip(block.iter_vars, pairs, strict=False)):
        name, kind = iter_var.var.name, iter_var.iter_type
        if shared is None:
            extent = outer[1]
            outer_iter = IterVar(
                Range.from_min_extent(const(0, extent.dtype), extent), Var(f"{name}_o", extent.dtype), kind
            )
        else:
            outer_iter = shared[i]
        division.outer.append(outer_iter)
        division.outer_values.append(outer[0])
        if is_number(inner[1], 1):
            dropped = is_number(outer[1], 1) and not preserve_unit_iters
            value: Any = const(0, outer_iter.dtype) if dropped else outer_iter.var
        else:
            extent = inner[1]
            own = IterVar(Range.from_min_extent(const(0, extent.dtype), extent), Var(f"{name}_i", extent.dtype), kind)
            division.inner.append(own)
            division.inner_values.append(inner[0])
            value = own.var if is_number(outer[1], 1) else outer_iter.var * extent + own.var
        division.renamed[iter_var.var] = value
    division.outer_predicate, division.inner_predicate = pairs[-1][0][1], pairs[-1][1][1]
    return division


def _check_same_outer(state: ScheduleState, shared: _Division, block: Block, pairs: list[_Pair]) -> None:
    """Raises `PrimitiveError` unless a block's variables depend on the common loops as those of the first block do."""
    analyzer = Analyzer()
    kinds = [v.iter_type for v in block.iter_vars]
    same = kinds == [v.iter_type for v in shared.outer] and all(
        analyzer.can_prove_equal(value, outer) and analyzer.can_prove_equal(extent, domain_of(v).extent)
        for v, outer, ((value, extent), _) in zip(shared.outer, shared.outer_values, pairs, strict=False)
    )
    if not same or not analyzer.can_prove_equal(pairs[-1][0][1], shared.outer_predicate):
        raise PrimitiveError(
            state.mod,
            "The variables of the block {0} follow the loops around the blocks to put together in another way than "
            "those of the first",
            block,
        )


class _Renamed(SubstituteEdit):
    """Substitutes variables, and simplifies integer expressions that change."""

    def __init__(self, values: dict[Var, PrimExpr], analyzer: Analyzer):
        super().__init__(values)
        self.analyzer = analyzer

    def visit(self, node: Any) -> Any:
        new = super().visit(node)
        if new is not node and isinstance(new, PrimExpr) and (new.dtype.is_int or new.dtype.is_bool):
            return self.analyzer.simplify(new)
        return new


def blockize(state: ScheduleState, target: Any, preserve_unit_iters: bool) -> StmtSRef:
    if is_sequence(target):
        return _blockize_blocks(state, [*target], preserve_unit_iters)
    realize, reuse = blockized(state, target, preserve_unit_iters)
    state.replace(target, realize, reuse)
    return state.stmt2ref[realize.block]


def blockized(
    state: ScheduleState, loop_sref: StmtSRef, preserve_unit_iters: bool
) -> tuple[BlockRealize, dict[Block, Block]]:
    """A new block around a loop, and for the old blocks inside of it the new ones."""
    as_loop(state, loop_sref)
    sref = only_block(state, loop_sref)
    realize, block = state.realize_of(sref), sref.stmt
    loops = [s.stmt for s in loops_above(sref.parent, loop_sref.parent)]
    division = _division_of(
        block, _divide(state, realize, sref.parent, loops, preserve_unit_iters), preserve_unit_iters
    )
    inner, changed, reuse = _inner_realize(division, block)
    outer = Block(
        division.outer,
        relaxed_regions(changed.reads, division.inner),
        relaxed_regions(changed.writes, division.inner),
        f"{block.name_hint}_o",
        _under(inner, loops),
        _outer_init(changed, inner, loops),
    )
    return BlockRealize(division.outer_values, division.outer_predicate, outer), reuse


def _inner_realize(division: _Division, block: Block) -> tuple[BlockRealize, Block, dict[Block, Block]]:
    """The block with the inner variables; and with the new variables but the old init and reads."""
    analyzer = Analyzer()
    for v in division.inner:
        analyzer.bind(v.var, domain_of(v))
    edit = _Renamed(division.renamed, analyzer)
    changed = edit.visit(block)
    reads = changed.reads
    if block.init is not None:
        # The init is in the outer block now, so this block also reads what it updates.
        reads = Array([*changed.writes, *changed.reads])
    inner = changed.replace(iter_vars=Array(division.inner), init=None, reads=reads)
    reuse = {**edit.reuse, block: inner}
    return BlockRealize(division.inner_values, division.inner_predicate, inner), changed, reuse


def _under(stmt: Stmt, loops: Sequence[For]) -> Stmt:
    """A statement under loops, which come from the inside out."""
    for loop in loops:
        stmt = loop.replace(body=stmt)
    return stmt


def _outer_init(block: Block, inner: BlockRealize, loops: Sequence[For]) -> Stmt | None:
    """The init as a block under those inner loops that it needs."""
    if block.init is None:
        return None
    used = variables(block.init)
    kept = [
        (v, value)
        for v, value in zip(inner.block.iter_vars, inner.iter_values, strict=True)
        if v.iter_type == IterVar.DataPar and v.var in used
    ]
    renamed: dict[Var, Any] = {v.var: v.var.copy_with_name(f"{v.var.name}_init") for v, _ in kept}
    body = Block(
        [v.replace(var=renamed[v.var]) for v, _ in kept], (), block.writes, f"{block.name_hint}_init", block.init
    )
    predicate, needed = init_condition(inner)
    stmt: Stmt = BlockRealize([value for _, value in kept], predicate, body)
    for loop in loops:
        if loop.loop_var in needed:
            renamed[loop.loop_var] = loop.loop_var.copy_with_name(loop.loop_var.name)
            stmt = loop.replace(loop_var=renamed[loop.loop_var], body=stmt)
    return substitute(stmt, renamed)


def relaxed_regions(regions: Sequence[BufferRegion], inner: Sequence[IterVar]) -> list[BufferRegion]:
    """The regions accessed while some variables run over their ranges."""
    analyzer = Analyzer()
    domains = {v.var: domain_of(v) for v in inner}
    result: list[BufferRegion] = []
    for region in regions:
        ranges: list[Range] = []
        for r, dim in zip(region.region, region.buffer.shape, strict=True):
            low: Any = analyzer.int_set(r.min, domains)
            high: Any = low if is_number(r.extent, 1) else analyzer.int_set(r.min + r.extent - 1, domains)
            ranges.append(cover(IntervalSet(low.min_value, high.max_value), dim, analyzer))
        result.append(BufferRegion(region.buffer, ranges))
    return result


def cover(values: IntervalSet, dim: PrimExpr, analyzer: Analyzer) -> Range:
    """The range of an interval; the whole dimension if it has no end."""
    low, high = values.min_value, values.max_value
    if is_infinite(low) or is_infinite(high):
        return Range(dim)
    return Range.from_min_extent(low, const(1, low.dtype) if low is high else analyzer.simplify(high - low + 1))


# -- several blocks --


def _blockize_blocks(state: ScheduleState, srefs: list[StmtSRef], preserve_unit_iters: bool) -> StmtSRef:
    place = lowest_common(srefs)
    if place in srefs:
        raise PrimitiveError(state.mod, "The blocks to put together must not be inside of each other: {0}", place.stmt)
    shared: _Division | None = None
    stmts: list[Stmt] = []
    reads: list[BufferRegion] = []
    writes: list[BufferRegion] = []
    reuse: dict[Block, Block] = {}
    for sref in srefs:
        realize, block = state.realize_of(sref), sref.stmt
        loops = [s.stmt for s in loops_above(sref.parent, place)]
        pairs = _divide(state, realize, sref.parent, loops, preserve_unit_iters)
        if shared is not None:
            _check_same_outer(state, shared, block, pairs)
        division = _division_of(block, pairs, preserve_unit_iters, None if shared is None else shared.outer)
        shared = shared or division
        if block.init is not None and any(v.iter_type == IterVar.CommReduce for v in division.outer):
            raise PrimitiveError(
                state.mod, "The block {0} reduces over a loop around the blocks that are put together", block
            )
        inner, changed, renamed = _inner_realize(division, block)
        reuse.update(renamed)
        reads += relaxed_regions(changed.reads, division.inner)
        writes += relaxed_regions(changed.writes, division.inner)
        stmts.append(_under(inner, loops))
    assert shared is not None
    name = "outer_" + "".join(f"{sref.stmt.name_hint}_" for sref in srefs)
    outer = Block(shared.outer, _merged(reads), _merged(writes), name, SeqStmt(stmts))
    realize = BlockRealize(shared.outer_values, shared.outer_predicate, outer)
    old = place.stmt
    new = old.replace(body=_put_together(state, old, srefs, realize))
    state.replace(place, new, {**reuse, **({old: new} if isinstance(old, Block) else {})})
    return state.stmt2ref[outer]


def lowest_common(srefs: Sequence[StmtSRef]) -> StmtSRef:
    """The lowest block or loop around several statements, or one of them."""
    paths: list[list[StmtSRef]] = []
    for sref in srefs:
        path: list[StmtSRef] = []
        above = sref
        while above is not None:
            path.append(above)
            above = above.parent
        paths.append(path[::-1])
    common = paths[0][0]
    for level in zip(*paths, strict=False):
        if any(sref is not level[0] for sref in level):
            break
        common = level[0]
    return common


def _put_together(state: ScheduleState, place: Any, srefs: Sequence[StmtSRef], realize: BlockRealize) -> Stmt:
    """The body of a statement with a new block in place of those statements that hold some blocks."""
    blocks = {sref.stmt for sref in srefs}
    stmts = as_list(place.body)
    holding = [i for i, stmt in enumerate(stmts) if _holds(state, stmt, blocks)]
    if holding != list(range(holding[0], holding[-1] + 1)):
        raise PrimitiveError(state.mod, "The blocks to put together must stand right after each other in {0}", place)
    rest: list[Stmt] = [*stmts[: holding[0]], realize, *stmts[holding[-1] + 1 :]]
    return rest[0] if len(rest) == 1 else SeqStmt(rest)


def _holds(state: ScheduleState, stmt: Stmt, blocks: set[Block]) -> bool:
    if isinstance(stmt, BlockRealize):
        return stmt.block in blocks
    return isinstance(stmt, For) and any(b.stmt in blocks for b in state.child_blocks(state.stmt2ref[stmt]))


def _merged(regions: Sequence[BufferRegion]) -> list[BufferRegion]:
    """The regions with those of one buffer joined."""
    analyzer = Analyzer()
    by_buffer: dict[Buffer, list[BufferRegion]] = {}
    for region in regions:
        by_buffer.setdefault(region.buffer, []).append(region)
    result: list[BufferRegion] = []
    for buffer, same in by_buffer.items():
        ranges: list[Range] = []
        for axis, dim in enumerate(buffer.shape):
            sets = [IntervalSet(r.min, analyzer.simplify(r.min + r.extent - 1)) for r in (x.region[axis] for x in same)]
            ranges.append(cover(union(sets, analyzer), dim, analyzer) if len(sets) > 1 else same[0].region[axis])
        result.append(BufferRegion(buffer, ranges))
    return result


BLOCKIZE = InstructionKind("Blockize", "blockize", blockize, ("target",), ("preserve_unit_iters",))


class Blockize(ScheduleBase):
    """The part of a schedule that makes blocks of loops."""

    def blockize(self, target: LoopRV | list[BlockRV], preserve_unit_iters: bool = True) -> BlockRV:
        """Makes a block of a loop and all inside of it, or of several blocks with the loops around them.

            for i, j in T.grid(8, 16):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj]

        becomes, with the loop j,

            for i in range(8):
                with T.block("B_o"):
                    vi_o = T.axis.spatial(8, i)
                    T.reads(A[vi_o, 0:16])
                    T.writes(B[vi_o, 0:16])
                    for j in range(16):
                        with T.block("B"):
                            vj_i = T.axis.spatial(16, j)
                            B[vi_o, vj_i] = A[vi_o, vj_i]

        Returns the new block. The loop must hold one block, whose variables can be divided into a part of the outer and
        one of the inner loops. Of several blocks, the loops around all of them make the new block's variables.

        Raises `ScheduleError` if a condition does not hold.
        """
        return self.apply(BLOCKIZE, [target], [preserve_unit_iters])[0]
