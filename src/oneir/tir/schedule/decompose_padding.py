"""Splitting a padded copy into two blocks: one stores the padding, the other copies the interior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.expr import Call, ConstExpr, PrimExpr, Range, Var, const
from ...ir.op import Op
from ..block_scope import StmtSRef
from ..expr import IterVar
from ..stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt
from ..stmt_functor import substitute
from .base import ScheduleBase
from .blockize import lowest_common
from .conditions import as_block, as_loop, check_complete, check_self_contained, is_higher, scope_root_of
from .domain import loop_domains, loops_above
from .edit import ScopeEdit
from .error import PrimitiveError
from .instruction import InstructionKind
from .lookup import consumers_of
from .random_variable import BlockRV, LoopRV
from .state import ScheduleState


@dataclass
class _Padding:
    """`if_then_else(predicate, value, pad)`; where it holds, the block's variables run over `inside`."""

    predicate: PrimExpr
    value: PrimExpr
    pad: PrimExpr
    inside: list[Range]


def decompose_padding(state: ScheduleState, sref: StmtSRef, loop_sref: StmtSRef) -> StmtSRef:
    plan = _plan(state, sref, loop_sref)
    (filling, filled), copying, copied, top = plan
    loop, old = loop_sref.stmt, sref.stmt
    changed = copying if top is loop else ScopeEdit({top: copying}).visit(loop)
    consumers = [(consumer, lowest_common([consumer, sref])) for consumer in consumers_of(state, sref)]
    state.replace(loop_sref, SeqStmt([filling, changed]), {old: copied})
    result = state.stmt2ref[filled]
    for consumer, place in consumers:
        # The padding is stored outside of the loops that a consumer shares with the copy: its reads count as not
        # covered.
        if place.stmt is not None and not is_higher(place, result):
            state.block_info[consumer].region_cover = False
    return result


def can_decompose_padding(state: ScheduleState, sref: StmtSRef, loop_sref: StmtSRef) -> bool:
    """Whether `decompose_padding` applies to a block."""
    try:
        _plan(state, sref, loop_sref)
    except PrimitiveError:
        return False
    return True


def _plan(state: ScheduleState, sref: StmtSRef, loop_sref: StmtSRef) -> tuple[tuple[Stmt, Block], Stmt, Block, For]:
    """The loops that fill and the block in them, those that copy and the block in them, and which they replace."""
    block, loop = as_block(state, sref), as_loop(state, loop_sref)
    check_complete(state, sref, scope_root_of(state, sref))
    check_self_contained(state, sref)
    loops = [s.stmt for s in loops_above(sref.parent)]
    if loop not in loops:
        raise PrimitiveError(
            state.mod,
            "The input loop {0} of decompose_padding is required to be an ancestor of block {1}.",
            loop,
            block,
        )
    inner = loops[: loops.index(loop) + 1]
    chain: list[For] = []
    below: Any = state.realize_of(sref)
    for outer in inner:
        if outer.body is not below:
            break
        chain.append(outer)
        below = outer
    if not chain:
        raise PrimitiveError(state.mod, "The block {0} is expected to be the only statement under its loop", block)
    domains = loop_domains(sref.parent)
    realize = state.realize_of(sref)
    padding = _match(state, realize, domains)
    filling = _filling(realize, padding, inner)
    copying, copied = _copying(realize, padding, chain, domains)
    return filling, copying, copied, chain[-1]


def _match(state: ScheduleState, realize: BlockRealize, domains: dict[Var, Range]) -> _Padding:
    """The value, the padding and the interior of a block that stores a constant outside of a region.

    Raises `PrimitiveError` for other blocks.
    """
    block = realize.block

    def mismatch(reason: str) -> PrimitiveError:
        return PrimitiveError(
            state.mod, f"decompose_padding expect the block {{0}} to match padding pattern\n  {reason}", block
        )

    body = block.body
    if not isinstance(body, BufferStore):
        raise mismatch("Block body expect a BufferStore to the write buffer")
    value = body.value
    if not (isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == "tir.if_then_else"):
        raise mismatch("Value of BufferStore expect to be constrained by a padding predicate")
    condition, inside, pad = value.args
    if not isinstance(pad, ConstExpr):
        raise mismatch("Pad value should be constant")
    bindings: dict[Var, Any] = {v.var: x for v, x in zip(block.iter_vars, realize.iter_values, strict=True)}
    analyzer = Analyzer()
    for var, domain in domains.items():
        analyzer.bind(var, domain)
    predicate = analyzer.simplify(ops.logical_and(substitute(condition, bindings), realize.predicate))
    if is_number(predicate, 1):
        raise mismatch("The in-bound predicate is trivial")
    found = detect_iter_map(realize.iter_values, domains, predicate, IterMapLevel.Surjective, may_overlap=False)
    if not found.indices or not is_number(found.padding_predicate, 0):
        raise mismatch("Block iters are not independent wrt padding condition")
    ranges: list[Range] = []
    for total in found.indices:
        if total.args and not is_number(total.args[0].scale, 1):
            raise mismatch("Strided iteration is not supported")
        extent: Any = total.args[0].extent if total.args else const(1, total.base.dtype)
        ranges.append(Range.from_min_extent(total.base, extent))
    return _Padding(predicate, inside, pad, ranges)


