"""Sequences and optional values: lists and None where they are known while importing, else objects of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ....struct_info import TensorStructInfo
from ..objects import OptionalOf, SequenceOf, as_object, is_object, joined, kind_of, runtime_value
from ..registry import converter

if TYPE_CHECKING:
    from ..importer import Importer


def _known_place(g: Importer, position: Expr | None, length: int, default: int, most: int) -> int | None:
    """A position counted from the front; None if only the running program knows it."""
    if position is None:
        return default
    found = g.elements(position)
    if found is None or not isinstance(found.reshape(-1)[0], int):
        return None
    index = found.reshape(-1)[0]
    if not -length <= index <= most:
        raise UnsupportedError(f"position {index} in a sequence of {length} elements")
    return index + length if index < 0 else index


def _element(g: Importer, items: Any) -> Any:
    """What is known of the elements of a sequence."""
    kind = kind_of(g, items)
    if isinstance(kind, OptionalOf):
        kind = kind.element
    if not isinstance(kind, SequenceOf):
        raise UnsupportedError(f"expected a sequence, found {kind}")
    return kind.element


@converter("SequenceEmpty")
def sequence_empty(g: Importer, *, dtype: int = 1) -> list[Any]:
    """A sequence of no elements."""
    return []


@converter("SequenceConstruct")
def sequence_construct(g: Importer, *items: Expr) -> list[Any]:
    """A sequence of tensors."""
    return list(items)


@converter("SequenceInsert")
def sequence_insert(g: Importer, items: Any, item: Expr, position: Expr | None = None) -> Any:
    """A sequence with one more element."""
    if isinstance(items, list):
        place = _known_place(g, position, len(items), len(items), len(items))
        if place is not None:
            return [*items[:place], item, *items[place:]]
    kind = SequenceOf(joined(_element(g, items), kind_of(g, item)))
    given = [as_object(g, items), item, *([position] if position is not None else [])]
    return runtime_value(g, "vm.builtin.sequence_insert", given, kind)


@converter("SequenceErase")
def sequence_erase(g: Importer, items: Any, position: Expr | None = None) -> Any:
    """A sequence without an element."""
    if isinstance(items, list):
        place = _known_place(g, position, len(items), len(items) - 1, len(items) - 1)
        if place is not None:
            return [*items[:place], *items[place + 1 :]]
    given = [as_object(g, items), *([position] if position is not None else [])]
    return runtime_value(g, "vm.builtin.sequence_erase", given, SequenceOf(_element(g, items)))


@converter("SequenceAt")
def sequence_at(g: Importer, items: Any, position: Expr) -> Expr:
    """An element of a sequence."""
    if isinstance(items, list):
        place = _known_place(g, position, len(items), 0, len(items) - 1)
        if place is not None:
            return items[place]
    return runtime_value(g, "vm.builtin.sequence_at", [as_object(g, items), position], _element(g, items))


@converter("SequenceLength")
def sequence_length(g: Importer, items: Any) -> Expr:
    """The number of elements of a sequence."""
    if isinstance(items, list):
        return const(len(items), "int64")
    _element(g, items)
    return runtime_value(g, "vm.builtin.sequence_length", [items], TensorStructInfo((), "int64"))


@converter("ConcatFromSequence")
def concat_from_sequence(g: Importer, items: Any, *, axis: int, new_axis: int = 0) -> Expr:
    """The elements of a sequence, one after the other or along a new axis."""
    if isinstance(items, list):
        if not items:
            raise UnsupportedError("the elements of an empty sequence cannot be joined")
        return g.emit(op.stack(items, axis) if new_axis else op.concat(items, axis))
    element = _element(g, items)
    if not isinstance(element, TensorStructInfo):
        raise UnsupportedError(f"expected a sequence of tensors, found elements that are {element or 'not known'}")
    ndim = element.ndim if element.ndim == -1 or not new_axis else element.ndim + 1
    kind = TensorStructInfo(dtype=element.dtype, ndim=ndim)
    return runtime_value(g, "vm.builtin.concat_from_sequence", [items, axis, int(new_axis)], kind)


@converter("SplitToSequence")
def split_to_sequence(g: Importer, x: Expr, split: Expr | None = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    """Pieces of a tensor as a sequence."""
    place = g.axis(axis, g.ndim(x))
    extent = g.shape(x)[place]
    given = None if split is None else g.elements(split)
    known = split is None or (given is not None and all(isinstance(e, int) for e in given.reshape(-1)))
    if not known or not isinstance(extent, int):
        ndim = g.ndim(x) - (split is None and not keepdims)
        kind = SequenceOf(TensorStructInfo(dtype=g.dtype(x), ndim=ndim))
        return runtime_value(g, "vm.builtin.split_to_sequence", [x, split, place, int(keepdims)], kind)
    sizes = [1] * extent
    if given is not None:
        sizes = given.reshape(-1).tolist()
        if given.ndim == 0:
            sizes = [min(sizes[0], extent - i) for i in range(0, extent, sizes[0])]
    begins = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    pieces = [
        g.emit(op.strided_slice(x, [place], [b], [b + s], assume_inbound=True))
        for b, s in zip(begins, sizes, strict=False)
    ]
    if split is None and not keepdims:
        shape = g.shape(x)
        return [g.reshaped(piece, [*shape[:place], *shape[place + 1 :]]) for piece in pieces]
    return pieces


# -- optional values --


@converter("Optional")
def optional(g: Importer, value: Any = None, *, type: Any = None) -> Any:
    """A value that may be missing."""
    return value


@converter("OptionalHasElement")
def optional_has_element(g: Importer, value: Any = None) -> Expr:
    """Whether a value is there."""
    if is_object(g, value) and isinstance(g.objects[value], OptionalOf):
        return runtime_value(g, "vm.builtin.optional_has_element", [value], TensorStructInfo((), "bool"))
    return const(value is not None, "bool")


@converter("OptionalGetElement")
def optional_get_element(g: Importer, value: Any = None) -> Any:
    """A value that is there."""
    if value is None:
        raise UnsupportedError("the value of an optional that is empty")
    kind = g.objects.get(value) if isinstance(value, Expr) else None
    if not isinstance(kind, OptionalOf):
        return value
    return runtime_value(g, "vm.builtin.optional_get_element", [value], kind.element)
