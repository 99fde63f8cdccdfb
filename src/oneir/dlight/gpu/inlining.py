"""Inlining around one block: what computes its inputs, and what is computed from its result."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.error import ScheduleError
from ...tir.schedule import BlockRV, Schedule
from ...tir.stmt import Block


def _reached(sch: Schedule, block: BlockRV, step: Callable[[BlockRV], list[BlockRV]]) -> list[BlockRV]:
    """The blocks that steps lead to from a block, each once, nearest first on each way."""
    found: dict[Block, BlockRV] = {}

    def follow(start: BlockRV) -> None:
        for other in step(start):
            if found.setdefault(sch.get(other), other) is other:
                follow(other)

    follow(block)
    return list(found.values())


def _inline_all(inline: Callable[[BlockRV], None], blocks: list[BlockRV]) -> bool:
    """Inlines those blocks that can be, and says whether one could."""
    inlined = False
    for block in blocks:
        try:
            inline(block)
        except ScheduleError:
            continue
        inlined = True
    return inlined


def auto_inline_producers(sch: Schedule, block: BlockRV) -> None:
    """Inlines what a block's inputs are computed by, as far as possible."""
    while _inline_all(sch.compute_inline, _reached(sch, block, sch.get_producers)):
        pass


def auto_inline_consumers(sch: Schedule, block: BlockRV) -> None:
    """Inlines what is computed from a block's result: into what comes after, or else into the block."""
    inlined = True
    while inlined:
        inlined = _inline_all(sch.compute_inline, _reached(sch, block, sch.get_consumers))
        inlined = _inline_all(sch.reverse_compute_inline, _reached(sch, block, sch.get_consumers)) or inlined


def auto_inline_consumer_chain(sch: Schedule, block: BlockRV) -> bool:
    """Inlines all that is computed from a block's result into it, with what else that needs; says whether all is in."""
    auto_inline_consumers(sch, block)
    consumers = sch.get_consumers(block)
    for consumer in consumers:
        for producer in sch.get_producers(consumer):
            if sch.get(producer) is not sch.get(block):
                auto_inline_producers(sch, producer)
                sch.compute_inline(producer)
    if consumers:
        auto_inline_consumers(sch, block)
    return not sch.get_consumers(block)
