"""Padding the iteration space of a contraction, so that tiles divide it evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Add, Cast, IntImm, Mul, PrimExpr, Range, Var, const
from ..analysis.variables import variables
from ..block_scope import StmtSRef
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad, IterVar, IterVarType
from ..op import if_then_else
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, Stmt
from .base import ScheduleBase
from .buffers import Redirect
from .conditions import as_block, check_runs_everywhere, check_self_contained, scope_root_of
from .domain import domain_of, own_domains
from .edit import BlockEdit, as_list
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV
from .reducer import reduction_of
from .reindex import position_of_chain
from .state import ScheduleState


class _Padded(BlockEdit):
    """Enlarges the extents of a block's variables and its loops, and replaces buffers by padded ones."""

    def __init__(self, extents: dict[Var, PrimExpr], buffers: dict[Buffer, Buffer]):
        super().__init__()
        self.extents, self.redirects = extents, [Redirect(old, new) for old, new in buffers.items()]

    def visit_For(self, loop: For) -> Any:
        extent = self.extents.get(loop.loop_var, loop.extent)
        return loop.replace(extent=extent, body=self.visit(loop.body))

    def visit_Block(self, block: Block) -> Any:
        iter_vars = [
            v.replace(dom=Range.from_min_extent(domain_of(v).min, self.extents[v.var])) if v.var in self.extents else v
            for v in block.iter_vars
        ]
        new = block
        for redirect in self.redirects:
            new = redirect.visit(new)
        return self.changed(block, new.replace(iter_vars=Array(iter_vars)))


def pad_einsum(state: ScheduleState, sref: StmtSRef, padding: list[int]) -> None:
    block, realize = as_block(state, sref), state.realize_of(sref)
    scope = scope_root_of(state, sref, stage_pipeline=True)
    if len(padding) != len(block.iter_vars) or any(p <= 0 for p in padding):
        raise PrimitiveError(
            state.mod,
            f"The padding for the block {{0}} are invalid. It should be a list of {len(block.iter_vars)} positive "
            f"integers. Got {padding}",
            block,
        )
    _check_einsum(state, block)
    _check_whole(state, block)
    check_self_contained(state, sref)
    check_runs_everywhere(state, sref)
    position = position_of_chain(state, sref, scope)
    extents = _padded_extents(state, realize, padding)
    loops: dict[Var, PrimExpr] = {
        value: extents[v.var]
        for v, value in zip(block.iter_vars, realize.iter_values, strict=True)
        if v.var in extents and isinstance(value, Var)
    }
    reads = {r.buffer: _padded_buffer(r, extents) for r in block.reads if _needs_padding(r, extents)}
    writes = {r.buffer: _padded_buffer(r, extents) for r in block.writes if _needs_padding(r, extents)}
    _check_zeros(state, block, extents)
    before = [_copy_in(old, new) for old, new in reads.items()]
    after = [_copy_out(new, old) for old, new in writes.items()]
    old: Block = scope.stmt
    stmts = as_list(old.body)
    edit = _Padded({**extents, **loops}, {**reads, **writes})
    stmts[position : position + 1] = [*before, edit.visit(stmts[position]), *after]
    allocated = Array([*old.alloc_buffers, *reads.values(), *writes.values()])
    new = old.replace(body=stmts[0] if len(stmts) == 1 else SeqStmt(stmts), alloc_buffers=allocated)
    state.replace(scope, new, {**edit.reuse, old: new})


def _check_einsum(state: ScheduleState, block: Block) -> None:
    """Raises `PrimitiveError` for a block that accesses a buffer twice, or at indices that are not its variables."""
    regions = (*block.reads, *block.writes)
    points = all(
        isinstance(r.min, (Var, IntImm)) and isinstance(r.extent, IntImm) and r.extent.value == 1
        for region in regions
        for r in region.region
    )
    if not points or len({region.buffer for region in regions}) != len(regions):
        raise PrimitiveError(state.mod, "The block {0} not a computation of Einsum pattern.", block)


def _check_whole(state: ScheduleState, block: Block) -> None:
    """Raises `PrimitiveError` for a block that accesses a part of a buffer only, since all of it is copied."""
    analyzer, domains = Analyzer(), own_domains(block)
    for region in (*block.reads, *block.writes):
        for r, dim in zip(region.region, region.buffer.shape, strict=True):
            domain = domains.get(r.min) if isinstance(r.min, Var) else Range.from_min_extent(r.min, r.extent)
            whole = domain is not None and is_number(domain.min, 0) and analyzer.can_prove_equal(domain.extent, dim)
            if not whole:
                raise PrimitiveError(
                    state.mod, f"The block {{0}} accesses a part of the buffer {region.buffer.name} only", block
                )


def _padded_extents(state: ScheduleState, realize: BlockRealize, padding: Sequence[int]) -> dict[Var, PrimExpr]:
    """The extents of the variables of a block that grow, rounded up to multiples."""
    analyzer = Analyzer()
    extents: dict[Var, PrimExpr] = {}
    for v, value, factor in zip(realize.block.iter_vars, realize.iter_values, padding, strict=True):
        extent = domain_of(v).extent
        rounded = analyzer.simplify(ops.floordiv(extent + (factor - 1), factor) * factor)
        if analyzer.can_prove_equal(extent, rounded):
            continue
        if not isinstance(value, Var):
            raise PrimitiveError(
                state.mod,
                f"The variable {v.var.name} of the block {{0}} is padded, but its value {value} is no loop",
                realize.block,
            )
        extents[v.var] = rounded
    return extents


