"""Matrix by matrix without tensor cores: tiles, and sums in parts where tiles are fewer than processors can take.

A product of few rows or columns has fewer tiles than a GPU has processors, or so few that these wait for what they
load. Then its sum is cut into parts, each part is a product by itself, and a second kernel adds the parts up and
computes what is computed from the result. A model of the time says which tile is taken, and how many parts:

    parts[p, s, i, j] = sum of A[s, i, k] * B[s, j, k] over the part p of k        one tile a block of threads
    C[s, i, j] = f(sum of parts[p, s, i, j] over p)                                one element a thread

Factors lie in shared memory across the sum, so that a thread loads the neighbouring rows and columns that it multiplies
at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.expr import as_int
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import BlockRV, Schedule
from ..analysis import get_root_block
from ..analysis.gemm import IterKind, get_index_map, get_reduction_blocks
from ..base.sizes import get_extent
from .base import PROCESSORS, GPUScheduleRule, unroll_explicitly
from .inlining import auto_inline_consumer_chain, auto_inline_producers
from .matmul import across_sum, as_batched_product, axes_of, innermost_index

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


_TILES = (_Tile(16, 16, 2, 2), _Tile(8, 16, 2, 2), _Tile(16, 8, 1, 2), _Tile(8, 16, 1, 1))
"""Of 128×128, 64×128, 64×64 and 32×64 elements."""


@dataclass(frozen=True)
class _Rate:
    """How fast threads that compute so many elements each are on an H100.

    threads: that a processor holds at once, for their registers.
    products: of a processor in a microsecond, where it has all of these threads.
    step: microseconds that a step of the sum takes at least, with the loads that it waits for.
    """

    threads: int
    products: float
    step: float


_RATES = {4: _Rate(512, 163e3, 1.5), 2: _Rate(768, 132e3, 0.96), 1: _Rate(1280, 105e3, 0.58)}
"""By the groups of 4×4 elements that a thread computes. Fitted, with the two constants below, to 464 measured products
of 16 shapes, of which the model says the time within 10 % (root mean square)."""
_LAUNCH = 1.1
"""Microseconds that a kernel takes besides."""
_ADDED_BYTES = 4.4e6
"""Bytes in a microsecond that are stored for parts, and read again to add them up."""
_UNEVEN = 1.3
"""How much longer steps take where parts do not divide the sum, because each load of the factors has a condition."""


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
        # Neighbours in the result are computed by neighbouring threads, which have the columns of tiles.
        rows_last = innermost_index(stmt.writes[0]) in axes_of(stmt, _I)
        order = (_S, _J, _I) if rows_last else (_S, _I, _J)
        if not as_batched_product(sch, block, (_S, _K, _I), (_S, _K, _J), order):
            return None
        extents = [as_int(get_extent(sch, loop)) or 0 for loop in sch.get_loops(block)]
        if not all(extents):
            return None
        batch, m, n, k = extents
        tile, parts = _plan(batch, m, n, k)
        sch.pad_einsum(block, [1, *tile.sizes, parts * _STEP])
        if parts == 1:
            result = _tiled(sch, block, tile, across, rows_last, batch=1)
            return sch if auto_inline_consumer_chain(sch, result) else None
        outer, _ = sch.split(sch.get_loops(block)[-1], [parts, None])
        part = sch.rfactor(outer, 0)
        loops = sch.get_loops(part)
        sch.reorder(loops[3], *loops[:3], loops[4])
        _tiled(sch, part, tile, across, rows_last, batch=2)
        return sch if _added(sch, block) else None


def _plan(batch: int, m: int, n: int, k: int) -> tuple[_Tile, int]:
    """The tile of a product, and into how many parts its sum is cut: those that take the least time."""
    most = min(_MOST_PARTS, -(-k // _STEP))
    plans = [(tile, parts) for tile in _TILES for parts in range(1, most + 1)]
    return min(plans, key=lambda plan: _microseconds(*plan, batch, m, n, k))


def _microseconds(tile: _Tile, parts: int, batch: int, m: int, n: int, k: int) -> float:
    """How long a product takes: processors take rounds of as many blocks of threads as their registers hold."""
    rows, columns = tile.sizes
    rate = _RATES[tile.row_groups * tile.column_groups]
    resident = rate.threads // (tile.rows * tile.columns)
    tiles = batch * -(-m // rows) * -(-n // columns) * parts
    steps = -(-k // _STEP)
    each, uneven = -(-steps // parts), steps % parts != 0

    def step(blocks: int) -> float:
        return math.hypot(rate.step, blocks * rows * columns * _STEP / rate.products)

    rounds, rest = divmod(-(-tiles // PROCESSORS), resident)
    time = each * (rounds * step(resident) + (step(rest) if rest else 0)) * (_UNEVEN if uneven else 1)
    added = 8 * parts * batch * m * n / _ADDED_BYTES + _LAUNCH if parts > 1 else 0
    return _LAUNCH + time + added


def _tiled(
    sch: Schedule, block: BlockRV, tile: _Tile, across: tuple[bool, bool], rows_last: bool, batch: int
) -> BlockRV:
    """Tiles a product whose first loops, `batch` of them, say which product it is; returns the block that stores it.

    With `rows_last` the second factor has the rows of tiles, and the first one their columns.
    """
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
    for position, size in enumerate(reversed(tile.sizes) if rows_last else tile.sizes):
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
    # All parts are loaded at once, rather than each when the one before was added.
    sch.unroll(sch.get_loops(block)[2])
    return True
