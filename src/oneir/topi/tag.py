"""The tags of operators: what kind of operation a stage is.

A tag may be composed, the general kind first: "injective,pad".
"""

from __future__ import annotations

ELEMWISE = "elemwise"
"""Each element of the output is a function of the elements at the same place in the inputs."""

BROADCAST = "broadcast"
"""Like elemwise, for inputs that are broadcast."""

INJECTIVE = "injective"
"""Each element of the output is a function of one element of each input, at whatever place."""

COMM_REDUCE = "comm_reduce"
"""A commutative reduction."""

COMM_REDUCE_IDX = "comm_reduce_idx"
"""A commutative reduction that gives positions, such as argmax."""

MATMUL = "matmul"
"""A product of matrices."""


def is_broadcast(tag: str) -> bool:
    """Whether a tag is elementwise or broadcasting."""
    return tag.startswith((ELEMWISE, BROADCAST))


def is_injective(tag: str) -> bool:
    """Whether a tag is elementwise, broadcasting or injective."""
    return tag.startswith((ELEMWISE, BROADCAST, INJECTIVE))
