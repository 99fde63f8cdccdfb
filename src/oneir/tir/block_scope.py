"""Handles of blocks and loops, and the dependencies among the blocks of a scope.

for dependency in state.get_block_scope(root).get_deps_by_dst(consumer):
    print(dependency.src.stmt.name_hint, dependency.kind.name)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..ir.container import Array
from ..runtime.object import Object
from .buffer import Buffer
from .stmt import Stmt

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
    """The dependencies among the blocks directly below a block, which are given in the order in which they run."""

    def __init__(self, child_block_srefs: Iterable[StmtSRef]):
        self.src2deps: dict[StmtSRef, list[Dependency]] = {}
        self.dst2deps: dict[StmtSRef, list[Dependency]] = {}
        self.buffer_writers: dict[Buffer, list[StmtSRef]] = {}
        readers: dict[Buffer, list[StmtSRef]] = {}
        for child in child_block_srefs:
            block = child.stmt
            reads = dict.fromkeys(region.buffer for region in block.reads)
            writes = dict.fromkeys(region.buffer for region in block.writes)
            for buffer in reads:
                self._depend(self.buffer_writers.get(buffer, ()), child, DepKind.RAW)
            for buffer in writes:
                self._depend(self.buffer_writers.get(buffer, ()), child, DepKind.WAW)
                self._depend(readers.get(buffer, ()), child, DepKind.WAR)
            for buffer in reads:
                readers.setdefault(buffer, []).append(child)
            for buffer in writes:
                self.buffer_writers.setdefault(buffer, []).append(child)

    def _depend(self, sources: Iterable[StmtSRef], dst: StmtSRef, kind: DepKind) -> None:
        for src in sources:
            dependency = Dependency(src, dst, kind)
            self.src2deps.setdefault(src, []).append(dependency)
            self.dst2deps.setdefault(dst, []).append(dependency)

    def get_deps_by_src(self, block: StmtSRef) -> Array[Dependency]:
        """The dependencies of later blocks on a block."""
        return Array(self.src2deps.get(block, ()))

    def get_deps_by_dst(self, block: StmtSRef) -> Array[Dependency]:
        """The dependencies of a block on earlier ones."""
        return Array(self.dst2deps.get(block, ()))