def _needs_padding(region: BufferRegion, extents: dict[Var, PrimExpr]) -> bool:
    return any(isinstance(r.min, Var) and r.min in extents for r in region.region)


def _padded_buffer(region: BufferRegion, extents: dict[Var, PrimExpr]) -> Buffer:
    buffer = region.buffer
    shape = [
        extents.get(r.min, dim) if isinstance(r.min, Var) else const(1, dim.dtype)
        for r, dim in zip(region.region, buffer.shape, strict=True)
    ]
    return decl_buffer(shape, buffer.dtype, f"{buffer.name}_pad", scope=buffer.scope())


def _check_zeros(state: ScheduleState, block: Block, extents: dict[Var, PrimExpr]) -> None:
    """Raises `PrimitiveError` if a reduction axis is padded and zeros in the padded inputs would change the result."""
    reduced = {v.var for v in block.iter_vars if v.iter_type == IterVarType.CommReduce and v.var in extents}
    if not reduced:
        return
    reduction = reduction_of(state, block)
    sums = all(isinstance(result, Add) for result in reduction.results)
    if not sums or not all(_vanishes(value, var) for value in reduction.added for var in reduced):
        raise PrimitiveError(
            state.mod,
            "The block {0} is padded in a variable that it reduces over, but does not sum products of what is padded "
            "with zeros",
            block,
        )


def _vanishes(value: Any, var: Var) -> bool:
    """Whether a value is zero wherever the loads that a variable indexes are zero."""
    if isinstance(value, Mul):
        return _vanishes(value.a, var) or _vanishes(value.b, var)
    if isinstance(value, Cast):
        return _vanishes(value.value, var)
    return isinstance(value, BufferLoad) and var in variables(*value.indices)


def _copy_in(buffer: Buffer, padded: Buffer) -> Stmt:
    """A block that copies a buffer into a larger one, with zeros around it."""
    iters = _variables(padded.shape)
    point: list[Any] = [v.var for v in iters]
    analyzer = Analyzer()
    inside: PrimExpr = IntImm("bool", 1)
    for var, dim, padded_dim in zip(point, buffer.shape, padded.shape, strict=True):
        if not analyzer.can_prove_equal(dim, padded_dim):
            inside = ops.logical_and(inside, ops.less(var, dim))
    value = if_then_else(inside, BufferLoad(buffer, point), const(0, buffer.dtype))
    return _copy(iters, buffer, padded, value, padded.name)


def _copy_out(padded: Buffer, buffer: Buffer) -> Stmt:
    """A block that copies what a buffer holds of a larger one."""
    iters = _variables(buffer.shape)
    return _copy(iters, padded, buffer, BufferLoad(padded, [v.var for v in iters]), padded.name)


def _variables(shape: Sequence[PrimExpr]) -> list[IterVar]:
    return [
        IterVar(Range.from_min_extent(const(0, dim.dtype), dim), Var(f"v{i}", dim.dtype), IterVar.DataPar)
        for i, dim in enumerate(shape)
    ]


def _copy(iters: Sequence[IterVar], source: Buffer, target: Buffer, value: PrimExpr, name: str) -> Stmt:
    point: list[Any] = [v.var for v in iters]
    block = Block(
        iters,
        [BufferRegion.from_point(source, point)],
        [BufferRegion.from_point(target, point)],
        name,
        BufferStore(target, value, point),
    )
    loops = [Var(f"i{i}", v.dtype) for i, v in enumerate(iters)]
    stmt: Stmt = BlockRealize(loops, IntImm("bool", 1), block)
    for loop, v in reversed(list(zip(loops, iters, strict=True))):
        stmt = For(loop, const(0, loop.dtype), domain_of(v).extent, ForKind.SERIAL, stmt)
    return stmt


PAD_EINSUM = InstructionKind("PadEinsum", "pad_einsum", pad_einsum, ("block",), ("padding",))


class PadEinsum(ScheduleBase):
    """The part of a schedule that pads contractions."""

    def pad_einsum(self, block: BlockRV | str, padding: list[int]) -> None:
        """Rounds the extents of a block's variables up to multiples, with copies of its buffers that hold zeros there.

            for i, j, k in T.grid(127, 127, 127):
                with T.block("C"): ...  # C[vi, vj] += A[vi, vk] * B[vk, vj]

        becomes, with the padding [32, 32, 32],

            for i0, i1 in T.grid(128, 128):
                with T.block("A_pad"):
                    v0, v1 = T.axis.remap("SS", [i0, i1])
                    A_pad[v0, v1] = T.if_then_else(v0 < 127 and v1 < 127, A[v0, v1], 0.0)
            ...
            for i, j, k in T.grid(128, 128, 128):
                with T.block("C"): ...  # C_pad[vi, vj] += A_pad[vi, vk] * B_pad[vk, vj]
            for i0, i1 in T.grid(127, 127):
                with T.block("C_pad"): ...  # C[v0, v1] = C_pad[v0, v1]

        The indices of the block's accesses must be its variables, and the values of padded ones must be loops. A padded
        reduction must be a sum of products, so that zeros add nothing. Raises `ScheduleError` otherwise.
        """
        self.apply(PAD_EINSUM, [self._block(block)], [[int(p) for p in padding]])
