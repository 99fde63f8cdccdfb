"""Sequences whose length only the running program knows, and optional values: functions of the runtime.

A sequence is a tuple of values; an optional value that is empty is None. Sequences do not change: each function gives
another one. Tensors that become elements are copied, since the memory that they lie in belongs to the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..error import InvalidValue, TypeMismatch
from ..registry import register_func
from ..tensor import Tensor, tensor


def _element(value: Any) -> Any:
    return tensor(value.numpy()) if isinstance(value, Tensor) else value


def _elements(items: Any) -> tuple[Any, ...]:
    if not isinstance(items, (tuple, list)):
        raise TypeMismatch(f"expected a sequence (a list or tuple of tensors), found {type(items).__name__}")
    return tuple(items)


def _place(position: Tensor | None, length: int, default: int, most: int) -> int:
    """A position counted from the front. Raises `InvalidValue` if it is not between `-length` and `most`."""
    if position is None:
        return default
    index = int(position.numpy().reshape(()))
    if not -length <= index <= most:
        raise InvalidValue(f"position {index} in a sequence of {length} elements")
    return index + length if index < 0 else index


@register_func("vm.builtin.sequence_construct")
def sequence_construct(*items: Any) -> tuple[Any, ...]:
    """A sequence of these values."""
    return tuple(map(_element, items))


@register_func("vm.builtin.sequence_insert")
def sequence_insert(items: Any, item: Any, position: Tensor | None = None) -> tuple[Any, ...]:
    """The sequence with one more element: before that at `position`, or at the end."""
    elements = _elements(items)
    place = _place(position, len(elements), len(elements), len(elements))
    return (*elements[:place], _element(item), *elements[place:])


@register_func("vm.builtin.sequence_erase")
def sequence_erase(items: Any, position: Tensor | None = None) -> tuple[Any, ...]:
    """The sequence without the element at `position`, or without the last."""
    elements = _elements(items)
    if not elements:
        raise InvalidValue("an element of an empty sequence cannot be erased")
    place = _place(position, len(elements), len(elements) - 1, len(elements) - 1)
    return (*elements[:place], *elements[place + 1 :])


@register_func("vm.builtin.sequence_at")
def sequence_at(items: Any, position: Tensor) -> Any:
    """The element at `position`."""
    elements = _elements(items)
    return elements[_place(position, len(elements), 0, len(elements) - 1)]


@register_func("vm.builtin.sequence_length")
def sequence_length(items: Any) -> Tensor:
    """The number of elements, a scalar of int64."""
    return tensor(np.array(len(_elements(items)), "int64"))


@register_func("vm.builtin.concat_from_sequence")
def concat_from_sequence(items: Any, axis: int, new_axis: int) -> Tensor:
    """The elements one after the other along an axis, or along a new one."""
    arrays = [item.numpy() for item in _elements(items)]
    if not arrays:
        raise InvalidValue("the elements of an empty sequence cannot be joined")
    return tensor(np.stack(arrays, axis) if new_axis else np.concatenate(arrays, axis))


@register_func("vm.builtin.split_to_sequence")
def split_to_sequence(x: Tensor, split: Tensor | None, axis: int, keepdims: int) -> tuple[Tensor, ...]:
    """Pieces of a tensor along an axis: of one size each (the last may be smaller), of given sizes, or of size 1.

    `keepdims` 0 leaves out the axis of pieces of size 1.
    """
    array = x.numpy()
    extent = array.shape[axis]
    sizes: Sequence[int] = [1] * extent
    if split is not None:
        given = split.numpy()
        if given.ndim == 0 and int(given) <= 0:
            raise InvalidValue(f"a size of pieces must be positive, found {int(given)}")
        sizes = given.tolist() if given.ndim else [min(int(given), extent - i) for i in range(0, extent, int(given))]
        if sum(sizes) != extent:
            raise InvalidValue(f"pieces of sizes {list(sizes)} do not add up to the extent {extent} of axis {axis}")
    pieces = np.split(array, np.cumsum(sizes)[:-1].tolist(), axis)
    return tuple(tensor(p if keepdims or split is not None else np.squeeze(p, axis)) for p in pieces)


@register_func("vm.builtin.optional_empty")
def optional_empty() -> None:
    """An optional value that is empty."""


@register_func("vm.builtin.optional_has_element")
def optional_has_element(value: Any) -> Tensor:
    """Whether an optional value is there, a scalar of bool."""
    return tensor(np.array(value is not None))


@register_func("vm.builtin.optional_get_element")
def optional_get_element(value: Any) -> Any:
    """An optional value that is there."""
    if value is None:
        raise InvalidValue("an optional value is empty, and its element is asked for")
    return value
