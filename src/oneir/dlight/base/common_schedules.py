"""Inlining: what several rules do first."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.error import ScheduleError
from ...tir.schedule import BlockRV, Schedule
from ..analysis import BlockInfo


def try_inline(sch: Schedule, blocks: list[BlockInfo]) -> list[BlockInfo]:
    """Inlines what can be inlined, into consumers or else into producers; returns the blocks that are left."""
    left = list(blocks)
    while _inline_one(sch.compute_inline, left) or _inline_one(sch.reverse_compute_inline, left):
        pass
    return left


def _inline_one(inline: Callable[[BlockRV], None], blocks: list[BlockInfo]) -> bool:
    """Inlines the first block that can be, and takes it from the list."""
    for position, block in enumerate(blocks):
        try:
            inline(block.block_rv)
        except ScheduleError:
            continue
        del blocks[position]
        return True
    return False


def try_inline_contiguous_spatial(sch: Schedule, block_infos: list[BlockInfo] | None) -> list[BlockInfo] | None:
    """Inlines within each run of blocks between reductions; returns the blocks that are left, None for None."""
    if block_infos is None:
        return None
    left: list[BlockInfo] = []
    run: list[BlockInfo] = []
    for block in block_infos:
        if block.is_injective():
            run.append(block)
            continue
        left += [*try_inline(sch, run), block]
        run = []
    return left + try_inline(sch, run)
