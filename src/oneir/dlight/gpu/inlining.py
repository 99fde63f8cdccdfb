"""Inlining around one block: what computes its inputs, and what is computed from its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...runtime.error import ScheduleError
from ...tir.schedule import BlockRV, Schedule
from ...tir.stmt import Block
from ..base.common_schedules import inline_into_consumers, inline_into_producer


def _transitive(sch: Schedule, block: BlockRV, step: Callable[[BlockRV], list[BlockRV]]) -> list[BlockRV]:
    """The blocks found by following `step` from a block, each once."""
    found: dict[Block, BlockRV] = {}

    def follow(start: BlockRV) -> None:
        for other in step(start):
            if found.setdefault(sch.get(other), other) is other:
                follow(other)

    follow(block)
    return list(found.values())


def _inline_all(inline: Callable[[BlockRV], None], blocks: list[BlockRV]) -> bool:
    """Inlines those of some blocks that can be; returns whether any was."""
    inlined = False
    for block in blocks:
        try:
            inline(block)
        except ScheduleError:
            continue
        inlined = True
    return inlined


def auto_inline_producers(sch: Schedule, block: BlockRV) -> None:
    """Inlines the transitive producers of a block, as far as possible."""
    while _inline_all(partial(inline_into_consumers, sch), _transitive(sch, block, sch.get_producers)):
        pass


def auto_inline_consumers(sch: Schedule, block: BlockRV) -> None:
    """Inlines the transitive consumers of a block: into their own consumers, or else into the block."""
    inlined = True
    while inlined:
        inlined = _inline_all(partial(inline_into_consumers, sch), _transitive(sch, block, sch.get_consumers))
        into_producer = partial(inline_into_producer, sch)
        inlined = _inline_all(into_producer, _transitive(sch, block, sch.get_consumers)) or inlined


def auto_inline_consumer_chain(sch: Schedule, block: BlockRV) -> bool:
    """Inlines all transitive consumers of a block into it, and what they need besides; returns whether none is left."""
    auto_inline_consumers(sch, block)
    consumers = sch.get_consumers(block)
    for consumer in consumers:
        for producer in sch.get_producers(consumer):
            if sch.get(producer) is not sch.get(block):
                auto_inline_producers(sch, producer)
                inline_into_consumers(sch, producer)
    if consumers:
        auto_inline_consumers(sch, block)
    return not sch.get_consumers(block)
