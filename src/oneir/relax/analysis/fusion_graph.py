"""Which bindings of a dataflow block may become one function: patterns, post-dominators, groups.

The algorithm is the classic one of operator fusion. Each binding is a node with a pattern; an edge leads from a value
to its use. A node is fused with its immediate post-dominator, the nearest node through which all its uses go, if the
patterns on all paths between them allow it, and with it go the nodes on those paths. Multiply-and-sum nodes take their
elementwise followers first, then injective nodes are fused among themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..operator_facts import OpPattern

ELEMENTWISE, BROADCAST, INJECTIVE = OpPattern.ELEMENTWISE, OpPattern.BROADCAST, OpPattern.INJECTIVE
REDUCE, FUSABLE, OPAQUE = OpPattern.COMM_REDUCE, OpPattern.OUT_EWISE_FUSABLE, OpPattern.OPAQUE


class FusionNode:
    """A value: its pattern, its uses, and whether it is seen outside of the block."""

    def __init__(self, index: int, value: Any, pattern: OpPattern):
        self.index, self.value, self.pattern = index, value, pattern
        self.uses: list[tuple[FusionNode, OpPattern]] = []
        self.reads: list[Any] = []
        """The tensors that the value is computed from: variables and constants."""
        self.tensors = 1
        """How many tensors the value is."""
        self.escapes = False
        # the tree of post-dominators
        self.dominator: FusionNode | None = None
        self.depth = 1
        self.path_pattern = OPAQUE
        # groups, a forest of disjoint sets
        self.group: FusionNode | None = None
        self.group_pattern = pattern
        self.size = 1
        self.members = [self]

    def root(self) -> FusionNode:
        """The node that stands for the group."""
        node = self
        while node.group is not None:
            node = node.group
        step = self
        while step.group is not None and step.group is not node:
            step.group, step = node, step.group
        return node


class FusionGraph:
    """The nodes of one dataflow block, each after those that it uses."""

    def __init__(self) -> None:
        self.nodes: list[FusionNode] = []
        self.max_tensors: int | None = None

    def add(self, value: Any, pattern: OpPattern) -> FusionNode:
        """A node for a value."""
        node = FusionNode(len(self.nodes), value, pattern)
        self.nodes.append(node)
        return node

    def partition(self, max_depth: int, max_tensors: int | None = None) -> None:
        """Forms the groups, of at most `max_depth` nodes, which read and give at most `max_tensors` (None: any number).

        What one node alone has stays, be it more.
        """
        self._find_dominators()
        self.max_tensors = max_tensors
        for phase in range(2):
            for node in self.nodes:
                self._fuse(node, phase, max_depth)

    def _find_dominators(self) -> None:
        for node in reversed(self.nodes):
            if node.escapes or not node.uses:
                continue
            parent, pattern = node.uses[0]
            for use, edge in node.uses[1:]:
                pattern = max(pattern, edge)
                parent, pattern = _common_dominator(parent, use, pattern)
                if parent is None:
                    break
            node.dominator, node.path_pattern = parent, pattern
            node.depth = parent.depth + 1 if parent is not None else 1

    def _fuse(self, node: FusionNode, phase: int, max_depth: int) -> None:
        target, pattern = node.dominator, node.group_pattern
        if pattern is OPAQUE or target is None:
            return
        if self._size_together(node, target) > max_depth:
            return
        if node.root() is target.root():
            return
        if pattern is FUSABLE:
            if phase == 0 and node.path_pattern is ELEMENTWISE:
                self._try(node, target, lambda p, end: p <= BROADCAST)
        elif pattern <= BROADCAST:
            if node.path_pattern <= INJECTIVE or node.path_pattern is REDUCE:
                self._try(node, target, lambda p, end: p <= INJECTIVE or (end and p in (REDUCE, FUSABLE)))
        elif pattern is INJECTIVE and phase == 1:
            self._try(node, target, lambda p, end: p <= INJECTIVE)

    def _try(self, node: FusionNode, target: FusionNode, allows: Callable[[OpPattern, bool], bool]) -> None:
        if self._path_allows(node, target, allows) and self._fits(node, target):
            self._commit(node, target)

    def _between(self, node: FusionNode, target: FusionNode) -> list[FusionNode]:
        """The nodes on all paths from `node` (left out) to `target`."""
        seen: dict[int, FusionNode] = {}
        pending = [use for use, _ in node.uses]
        while pending:
            step = pending.pop()
            if step.index in seen:
                continue
            seen[step.index] = step
            if step is not target:
                pending.extend(use for use, _ in step.uses)
        return list(seen.values())

    def _path_allows(self, node: FusionNode, target: FusionNode, allows: Callable[[OpPattern, bool], bool]) -> bool:
        return all(allows(step.root().group_pattern, step is target) for step in self._between(node, target))

    def _fits(self, node: FusionNode, target: FusionNode) -> bool:
        """Whether the group that would come about has no more tensors than a kernel may have."""
        if self.max_tensors is None:
            return True
        roots = {member.root().index: member.root() for member in (node, target, *self._between(node, target))}
        members = [member for root in roots.values() for member in root.members]
        inside = {member.index for member in members}
        made = {id(member.value) for member in members}
        read = {id(value) for member in members for value in member.reads} - made
        given = [m for m in members if m.escapes or any(use.index not in inside for use, _ in m.uses)]
        return len(read) + sum(member.tensors for member in given) <= self.max_tensors

    def _commit(self, node: FusionNode, target: FusionNode) -> None:
        for member in (node, *self._between(node, target)):
            _merge(member, target)

    def _size_together(self, node: FusionNode, target: FusionNode) -> int:
        groups = {member.root().index: member.root() for member in (node, target)}
        if target.root() is not node.root():
            groups |= {member.root().index: member.root() for member in self._between(node, target)}
        return sum(root.size for root in groups.values())


def _common_dominator(
    a: FusionNode | None, b: FusionNode | None, pattern: OpPattern
) -> tuple[FusionNode | None, OpPattern]:
    while a is not b:
        if a is None or b is None:
            return None, pattern
        if a.depth >= b.depth:
            pattern, a_next = max(pattern, a.path_pattern), a.dominator
            if a.depth == b.depth:
                pattern, b = max(pattern, b.path_pattern), b.dominator
            a = a_next
        else:
            pattern, b = max(pattern, b.path_pattern), b.dominator
    return a, pattern


def _merge(child: FusionNode, parent: FusionNode) -> None:
    child, parent = child.root(), parent.root()
    if child is parent:
        return
    child.group = parent
    parent.size += child.size
    parent.members += child.members
    # What is multiplied and summed anchors the group, whose pattern is the stronger of both from then on.
    if child.group_pattern is FUSABLE:
        parent.group_pattern = max(parent.group_pattern, child.group_pattern)
