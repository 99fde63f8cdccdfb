"""The containers in which nodes keep several things: `Array`, a tuple that adds to and compares with lists, and
mappings.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, SupportsIndex, TypeGuard, TypeVar, overload

from ..runtime.object import Object

T = TypeVar("T")

Map = Mapping
"""The class of the mappings in nodes: any of Python's."""

EMPTY: Mapping[Any, Any] = MappingProxyType({})


class Array(tuple[T, ...], Object):
    """A tuple that slices to an `Array` and adds to, and compares with, lists and tuples on either side.

    >>> Array([1, 2, 3])[:-1] + [4]
    [1, 2, 4]
    """

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice[Any, Any, Any]) -> Array[T]: ...
    def __getitem__(self, index: SupportsIndex | slice[Any, Any, Any]) -> T | Array[T]:
        if isinstance(index, slice):
            return Array(super().__getitem__(index))
        return super().__getitem__(index)

    def __add__(self, other: Iterable[Any]) -> Array[Any]:
        if not isinstance(other, (list, tuple)):
            return NotImplemented
        return Array((*self, *other))

    def __radd__(self, other: Iterable[Any]) -> Array[Any]:
        if not isinstance(other, (list, tuple)):
            return NotImplemented
        return Array((*other, *self))

    def __eq__(self, other: object) -> bool:
        if not is_sequence(other):
            return NotImplemented
        return len(self) == len(other) and all(a is b or bool(a == b) for a, b in zip(self, other, strict=True))

    def __ne__(self, other: object) -> bool:
        result = self.__eq__(other)
        return result if result is NotImplemented else not result

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return "[" + ", ".join(map(repr, self)) + "]"


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether `value` is a list or a tuple, and so an `Array` as well; texts are none."""
    return isinstance(value, (list, tuple))


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether `value` is a mapping; asks for the common class first."""
    return type(value) is dict or isinstance(value, Mapping)


def map_array(values: Array[Any], f: Callable[[Any], Any]) -> Array[Any]:
    """`f` over every element; the identical array when every element came back identical."""
    out = None
    for i, value in enumerate(values):
        new = f(value)
        if out is not None:
            out.append(new)
        elif new is not value:
            out = [*values[:i], new]
    return values if out is None else Array(out)


def map_mapping(values: Mapping[Any, Any], f: Callable[[Any], Any]) -> Mapping[Any, Any]:
    """`f` over every value; the identical mapping when every value came back identical."""
    out: dict[Any, Any] | None = None
    for key, value in values.items():
        new = f(value)
        if new is not value:
            out = dict(values) if out is None else out
            out[key] = new
    return values if out is None else out


def same_objects(a: Sequence[object], b: Sequence[object]) -> bool:
    """Whether two sequences hold the identical objects: what a mutator asks to find out that nothing changed."""
    return len(a) == len(b) and all(map(operator.is_, a, b))
