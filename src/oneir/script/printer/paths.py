"""Which occurrences of nodes access paths lead to.

A node may stand in several places, so its identity does not tell an occurrence: that it is printed inside of the node
before it on the path does. What a path leads to need not have text of its own (a field that goes without saying, an
element that is missing); then the last node on the way that has is meant. So a program is printed twice: once to see
what has text, once with `choose`'s answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.access_path import AccessKind, AccessPath
from ...ir.node import Node


class Occurrences:
    """The nodes along paths from a root, and which of them are being printed."""

    def __init__(self, root: Any, paths: Iterable[AccessPath]):
        self._ways = [_nodes_along(root, path) for path in paths]
        self._seen: set[int] = set()
        self._open: list[int] = []
        self._wanted: list[tuple[int, int | None]] = []

    def enter(self, node: Any) -> None:
        """The text of a node begins."""
        self._seen.add(id(node))
        self._open.append(id(node))

    def leave(self) -> None:
        """The text of the innermost node ends."""
        self._open.pop()

    def meet(self, nodes: Iterable[Any]) -> None:
        """A line stands for nodes."""
        self._seen.update(map(id, nodes))

    def is_wanted(self, node: Any) -> bool:
        """Whether a path leads to a node, where it is being printed now."""
        return any(target == id(node) and (inside is None or inside in self._open) for target, inside in self._wanted)

    def choose(self) -> None:
        """Settles, after a first printing, for the last node with text on each path."""
        for way in self._ways:
            found = [id(node) for node in way if id(node) in self._seen]
            if found:
                self._wanted.append((found[-1], found[-2] if len(found) > 1 else None))


def node_at(root: Any, path: AccessPath) -> Any:
    """The last node on a path from a root."""
    return _nodes_along(root, path)[-1]


def _nodes_along(root: Any, path: AccessPath) -> list[Any]:
    """The nodes on the way, up to where the path leads nowhere."""
    value: Any = root
    nodes = [root]
    for step in path.steps:
        try:
            if step.kind is AccessKind.ATTR:
                value = getattr(value, step.key)
            elif step.kind in (AccessKind.ARRAY_ITEM, AccessKind.MAP_ITEM):
                container: Any = value
                value = container[step.key]
            else:
                break
        except (AttributeError, LookupError, TypeError):
            break
        if isinstance(value, Node):
            nodes.append(value)
    return nodes
