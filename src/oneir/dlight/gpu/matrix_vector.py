"""Matrix by vector, contiguous along the reduction: how threads share it out. One vector, or a few at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...target.target import Target
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ..analysis import is_broadcast_epilogue
from ..base.sizes import get_extent
from .base import unroll_explicitly


@dataclass(slots=True)
class Tile:
    """What a block of threads computes.

    rows, along: threads along the spatial axis, and along the reduction.
    vector: partial sums that a thread keeps side by side.
    unroll: steps of loops to unroll.
    load: bytes of the matrix that a thread loads at once.
    shared: elements of the vector that a thread loads at once into shared memory; 0 where the vector is read in place.
    shuffle: whether threads sum without shared memory.
    rows_axis, along_axis: the axes of threads.
    rows_each, along_each: rows and elements of a row for each thread.
    """

    rows: int
    along: int
    vector: int = 1
    unroll: int = 64
    load: int = 1
    shared: int = 0
    shuffle: bool = False
    rows_axis: str = "threadIdx.y"
    along_axis: str = "threadIdx.x"
    rows_each: int = 1
    along_each: int = 1

    def fit(self, target: Target) -> None:
        """Halves the threads until a block of the target has so many."""
        most = int(target.attrs.get("max_num_threads", 256))
        while self.rows * self.along > most:
            if self.rows > 1:
                self.rows //= 2
            else:
                self.along //= 2

    def divide(self, extent: object, group: object = 1) -> None:
        """Chooses elements for each thread: those unpacked together, or up to 8, so that threads divide the extent."""
        if isinstance(group, int) and group > 1:
            self.along_each = group
        else:
            self.along_each = max(max_factor(extent, [self.along * n for n in (1, 2, 4, 8)]) // self.along, 1)
        self.vector = min(max_factor(self.along_each, [1, 2, 4, 8]), self.vector)


def max_factor(extent: object, factors: list[int]) -> int:
    """The largest of some factors that divides an extent; 1 if none does, or the extent is symbolic."""
    return max((n for n in factors if isinstance(extent, int) and extent % n == 0), default=1)


def is_adreno(target: Target) -> bool:
    """Whether the target is an Adreno, or whatever OpenCL there is under Android."""
    return target.kind.name == "opencl" and ("android" in str(target.host) or "adreno" in str(target.attrs))


def is_mali(target: Target) -> bool:
    """Whether the target is a Mali under OpenCL."""
    return target.kind.name == "opencl" and "mali" in str(target.attrs)


def along_rows(
    sch: Schedule,
    block: BlockRV,
    tile: Tile,
    load: Callable[[BlockRV, LoopRV, LoopRV], None],
    bucket: int | None = None,
) -> LoopRV | None:
    """Shares out the loops `s, r` of a block, or `b, s, r` with a batch of which blocks of threads take `bucket` each.

    Sums are formed in three steps: `vector` partial sums in each thread, one sum in each thread, one of all threads.
    `load(parts, tr, r)` brings what the first step reads to where it is read: in the thread `tr`, in its steps `r`.
    Returns the loop over blocks of threads; None where threads and tiles do not make up the rows exactly.
    """
    batched = bucket is not None
    *_, s, r = sch.get_loops(block)
    sch.split(s, [None, tile.rows, tile.rows_each])
    r, tr, n, c = sch.split(r, [None, tile.along, tile.along_each // tile.vector, tile.vector])
    sch.reorder(r, n, tr, c)
    parts = sch.rfactor(sch.fuse(tr, c), 0)
    tr, _ = sch.split(sch.get_loops(block)[-1], [tile.along, None])
    sums = sch.rfactor(tr, 0)

    *batch, bx, ts, rows, r, n, trc = sch.get_loops(parts)
    tr, c = sch.split(trc, [tile.along, None])
    sch.reorder(bx, ts, tr, r, rows, n, c)
    sch.bind(bx, "blockIdx.x")
    _bind_threads(sch, tile, ts, tr)
    sch.vectorize(c)
    if batched:
        by, inner = sch.split(batch[0], [None, bucket])
        sch.bind(by, "blockIdx.y")
        sch.reorder(bx, ts, tr, r, inner)
    load(parts, tr, r)

    # The loops over blocks of threads that are outside of what is moved there.
    outer = 2 if batched else 1
    sch.reverse_compute_at(sums, bx, preserve_unit_loops=True)
    tr, c, *inner = sch.get_loops(sums)[outer:]
    batch, rest = (inner[:1], inner[1:]) if batched else ([], inner)
    found = _split_rows(sch, tile, rest)
    if found is None:
        return None
    ts, rows = found
    rows, v = sch.split(rows, [None, max_factor(tile.rows_each, [1, 2, 4, 8])])
    sch.reorder(ts, tr, rows, *batch, v, c)
    _bind_threads(sch, tile, ts, tr)
    sch.vectorize(v)

    sch.reverse_compute_at(block, bx, preserve_unit_loops=True)
    tr, *inner = sch.get_loops(block)[outer:]
    batch, rest = (inner[:1], inner[1:]) if batched else ([], inner)
    found = _split_rows(sch, tile, rest)
    if found is None:
        return None
    ts, rows = found
    sch.reorder(rows, *batch, ts, tr)
    _bind_threads(sch, tile, ts, tr)

    sch.decompose_reduction(parts, sch.get_loops(parts)[outer + 2])
    sch.decompose_reduction(sums, sch.get_loops(sums)[-1])
    for step in (parts, sums):
        sch.set_scope(step, 0, "local")
        unroll_explicitly(sch, sch.get_loops(step)[outer + 2], tile.unroll)
    return bx


def _bind_threads(sch: Schedule, tile: Tile, rows: LoopRV, along: LoopRV) -> None:
    sch.bind(rows, tile.rows_axis)
    sch.bind(along, tile.along_axis)


def _split_rows(sch: Schedule, tile: Tile, loops: list[LoopRV]) -> tuple[LoopRV, LoopRV] | None:
    """Loops over the rows of a block of threads as threads, and rows of each; None if these are not just as many."""
    outer, threads, each = sch.split(sch.fuse(*loops), [None, tile.rows, tile.rows_each])
    if get_extent(sch, outer) != 1:
        return None
    return sch.fuse(outer, threads), each


def all_threads(sch: Schedule, loop: LoopRV, threads: int) -> LoopRV:
    """Gives a loop over rows as many iterations as a block has threads; a condition idles those beyond the rows."""
    if get_extent(sch, loop) == threads:
        return loop
    return sch.fuse(*sch.split(loop, [None, threads]))


def schedule_epilogue(
    sch: Schedule, block: BlockRV, epilogue: BlockRV, tile: Tile, bx: LoopRV, batched: bool = False
) -> bool:
    """Computes the epilogue where the result is; returns whether threads and tiles divide the rows exactly."""
    sch.reverse_compute_at(epilogue, bx, preserve_unit_loops=True)
    fused = sch.fuse(*sch.get_loops(epilogue)[3 if batched else 1 :])
    if is_broadcast_epilogue(sch, block, epilogue):
        # Other threads than the one that has the result compute the epilogue from it.
        sch.set_scope(block, 0, "shared")
        _, ts, tr = sch.split(fused, [None, tile.rows, tile.along])
        _bind_threads(sch, tile, ts, tr)
        return True
    sch.set_scope(block, 0, "local")
    found = _split_rows(sch, tile, [fused])
    if found is None:
        return False
    sch.bind(found[0], tile.rows_axis)
    return True
