"""GEMV: a matrix, or what is unpacked to one, by a vector."""

from __future__ import annotations

from math import prod

from ...ir.expr import IntImm
from ...target.target import Target
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ..analysis import is_broadcast_epilogue, is_gemv, normalize, normalize_prim_func
from ..base.common_schedules import try_inline_contiguous_spatial
from ..base.sizes import auto_vectorize, get_bytes, get_extent
from .base import GPUScheduleRule, unroll_explicitly
from .matrix_vector import Tile, all_threads, along_rows, is_adreno, is_mali, max_factor, schedule_epilogue


class GEMV(GPUScheduleRule):
    """`[B, S] = [B, S, R] * [B, R]` or `[S] = [S, R] * [R]`, and perhaps one block that is computed from it."""

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if infos is None or len(infos) not in (1, 2) or (len(infos) == 2 and not infos[1].is_injective()):
            return None
        info, epilogue = infos[0], infos[1].block_rv if len(infos) == 2 else None
        if len(info.iters) not in (2, 3):
            return None
        vectors = is_gemv(sch, info)
        if vectors is None:
            return None
        inner = normalize(sch, info)
        if inner is None:
            return None
        block = info.block_rv
        if inner:
            return inner_reduction(sch, target, block, vectors, epilogue)
        if target.kind.name == "metal" or is_adreno(target):
            found = outer_reduction(sch, target, block, vectors, epilogue)
            return found or (adreno_reduction(sch, block, vectors, epilogue) if is_adreno(target) else None)
        return None


