"""Low-batch GEMV: a matrix by a few vectors, whose number is symbolic; it is padded to a multiple of a bucket."""

from __future__ import annotations

from dataclasses import dataclass

from ...arith import normalize_to_iter_sum
from ...ir.expr import IntImm, PrimExpr, Var
from ...target.target import Target
from ...tir.buffer import Buffer
from ...tir.expr import IterVar
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.schedule.domain import domain_of
from ...tir.stmt import Block, BufferRegion
from ..analysis import (
    BlockInfo,
    collect_block_iter_vars_used_in_access_region,
    collect_vars_used_in_prim_expr,
    get_reduction_expr,
    is_broadcast_epilogue,
    normalize_prim_func,
)
from ..base.common_schedules import try_inline_contiguous_spatial
from ..base.sizes import auto_vectorize, get_extent
from .base import GPUScheduleRule
from .matrix_vector import Tile, all_threads, along_rows, is_adreno, is_mali, schedule_epilogue


@dataclass(frozen=True)
class LowBatchGEMV(GPUScheduleRule):
    """`[n, S] = [S, R] * [n, R]` with a symbolic `n`, and perhaps a block before that unpacks the matrix.

    bucket: how many vectors a block of threads takes.
    """

    bucket: int = 4

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        sums = [info for info in normalize_prim_func(sch) or () if info.is_reduction()]
        if len(sums) != 1 or is_gemv(sch, sums[0]) is None:
            return None
        sch.pad_einsum(sums[0].block_rv, [i.dom if isinstance(i.dom, int) else self.bucket for i in sums[0].iters])
        infos = normalize_prim_func(sch) or []
        unpack = padding = None
        for info in infos:
            if "dequantize" in info.name:
                unpack = info.block_rv
            elif "pad" in info.name and not sch.get_producers(info.block_rv):
                padding = info.block_rv
        rest = [info for info in infos if "pad" not in info.name and "dequantize" not in info.name]
        rest = try_inline_contiguous_spatial(sch, rest) or []
        if len(rest) not in (1, 2) or (len(rest) == 2 and not rest[1].is_injective()):
            return None
        info = rest[0]
        if len(info.iters) not in (2, 3) or is_gemv(sch, info) is None:
            return None
        along = normalize(sch, info)
        if along is None or (not along and (self.bucket > 4 or unpack is None or padding is None)):
            return None
        if along:
            return inner_reduction(sch, target, info.block_rv, unpack, padding, self.bucket)
        assert unpack is not None and padding is not None
        return outer_reduction(sch, target, info.block_rv, unpack, padding, self.bucket)


def is_gemv(sch: Schedule, block_info: BlockInfo) -> list[Buffer] | None:
    """The vectors of a sum of products with a matrix; None for another block.

    One spatial axis must be of symbolic extent, and is not counted: what is read by some but not all of the other axes
    is a vector.
    """
    block = sch.get(block_info.block_rv)
    if not block_info.is_reduction() or len(block.reads) < 2 or len(block.writes) != 1:
        return None
    if get_reduction_expr(block) is None:
        return None
    if not collect_block_iter_vars_used_in_access_region(block, block.writes[0].region):
        return None
    static = _static_axes(block)
    symbolic = [iv for iv in block.iter_vars if iv.var not in static]
    if len(symbolic) != 1 or symbolic[0].iter_type != IterVar.DataPar:
        return None
    vectors = [read.buffer for read in block.reads if 0 < len(_used(block, read, static)) < len(static)]
    return vectors if 0 < len(vectors) < len(block.reads) else None


def _static_axes(block: Block) -> set[Var]:
    """The variables of a block of known extent."""
    return {iv.var for iv in block.iter_vars if isinstance(domain_of(iv).extent, IntImm)}


def _used(block: Block, access: BufferRegion, axes: set[Var]) -> set[Var]:
    return collect_block_iter_vars_used_in_access_region(block, access.region) & axes