def _filling(realize: BlockRealize, padding: _Padding, loops: Sequence[For]) -> tuple[Stmt, Block]:
    """Copies of loops, given from the inside out, with a block that stores the padding everywhere."""
    block = realize.block
    renamed: dict[Var, Any] = {v.var: v.var.copy_with_name(v.var.name) for v in block.iter_vars}
    renamed.update({loop.loop_var: loop.loop_var.copy_with_name(loop.loop_var.name) for loop in loops})
    store: Any = substitute(block.body, renamed)
    filled = Block(
        [IterVar(v.dom, renamed[v.var], IterVar.DataPar) for v in block.iter_vars],
        (),
        [substitute(region, renamed) for region in block.writes],
        f"{block.name_hint}_pad_const",
        store.replace(value=padding.pad),
    )
    values = [substitute(value, renamed) for value in realize.iter_values]
    stmt: Stmt = BlockRealize(values, substitute(realize.predicate, renamed), filled)
    for loop in loops:
        stmt = For(renamed[loop.loop_var], loop.min, loop.extent, ForKind.SERIAL, stmt)
    return stmt, filled


def _copying(
    realize: BlockRealize, padding: _Padding, loops: Sequence[For], domains: dict[Var, Range]
) -> tuple[Stmt, Block]:
    """The loops, given from the inside out, over the interior only, where the block needs no condition."""
    block, analyzer = realize.block, Analyzer()
    ranges = {loop.loop_var: domains[loop.loop_var] for loop in loops}
    moved: dict[Var, Any] = {}
    iter_vars: list[IterVar] = []
    values: list[PrimExpr] = []
    for v, value, inside in zip(block.iter_vars, realize.iter_values, padding.inside, strict=True):
        fresh = IterVar(
            Range.from_min_extent(const(0, v.dtype), inside.extent), v.var.copy_with_name(v.var.name), IterVar.DataPar
        )
        iter_vars.append(fresh)
        moved[v.var] = fresh.var + inside.min
        if isinstance(value, Var) and value in ranges:
            ranges[value] = Range.from_min_extent(const(0, value.dtype), inside.extent)
            moved[value] = value + inside.min
            values.append(value)
        else:
            values.append(value - inside.min)
    for var, domain in {**domains, **ranges}.items():
        analyzer.bind(var, domain)
    for v in iter_vars:
        analyzer.bind(v.var, v.dom)

    def simple(expr: PrimExpr) -> PrimExpr:
        return analyzer.simplify(substitute(expr, moved))

    store: Any = block.body
    copied = Block(
        iter_vars,
        [r.replace(region=[_range(x, simple) for x in r.region]) for r in block.reads],
        [r.replace(region=[_range(x, simple) for x in r.region]) for r in block.writes],
        block.name_hint,
        BufferStore(store.buffer, simple(padding.value), [simple(i) for i in store.indices]),
    )
    stmt: Stmt = BlockRealize([analyzer.simplify(v) for v in values], simple(padding.predicate), copied)
    for loop in loops:
        domain = ranges[loop.loop_var]
        stmt = loop.replace(min=domain.min, extent=domain.extent, body=stmt)
    return stmt, copied


def _range(r: Range, simple: Any) -> Range:
    return Range.from_min_extent(simple(r.min), simple(r.extent))


DECOMPOSE_PADDING = InstructionKind("DecomposePadding", "decompose_padding", decompose_padding, ("block", "loop"))


class DecomposePadding(ScheduleBase):
    """The part of a schedule that separates padding from copies."""

    def decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Fills with the padding before a loop, so that the block copies only what is inside.

            for i in range(140):
                with T.block("B"):
                    vi = T.axis.spatial(140, i)
                    B[vi] = T.if_then_else(6 <= vi and vi < 134, A[vi - 6], 0.0)

        becomes

            for i in range(140):
                with T.block("B_pad_const"):
                    vi = T.axis.spatial(140, i)
                    B[vi] = 0.0
            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)
                    B[vi + 6] = A[vi]

        Returns the block that fills. The block must be complete and of this form, with a constant, and the loop around
        it. Raises `ScheduleError` otherwise.
        """
        return self.apply(DECOMPOSE_PADDING, [self._block(block), loop])[0]

    def can_decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> bool:
        """Whether `decompose_padding` would not raise."""
        return can_decompose_padding(self.state, self.get_sref(self._block(block)), self.get_sref(loop))
