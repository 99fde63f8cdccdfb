"""What all values that programs are made of and work on share: nodes, arrays, tensors, targets, modules."""

from __future__ import annotations

from typing import Any


class Object:
    """Base of nodes, arrays, tensors, targets and compiled modules; one is another only if it is the same object."""

    __slots__ = ()

    def same_as(self, other: object) -> bool:
        """Whether both are one object."""
        return self is other


class ObjectConvertible:
    """Base of values that stand for an object: `convert` takes what `asobject` gives, and so do expressions and
    statements that are made of such values.
    """

    __slots__ = ()

    def asobject(self) -> Any:
        """The object that this stands for."""
        raise NotImplementedError(f"{type(self).__name__} has no method `asobject`")


String = str
"""Strings of programs are Python's."""


class ShapeTuple(tuple[int, ...]):
    """The extents of a shape, as a value of a program; a plain tuple is a tuple of values."""

    __slots__ = ()