def detect_dominant_read(block: Block, const_iter_vars: set[Var]) -> PrimExpr:
    """The offset, in elements, of the read on which most of some axes have an influence; the first of several."""
    read = max(block.reads, key=lambda r: len(_used(block, r, const_iter_vars)))
    (offset,) = read.buffer.offset_of([r.min for r in read.region])
    return offset


def normalize(sch: Schedule, block_info: BlockInfo) -> bool | None:
    """Brings the loops into the order symbolic, spatial, reduction, the latter two fused to one each.

    Says whether the matrix is contiguous along the reduction. None, with the loops as they were, where its place in
    memory is no sum of whole axes, or an axis is one of all tensors.
    """
    block = sch.get(block_info.block_rv)
    static = _static_axes(block)
    offset = detect_dominant_read(block, static)
    used = collect_vars_used_in_prim_expr(offset)
    access = normalize_to_iter_sum(offset, {iv.var: domain_of(iv) for iv in block.iter_vars if iv.var in used})
    if collect_vars_used_in_prim_expr(access.base) & {iv.var for iv in block.iter_vars} or not access.args:
        return None
    infos = {info.var: info for info in block_info.iters}
    everywhere = static.intersection(*(_used(block, r, static) for r in [*block.writes, *block.reads]))
    spatial: list[LoopRV] = []
    reduction: list[LoopRV] = []
    last = None
    for part in access.args:
        source = part.source.source
        last = infos.get(source) if isinstance(source, Var) else None
        if last is None or last.var in everywhere:
            return None
        (reduction if last.kind == "R" else spatial).append(last.loop_rv)
    symbolic = [info.loop_rv for info in block_info.iters if info.var not in static]
    if last is None or not spatial or not reduction or len({*symbolic, *spatial, *reduction}) != len(block_info.iters):
        return None
    sch.reorder(*symbolic, *spatial, *reduction)
    sch.fuse(*spatial)
    sch.fuse(*reduction)
    return last.kind == "R"


def inner_reduction(
    sch: Schedule, target: Target, block: BlockRV, unpack: BlockRV | None, padding: BlockRV | None, bucket: int
) -> Schedule | None:
    """Schedules a matrix that is contiguous along the reduction."""
    _, s, r = (get_extent(sch, loop) for loop in sch.get_loops(block))
    tile = tile_for(target, s, r)
    tile.fit(target)
    tile.divide(r)

    def load(parts: BlockRV, tr: LoopRV, r: LoopRV) -> None:
        if unpack is not None:
            sch.compute_at(unpack, r, preserve_unit_loops=True)
            sch.set_scope(unpack, 0, "local")
            *_, rows, along = sch.get_loops(unpack)
            rows, v = sch.split(rows, [None, 1])
            sch.reorder(rows, along, v)
            sch.vectorize(v)
        if padding is not None:
            sch.compute_inline(padding)

    bx = along_rows(sch, block, tile, load, bucket)
    if bx is None:
        return None
    consumers = sch.get_consumers(block)
    if consumers and not schedule_epilogue(sch, block, consumers[0], tile, bx, batched=True):
        return None
    return sch


def tile_for(target: Target, rows: object, along: object) -> Tile:
    """The tile of a matrix of so many rows and elements a row, ints where they are known."""
    # What wins on long and on wide matrices differs.
    tall = isinstance(rows, int) and isinstance(along, int) and rows > along
    found = Tile(1, 64)
    match target.kind.name:
        case "cuda":
            found = Tile(*((4, 64) if tall else (16, 32)), vector=4, unroll=256)
        case "metal":
            found = Tile(8, 32, vector=4, unroll=8)
            if not tall:
                found.rows_axis, found.along_axis = "threadIdx.x", "threadIdx.y"
        case "rocm":
            found = Tile(*((1, 128) if tall else (8, 64)), vector=4, unroll=256)
        case "vulkan":
            found = Tile(*((4, 32) if tall else (16, 32)), vector=4, unroll=256)
    if is_adreno(target):
        found = Tile(2, 32, vector=8, unroll=8, rows_axis="threadIdx.x", along_axis="threadIdx.y")
    elif is_mali(target):
        found = Tile(1, 64, vector=8)
    if not isinstance(rows, int):
        found.rows, found.along = 1, 64
    found.rows_each = 2
    return found


