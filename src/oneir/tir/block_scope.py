"""Handles of blocks and loops, and the dependencies among the blocks of a scope.

for dependency in state.get_block_scope(root).get_deps_by_dst(consumer):
    print(dependency.src.stmt.name_hint, dependency.kind.name)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..ir.container import Array
from ..runtime.object import Object
from .buffer import Buffer
from .stmt import BufferRegion, Stmt

__all__ = ["BlockScope", "DepKind", "Dependency", "StmtSRef"]


class StmtSRef(Object):
    """A handle of a block or a loop of a schedule, which stays while the statement is replaced by others.

    `parent` is the handle of the nearest block or loop around it. Both are None once the statement is gone.
    """

    __slots__ = ("parent", "stmt")

    def __init__(self, stmt: Stmt | None, parent: StmtSRef | None = None):
        self.stmt: Any = stmt
        self.parent: Any = parent

    @staticmethod
    def inline_mark() -> StmtSRef:
        """The mark that means "inlined" in a decision on where to compute."""
        return INLINE

    @staticmethod
    def root_mark() -> StmtSRef:
        """The mark that means "not moved", at the root, in a decision on where to compute."""
        return ROOT


INLINE = StmtSRef(None)
ROOT = StmtSRef(None)


class DepKind(IntEnum):
    """The kind of a dependency of a block on an earlier one."""

    RAW = 0
    """It reads what the earlier one writes."""
    WAW = 1
    """Both write."""
    WAR = 2
    """It writes what the earlier one reads."""
    OPAQUE = 3


@dataclass(frozen=True, slots=True, eq=False)
class Dependency(Object):
    """`dst` must stay after `src`."""

    src: StmtSRef
    dst: StmtSRef
    kind: DepKind


class BlockScope(Object):
    """The dependencies among the blocks directly below a block, which are given in the order in which they run.

    A schedule makes a scope anew after each change, so only who accesses which buffer is noted in advance.

    `blocks` has the position of each block, `buffer_readers` and `buffer_writers` those that access a buffer, in order.
    """

    def __init__(self, child_block_srefs: Iterable[StmtSRef]):
        self.blocks = {child: i for i, child in enumerate(child_block_srefs)}
        self.buffer_readers: dict[Buffer, list[StmtSRef]] = {}
        self.buffer_writers: dict[Buffer, list[StmtSRef]] = {}
        for child in self.blocks:
            block = child.stmt
            for accessors, regions in ((self.buffer_readers, block.reads), (self.buffer_writers, block.writes)):
                for buffer in _buffers(regions):
                    accessors.setdefault(buffer, []).append(child)

    def accessors(self, buffer: Buffer) -> list[StmtSRef]:
        """The blocks that read or write a buffer, in order."""
        return self._accessors([buffer])

    def get_deps_by_src(self, block: StmtSRef) -> Array[Dependency]:
        """The dependencies of later blocks on a block."""
        later = [dst for dst in self._neighbours(block) if self.blocks[dst] > self.blocks[block]]
        return Array([d for dst in later for d in _dependencies([block], dst)])

    def get_deps_by_dst(self, block: StmtSRef) -> Array[Dependency]:
        """The dependencies of a block on earlier ones."""
        return Array(
            _dependencies([src for src in self._neighbours(block) if self.blocks[src] < self.blocks[block]], block)
        )

    def _neighbours(self, block: StmtSRef) -> list[StmtSRef]:
        """The blocks that access what a block accesses; none for a block of another scope."""
        if block not in self.blocks:
            return []
        return self._accessors([region.buffer for region in (*block.stmt.reads, *block.stmt.writes)])

    def _accessors(self, buffers: Iterable[Buffer]) -> list[StmtSRef]:
        found: set[StmtSRef] = set()
        for buffer in buffers:
            found.update(self.buffer_readers.get(buffer, ()), self.buffer_writers.get(buffer, ()))
        return sorted(found, key=self.blocks.__getitem__)


def _buffers(regions: Iterable[BufferRegion]) -> dict[Buffer, None]:
    """The buffers of regions, each once."""
    return dict.fromkeys([region.buffer for region in regions])


def _dependencies(sources: Sequence[StmtSRef], dst: StmtSRef) -> Iterator[Dependency]:
    """The dependencies of a block on earlier ones, which are given in order."""
    written = [(src, _buffers(src.stmt.writes)) for src in sources]
    for buffer in _buffers(dst.stmt.reads):
        yield from (Dependency(src, dst, DepKind.RAW) for src, writes in written if buffer in writes)
    for buffer in _buffers(dst.stmt.writes):
        yield from (Dependency(src, dst, DepKind.WAW) for src, writes in written if buffer in writes)
        yield from (Dependency(src, dst, DepKind.WAR) for src in sources if buffer in _buffers(src.stmt.reads))
