"""Matrix by matrix without tensor cores: large tiles where all processors get one, and sums in parts where they do not.

A product of few rows or columns has fewer tiles than a GPU has processors. Then its sum is cut into parts, each part is
a product by itself, and a second kernel adds the parts up and computes what is computed from the result:

    parts[p, s, i, j] = sum of A[s, i, k] * B[s, j, k] over the part p of k        one tile a block of threads
    C[s, i, j] = f(sum of parts[p, s, i, j] over p)                                one element a thread

Factors lie in shared memory across the sum, so that a thread loads the neighbouring rows and columns that it multiplies
at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...ir.expr import as_int
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, Schedule
from ..analysis import get_root_block
from ..analysis.gemm import IterKind, get_index_map, get_reduction_blocks
from ..base.sizes import get_extent
from .base import PROCESSORS, GPUScheduleRule, unroll_explicitly
from .inlining import auto_inline_consumer_chain, auto_inline_producers
from .matmul import across_sum, as_batched_product

_S, _I, _J, _K, _ = IterKind
_STEP = 16
"""Of a sum, what a block of threads holds in shared memory at once."""
_MOST_PARTS = 32
_ADDING_THREADS = 256


@dataclass(frozen=True)
class _Tile:
    """Threads of a block along the rows and the columns, and how many groups of four of each a thread computes."""

    rows: int
    columns: int
    row_groups: int
    column_groups: int

    @property
    def sizes(self) -> tuple[int, int]:
        """The rows and columns of the tile."""
        return 4 * self.rows * self.row_groups, 4 * self.columns * self.column_groups


_TILES = (_Tile(16, 16, 2, 2), _Tile(16, 16, 1, 1), _Tile(8, 16, 1, 1))
"""The largest first: of 128×128, 64×64 and 32×64 elements."""


class MatmulInParts(GPUScheduleRule):
    """Any sum of products of two tensors in float32, of known extents.

    Extents are padded to whole tiles; what computes the factors goes into the loads of their tiles.
    """

    def schedule(self, func: PrimFunc, target: Target) -> Schedule | None:
        sch = Schedule(func)
        found = get_reduction_blocks(sch, sch.get_child_blocks(get_root_block(sch)))
        if found is None or get_index_map(sch.get(found[0])) is None:
            return None
        (block,) = found
        stmt = sch.get(block)
        across = across_sum(stmt)
        if across is None or any(region.buffer.dtype != "float32" for region in (*stmt.reads, *stmt.writes)):
            return None
        if not as_batched_product(sch, block, (_S, _K, _I), (_S, _K, _J)):
            return None
        extents = [as_int(get_extent(sch, loop)) or 0 for loop in sch.get_loops(block)]
        if not all(extents):
            return None
        batch, m, n, k = extents
        tile, parts = _plan(batch, m, n, k)
        sch.pad_einsum(block, [1, *tile.sizes, parts * _STEP])
        if parts == 1:
            result = _tiled(sch, block, tile, across, batch=1)
            return sch if auto_inline_consumer_chain(sch, result) else None
        outer, _ = sch.split(sch.get_loops(block)[-1], [parts, None])
        part = sch.rfactor(outer, 0)
        loops = sch.get_loops(part)
        sch.reorder(loops[3], *loops[:3], loops[4])
        _tiled(sch, part, tile, across, batch=2)
        return sch if _added(sch, block) else None


def _plan(batch: int, m: int, n: int, k: int) -> tuple[_Tile, int]:
    """The tile of a product, and into how many parts its sum is cut."""

    def count(tile: _Tile) -> int:
        return batch * prod(-(-extent // size) for extent, size in zip((m, n), tile.sizes, strict=True))

    for tile in _TILES:
        # Two rounds of tiles keep the last round from leaving most processors without one.
        if count(tile) >= 2 * PROCESSORS:
            return tile, 1
    tile = _TILES[-1] if m <= 32 else _TILES[1]
    steps = -(-k // _STEP)
    parts = max(1, min(_MOST_PARTS, 2 * PROCESSORS // count(tile), steps // 4))
    return tile, parts


def _tiled(sch: Schedule, block: BlockRV, tile: _Tile, across: tuple[bool, bool], batch: int) -> BlockRV:
    """Tiles a product whose first loops, `batch` of them, say which product it is; returns the block that stores it."""
    *outer, i, j, k = sch.get_loops(block)
    by, vy, ty, yi = sch.split(i, [None, tile.row_groups, tile.rows, 4])
    bx, vx, tx, xi = sch.split(j, [None, tile.column_groups, tile.columns, 4])
    ko, ki = sch.split(k, [None, _STEP])
    sch.reorder(*outer, by, bx, vy, vx, ty, tx, ko, ki, yi, xi)
    outer = [*outer, by]
    for loop, axis in (
        (bx, "blockIdx.x"),
        (sch.fuse(*outer), "blockIdx.y"),
        (vy, "vthread.y"),
        (vx, "vthread.x"),
        (ty, "threadIdx.y"),
        (tx, "threadIdx.x"),
    ):
        sch.bind(loop, axis)
    sch.vectorize(xi)
    unroll_explicitly(sch, tx, 256)
    result = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(result, tx, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(result)[-1])
    for position, size in enumerate(tile.sizes):
        copy = sch.cache_read(block, position, "shared")
        own = len(sch.get_loops(copy))
        sch.compute_at(copy, ko, preserve_unit_loops=True)
        *rest, along, side = sch.get_loops(copy)[-own:]
        if not across[position]:  # neighbours in memory are neighbours along the sum
            sch.reorder(side, along)
            along, side = side, along
        fused = sch.fuse(*rest, along, side)
        width = max(1, min(4, size * _STEP // (tile.rows * tile.columns)))
        _, ty, tx, v = sch.split(fused, [None, tile.rows, tile.columns, width])
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(v)
        if not across[position]:
            sch.storage_align(copy, 0, axis=-2, factor=4 * 8, offset=4)
        auto_inline_producers(sch, copy)
    sch.decompose_reduction(block, ko)
    return result


def _added(sch: Schedule, block: BlockRV) -> bool:
    """Adds up parts, an element a thread, with all that is computed from it."""
    result = sch.cache_write(block, 0, "local")
    if not auto_inline_consumer_chain(sch, result):
        return False
    fused = sch.fuse(*sch.get_loops(result))
    bx, tx = sch.split(fused, [None, _ADDING_THREADS])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.compute_at(block, tx, preserve_unit_loops=True)
    sch.decompose_reduction(block, sch.get_loops(block)[2])
    return True