# Elements that a thread sums one after the other in a step: eight unpacked together, four such groups for a scale.
_PACKED, _PACKS = 8, 4


def outer_reduction(
    sch: Schedule, target: Target, block: BlockRV, unpack: BlockRV, padding: BlockRV, bucket: int
) -> Schedule | None:
    """Schedules an unpacked matrix that is contiguous along the rows."""
    metal = target.kind.name == "metal"
    rows, along, width = (64, 4, 4) if metal else (32, 4, 1)

    def bind(ts: LoopRV, tr: LoopRV) -> None:
        sch.bind(ts, "threadIdx.x")
        sch.bind(tr, "threadIdx.y")

    b, s, r = sch.get_loops(block)
    by, batch = sch.split(b, [None, bucket])
    bx, ts = sch.split(s, [None, rows])
    r, tr, n, c = sch.split(r, [None, along, _PACKS, _PACKED])
    sch.reorder(by, bx, ts, r, batch, n, tr, c)
    parts = sch.rfactor(sch.fuse(tr, c), 0)
    tr, _ = sch.split(sch.get_loops(block)[-1], [along, _PACKED])
    sums = sch.rfactor(tr, 0)

    by, bx, ts, r, batch, n, trc = sch.get_loops(parts)
    tr, c = sch.split(trc, [along, _PACKED])
    sch.reorder(by, bx, ts, tr, r, n, batch, c)
    sch.bind(by, "blockIdx.y")
    sch.bind(bx, "blockIdx.x")
    bind(ts, tr)
    auto_vectorize(sch, c, width)

    sch.compute_at(unpack, n, preserve_unit_loops=True)
    sch.set_scope(unpack, 0, "local")
    auto_vectorize(sch, sch.fuse(*sch.get_loops(unpack)[6:]), width)
    for position in range(2):
        packed = sch.cache_read(unpack, position, "local")
        sch.compute_at(packed, r, preserve_unit_loops=True)
        auto_vectorize(sch, sch.fuse(*sch.get_loops(packed)[5:]), width)
    if metal:
        sch.set_scope(padding, 0, "shared")
        sch.compute_at(padding, r, preserve_unit_loops=True)
        sch.storage_align(padding, 0, axis=-2, factor=8, offset=1)
        tr, ts, v = sch.split(sch.fuse(*sch.get_loops(padding)[5:]), [along, rows, None])
        bind(ts, tr)
        auto_vectorize(sch, v, width)
    else:
        sch.compute_inline(padding)

    sch.reverse_compute_at(sums, bx, preserve_unit_loops=True)
    tr, c, batch, ts = sch.get_loops(sums)[2:]
    ts = all_threads(sch, ts, rows)
    sch.reorder(ts, tr, batch, c)
    bind(ts, tr)
    sch.reverse_compute_at(block, bx, preserve_unit_loops=True)
    tr, batch, ts = sch.get_loops(block)[2:]
    ts = all_threads(sch, ts, rows)
    sch.reorder(batch, ts, tr)
    bind(ts, tr)
    for step in (parts, sums):
        sch.decompose_reduction(step, sch.get_loops(step)[4])
        sch.set_scope(step, 0, "local")
    consumers = sch.get_consumers(block)
    if not consumers:
        return sch
    if is_broadcast_epilogue(sch, block, consumers[0]):
        return None
    sch.reverse_compute_at(consumers[0], bx, preserve_unit_loops=True)
    sch.bind(all_threads(sch, sch.get_loops(consumers[0])[3], rows), "threadIdx.x")
    sch.set_scope(block, 0, "local")
    return sch