def inner_reduction(
    sch: Schedule, target: Target, block: BlockRV, vectors: list[Buffer], epilogue: BlockRV | None
) -> Schedule | None:
    """Schedules a matrix that is contiguous along the reduction."""
    batch, s, r, c = (get_extent(sch, loop) for loop in sch.get_loops(block))
    rows, along = batch * s, r * c
    tile = tile_for(target, rows, along)
    tile.fit(target)
    tile.divide(r, c)
    limit = int(target.attrs.get("max_shared_memory_per_block", 0))
    shared = bool(tile.shared) and _shared_bytes(vectors, tile) <= limit
    if shared and len(vectors) != 1:
        return None

    def load(parts: BlockRV, tr: LoopRV, r: LoopRV) -> None:
        reads = [region.buffer for region in sch.get(parts).reads]
        vector = next(i for i, buffer in enumerate(reads) if buffer in vectors)
        matrix = next(i for i, buffer in enumerate(reads) if buffer not in vectors)
        part = sch.cache_read(parts, matrix, "local")
        sch.compute_at(part, r, preserve_unit_loops=True)
        width = max(1, tile.load // get_bytes(reads[matrix].dtype))
        _, v = sch.split(sch.fuse(*sch.get_loops(part)[-2:]), [None, width])
        sch.vectorize(v)
        if shared:
            _load_vector(sch, parts, vector, tile, tr)

    batch, s, r, c = sch.get_loops(block)
    sch.fuse(batch, s)
    sch.fuse(r, c)
    bx = along_rows(sch, block, tile, load)
    if bx is None or (epilogue is not None and not schedule_epilogue(sch, block, epilogue, tile, bx)):
        return None
    return sch


def tile_for(target: Target, rows: object, along: object) -> Tile:
    """The tile of a matrix of so many rows and elements a row, ints where they are known."""
    known = isinstance(rows, int)
    # What wins on long and on wide matrices differs.
    tall = isinstance(rows, int) and isinstance(along, int) and rows > along
    threads = (1, 64)
    match target.kind.name:
        case "cuda":
            threads = (16, 32) if known else threads
            return Tile(*threads, vector=4, unroll=256, load=4, shared=8, shuffle=True)
        case "metal":
            threads = ((4, 16) if tall else (2, 64)) if known else threads
            return Tile(*threads, unroll=256, shuffle=True, rows_axis="threadIdx.x", along_axis="threadIdx.y")
        case "rocm":
            threads = ((1, 128) if tall else (8, 64)) if known else threads
            return Tile(*threads, vector=4, unroll=256)
        case "vulkan":
            threads = ((4, 32) if tall else (16, 32)) if known else threads
            return Tile(*threads, vector=4, unroll=256, shared=4)
    if is_adreno(target):
        return Tile(2, 32, vector=8, unroll=8, rows_axis="threadIdx.x", along_axis="threadIdx.y")
    return Tile(1, 64, vector=8 if is_mali(target) else 1)


def _shared_bytes(vectors: list[Buffer], tile: Tile) -> float:
    """The shared memory for vectors, and for sums where threads cannot do without; infinite for symbolic extents."""
    total = 0
    for buffer in vectors:
        extents = [extent.value for extent in buffer.shape if isinstance(extent, IntImm)]
        if len(extents) != len(buffer.shape):
            return float("inf")
        total += (prod(extents) + (0 if tile.shuffle else tile.rows * tile.along)) * get_bytes(buffer.dtype)
    return total


def _load_vector(sch: Schedule, parts: BlockRV, position: int, tile: Tile, tr: LoopRV) -> None:
    """Has the threads of a block load the vector into shared memory, together."""
    vector = sch.cache_read(parts, position, "shared")
    sch.compute_at(vector, tr, preserve_unit_loops=True)
    loop = sch.get_loops(vector)[-1]
    threads = tile.rows * tile.along
    extent = get_extent(sch, loop)
    # A vector that is no multiple of this would need a condition.
    width = max(min(max_factor(extent, [threads * n for n in (1, 2, 4, 8)]) // threads, tile.shared), 1)
    sizes = [tile.rows, tile.along] if tile.along_axis == "threadIdx.x" else [tile.along, tile.rows]
    outer, ty, tx, v = sch.split(loop, [None, *sizes, width if isinstance(extent, int) else tile.shared])
    sch.bind(ty, "threadIdx.y")
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(v)
    sch.annotate(outer, "pragma_unroll_explicit", tile.unroll)
    sch.annotate(outer, "pragma_vectorize", 1)


# Elements that a thread sums one after the other in a step: eight unpacked together, four such groups for a scale.
_PACKED, _PACKS = 8, 4


def outer_reduction(
    sch: Schedule, target: Target, block: BlockRV, vectors: list[Buffer], epilogue: BlockRV | None
) -> Schedule | None:
    """Schedules a matrix that is contiguous along the rows: neighbouring threads load neighbouring elements."""
    _, s, r, c = (get_extent(sch, loop) for loop in sch.get_loops(block))
    metal = target.kind.name == "metal"
    tile = Tile(128 if metal else 64, 4, 4 if metal else 8, 8, rows_axis="threadIdx.x", along_axis="threadIdx.y")
    if not isinstance(r, int) or r < tile.along * _PACKS * _PACKED or (isinstance(s, int) and s > 96000):
        return None
    if not isinstance(s, int):
        tile.rows, tile.along = 256, 1
        each = c if isinstance(c, int) and c > 1 else max_factor(r, [1, 2, 4, 8])
        tile.shared = min(max_factor(each, [1, 2, 4, 8]), 4)

    batch, s, r, c = sch.get_loops(block)
    bx, ts = sch.split(sch.fuse(batch, s), [None, tile.rows])
    r, v, tr, n, c = sch.split(sch.fuse(r, c), [None, 1, tile.along, _PACKS, _PACKED])
    sch.reorder(bx, ts, r, v, n, tr, c)
    parts = sch.rfactor(sch.fuse(tr, c), 0)
    tr, _ = sch.split(sch.get_loops(block)[-1], [tile.along, None])
    sums = sch.rfactor(tr, 0)

    bx, ts, r, v, n, trc = sch.get_loops(parts)
    tr, c = sch.split(trc, [tile.along, _PACKED])
    sch.reorder(bx, ts, tr, r, v, n, c)
    sch.bind(bx, "blockIdx.x")
    sch.bind(ts, tile.rows_axis)
    sch.bind(tr, tile.along_axis)
    auto_vectorize(sch, c, tile.vector)
    _load_packed(sch, parts, vectors, tile, r, v, n)

    sch.reverse_compute_at(sums, bx, preserve_unit_loops=True)
    tr, c, ts = sch.get_loops(sums)[1:]
    ts = all_threads(sch, ts, tile.rows)
    sch.reorder(ts, tr, c)
    sch.bind(ts, tile.rows_axis)
    sch.bind(tr, tile.along_axis)
    sch.reverse_compute_at(block, bx, preserve_unit_loops=True)
    tr, ts = sch.get_loops(block)[1:]
    ts = all_threads(sch, ts, tile.rows)
    sch.reorder(ts, tr)
    sch.bind(ts, tile.rows_axis)
    sch.bind(tr, tile.along_axis)

    sch.decompose_reduction(parts, sch.get_loops(parts)[2])
    sch.decompose_reduction(sums, sch.get_loops(sums)[-1])
    for step in (parts, sums):
        sch.set_scope(step, 0, "local")
    unroll_explicitly(sch, sch.get_loops(sums)[3], tile.unroll)
    if epilogue is not None:
        broadcast = is_broadcast_epilogue(sch, block, epilogue)
        sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
        sch.set_scope(block, 0, "shared" if broadcast else "local")
        fused = sch.fuse(*sch.get_loops(epilogue)[1:])
        if broadcast:
            _, ts = sch.split(fused, [None, tile.rows])
        else:
            ts, _ = sch.split(fused, [tile.rows, None])
        sch.bind(ts, tile.rows_axis)
    return sch


def _load_packed(
    sch: Schedule, parts: BlockRV, vectors: list[Buffer], tile: Tile, r: LoopRV, v: LoopRV, n: LoopRV
) -> None:
    """Loads scales once for all groups, packed elements once a group, and a vector into shared memory if asked to."""
    reads = [region.buffer for region in sch.get(parts).reads]
    vector = next(i for i, buffer in enumerate(reads) if buffer in vectors)
    matrix, *scales = [i for i, buffer in enumerate(reads) if buffer not in vectors]
    for position, loop in (*((scale, v) for scale in scales[:1]), (matrix, n)):
        sch.compute_at(sch.cache_read(parts, position, "local"), loop, preserve_unit_loops=True)
    if not tile.shared:
        return
    block = sch.cache_read(parts, vector, "shared")
    sch.compute_at(block, r, preserve_unit_loops=True)
    _, _, ts, tr, w = sch.split(sch.get_loops(block)[-1], [None, 1, tile.rows, tile.along, tile.shared])
    sch.bind(tr, tile.along_axis)
    sch.bind(ts, tile.rows_axis)
    auto_vectorize(sch, w, tile.shared)


def adreno_reduction(sch: Schedule, block: BlockRV, vectors: list[Buffer], epilogue: BlockRV | None) -> Schedule:
    """Schedules a matrix that is contiguous along the rows, for Adreno: each thread sums for a few neighbours."""
    batch, s, r, c = sch.get_loops(block)
    rows = get_extent(sch, s)
    threads, width = 128, ((4 if rows > 4096 else 2) if isinstance(rows, int) else 1)
    bx, tx, v = sch.split(s, [None, threads, width])
    outer, inner = sch.split(r, [None, 4])
    sch.bind(batch, "blockIdx.y")
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.reorder(bx, tx, outer, inner, c, v)
    unroll_explicitly(sch, tx, 8)
    vector = sch.cache_read(block, vectors[0], "shared")
    sch.compute_at(vector, bx, preserve_unit_loops=True)
    _, tx, w = sch.split(sch.get_loops(vector)[-1], [None, threads, 8])
    sch.bind(tx, "threadIdx.x")
    sch.vectorize(w)
    sch.vectorize(v)
    if epilogue is not None:
        sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
        tx, w = sch.split(sch.get_loops(epilogue)[-1], [threads, width])
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(w)
        sch.set_scope(block, 0, "local")
    sch.decompose_reduction(block, outer)
    return sch
