"""Matrix by vector: which blocks are such products, and their loops in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.expr import Add, IntImm, PrimExpr, Var
from ...ir.structural import structural_equal
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad
from ...tir.schedule import Schedule
from ...tir.stmt import Block, BufferStore
from .access import (
    collect_block_iter_vars_used_in_access_region,
    collect_vars_used_in_prim_expr,
    dominant_access,
)

if TYPE_CHECKING:
    from .common_analysis import BlockInfo


def get_reduction_expr(block: Block) -> PrimExpr | None:
    """`y` of `x[...] = x[...] + y`; None for another block."""
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, Add):
        return None
    same = structural_equal(store.value.a, BufferLoad(store.buffer, store.indices))
    return store.value.b if same else None


def is_gemv(sch: Schedule, block_info: BlockInfo) -> list[Buffer] | None:
    """The vectors of a matrix-vector product: the operands that depend on some but not all axes. None for another
    block.
    """
    block = sch.get(block_info.block_rv)
    if not block_info.is_reduction() or len(block.reads) < 2 or len(block.writes) != 1:
        return None
    if get_reduction_expr(block) is None:
        return None
    if not collect_block_iter_vars_used_in_access_region(block, block.writes[0].region):
        return None
    used = [len(collect_block_iter_vars_used_in_access_region(block, read.region)) for read in block.reads]
    axes = len(block.iter_vars)
    vectors = [read.buffer for read, count in zip(block.reads, used, strict=True) if 0 < count < axes]
    return vectors if 0 < len(vectors) < len(block.reads) else None


def normalize(sch: Schedule, block_info: BlockInfo) -> bool | None:
    """Brings the loops into the order batch, spatial, reduction, group, each fused to one; returns whether the matrix
    is contiguous along the reduction.

    None, with the loops unchanged, where the matrix's offset is no sum of axes, or where another axis than the
    reduction is split, or this one more than once.
    """
    block = sch.get(block_info.block_rv)
    access = dominant_access(block)
    if collect_vars_used_in_prim_expr(access.base) & {iv.var for iv in block.iter_vars}:
        return None
    infos = {info.var: info for info in block_info.iters}
    parts = []
    for part in access.args:
        source = part.source.source
        parts.append((infos.get(source) if isinstance(source, Var) else None, part.lower_factor))
    groups = [(info, factor) for info, factor in parts if not (isinstance(factor, IntImm) and factor.value == 1)]
    if not parts or any(info is None for info, _ in parts) or len(groups) > 1:
        return None
    if any(info is not None and info.kind != "R" for info, _ in groups):
        return None
    uses = [collect_block_iter_vars_used_in_access_region(block, r.region) for r in [*block.writes, *block.reads]]
    batch, spatial, reduction, group = [], [], [], []
    for info, factor in parts:
        assert info is not None
        loop = info.loop_rv
        if isinstance(factor, IntImm) and factor.value > 1:
            loop, inner = sch.split(loop, [None, factor.value])
            group.append(inner)
        if info.kind == "R":
            reduction.append(loop)
        else:
            (batch if all(info.var in used for used in uses) else spatial).append(loop)
    if not spatial or not reduction:
        return None
    group = group or [sch.add_unit_loop(block_info.block_rv)]
    batch = batch or [sch.add_unit_loop(block_info.block_rv)]
    sch.reorder(*batch, *spatial, *reduction, *group)
    for loops in (batch, spatial, reduction):
        sch.fuse(*loops)
    last = parts[-1][0]
    return last is not None and last.kind == "R"
