"""Inlining: what several rules do first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...runtime.error import ScheduleError
from ...tir.schedule import BlockRV, Schedule
from ..analysis import BlockInfo
from ..analysis.recomputation import stays_small


def inline_into_consumers(sch: Schedule, block: BlockRV) -> None:
    """Computes a block where its result is read; `ScheduleError` where that cannot be, or would compute much again."""
    _check_size(sch, block, sch.get_consumers(block))
    sch.compute_inline(block)


def inline_into_producer(sch: Schedule, block: BlockRV) -> None:
    """Computes a block where what it reads is computed; `ScheduleError` as for `inline_into_consumers`."""
    for producer in sch.get_producers(block):
        _check_size(sch, producer, [block])
    sch.reverse_compute_inline(block)


def _check_size(sch: Schedule, producer: BlockRV, consumers: list[BlockRV]) -> None:
    block = sch.get(producer)
    if not stays_small(block, [sch.get(consumer) for consumer in consumers]):
        raise ScheduleError(f"`{block.name_hint}` is read at several places, and too much to be computed at each")


def try_inline(sch: Schedule, blocks: list[BlockInfo]) -> list[BlockInfo]:
    """Inlines what can be inlined, into consumers or else into producers; returns the blocks that are left."""
    left = list(blocks)
    into_consumers, into_producer = partial(inline_into_consumers, sch), partial(inline_into_producer, sch)
    while _inline_one(into_consumers, left) or _inline_one(into_producer, left):
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
