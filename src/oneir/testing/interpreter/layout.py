"""Where the elements of a buffer lie, and how many lanes they have."""

from __future__ import annotations

from ...ir.dtype import DataType
from .memory import storage_dtype

VSCALE = 2
"""What `vscale` is here; more than one, so that a program that forgets it is found out."""


def lane_count(dtype: DataType) -> int:
    """How many lanes a value of a dtype has."""
    return dtype.lanes * VSCALE if dtype.scalable else dtype.lanes


class Layout:
    """Where the elements of a buffer lie: extents and strides in elements, from `offset` elements after its pointer
    on."""

    __slots__ = ("element", "itemsize", "lanes", "offset", "shape", "strides")

    def __init__(self, dtype: DataType, shape: tuple[int, ...], strides: tuple[int, ...], offset: int):
        self.element = dtype.element
        self.lanes = lane_count(dtype)
        self.itemsize = storage_dtype(dtype).itemsize
        self.shape, self.strides, self.offset = shape, strides, offset


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of elements that lie without gaps, the last dimension together."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
