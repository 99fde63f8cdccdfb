"""Access paths: where in a structure a part of it stands.

    AccessPath.root().attr("body").array_item(1)  # <root>.body[1]

Paths are values: two that take the same steps are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ..runtime.object import Object


class AccessKind(IntEnum):
    """What one step of a path does."""

    ATTR = 0
    ARRAY_ITEM = 1
    MAP_ITEM = 2
    ATTR_MISSING = 3
    ARRAY_ITEM_MISSING = 4
    MAP_ITEM_MISSING = 5


_TEXTS = {
    AccessKind.ATTR: ".{0}",
    AccessKind.ARRAY_ITEM: "[{0}]",
    AccessKind.MAP_ITEM: "[{0!r}]",
    AccessKind.ATTR_MISSING: ".<missing attribute {0}>",
    AccessKind.ARRAY_ITEM_MISSING: "[<missing element #{0}>]",
    AccessKind.MAP_ITEM_MISSING: "[<missing entry {0!r}>]",
}


class AccessStep(Object):
    """One step: a field, an element of a sequence or an entry of a mapping, which may be one that is missing."""

    __slots__ = ("key", "kind")

    def __init__(self, kind: AccessKind, key: Any):
        self.kind, self.key = AccessKind(kind), key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessStep) and self.kind is other.kind and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash((self.kind, self.key))

    def __str__(self) -> str:
        return _TEXTS[self.kind].format(self.key)

    __repr__ = __str__


class AccessPath(Object):
    """Steps from a root, none at the root itself; `depth` is their number."""

    __slots__ = ("steps",)

    def __init__(self, steps: Sequence[AccessStep] = ()):
        self.steps = tuple(steps)

    @staticmethod
    def root() -> AccessPath:
        """The path of no steps."""
        return AccessPath()

    @property
    def depth(self) -> int:
        """The number of steps."""
        return len(self.steps)

    @property
    def step(self) -> AccessStep | None:
        """The last step; None at the root."""
        return self.steps[-1] if self.steps else None

    @property
    def parent(self) -> AccessPath | None:
        """The path without its last step; None at the root."""
        return AccessPath(self.steps[:-1]) if self.steps else None

    def to_steps(self) -> list[AccessStep]:
        """The steps, from the root on."""
        return list(self.steps)

    def is_prefix_of(self, other: AccessPath) -> bool:
        """Whether `other` takes the same steps, and perhaps some more."""
        return self.steps == other.steps[: self.depth]

    def _then(self, kind: AccessKind, key: Any) -> AccessPath:
        return AccessPath((*self.steps, AccessStep(kind, key)))

    def attr(self, attr_key: str) -> AccessPath:
        """The field `attr_key`."""
        return self._then(AccessKind.ATTR, attr_key)

    def attr_missing(self, attr_key: str) -> AccessPath:
        """The field `attr_key`, which is not there."""
        return self._then(AccessKind.ATTR_MISSING, attr_key)

    def array_item(self, index: int) -> AccessPath:
        """The element at `index`."""
        return self._then(AccessKind.ARRAY_ITEM, index)

    def array_item_missing(self, index: int) -> AccessPath:
        """The element at `index`, past the end of the sequence."""
        return self._then(AccessKind.ARRAY_ITEM_MISSING, index)

    def map_item(self, key: Any) -> AccessPath:
        """The entry of `key`."""
        return self._then(AccessKind.MAP_ITEM, key)

    def map_item_missing(self, key: Any) -> AccessPath:
        """The entry of `key`, which the mapping lacks."""
        return self._then(AccessKind.MAP_ITEM_MISSING, key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessPath) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __str__(self) -> str:
        return "<root>" + "".join(map(str, self.steps))

    __repr__ = __str__
