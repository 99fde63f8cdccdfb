"""Windows that slide over images: what convolutions and poolings of importers have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import op
from ..expr import Expr
from .importer import ModelImporter

DATA_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


@dataclass
class Window:
    """A window over the spatial dimensions of an image, with a value for each of them."""

    kernel: list[Any]
    strides: list[int]
    dilations: list[int]
    before: list[Any]
    """Elements of padding before each dimension, and after each."""
    after: list[Any]

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.kernel)

    @property
    def padding(self) -> list[Any]:
        """Elements before each dimension, then after each."""
        return [*self.before, *self.after]

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.kernel)

    def extent(self, dim: int) -> Any:
        """How many elements of the image the dilated kernel spans along a dimension."""
        return (self.kernel[dim] - 1) * self.dilations[dim] + 1

    def positions(self, dim: int, size: int, ceil_mode: bool = False) -> int:
        """How many windows there are along a dimension of an image that has this size.

        With `ceil_mode` the last window may end behind the padding, but does not start behind the image.
        """
        space = size + self.before[dim] + self.after[dim] - self.extent(dim)
        if not ceil_mode:
            return space // self.strides[dim] + 1
        count = -(-space // self.strides[dim]) + 1
        return count - 1 if self.starts_outside(dim, size, count - 1) else count

    def starts_outside(self, dim: int, size: int, position: int) -> bool:
        """Whether a window starts behind the image."""
        return position * self.strides[dim] >= size + self.before[dim]

    def ceil_padding(self, sizes: Sequence[int]) -> list[int]:
        """The elements after each dimension that the windows of `ceil_mode` need."""
        return [
            max((self.positions(i, e, True) - 1) * self.strides[i] + self.extent(i) - e - self.before[i], 0)
            for i, e in enumerate(sizes)
        ]


def zero_padded(g: ModelImporter, x: Expr, before: Sequence[int], after: Sequence[int]) -> Expr:
    """Zeros around the spatial dimensions of an image; fewer elements where their number is negative."""
    shape, rank = g.shape(x), len(before)
    if min(*before, *after) < 0:
        begin = [max(-b, 0) for b in before]
        end = [extent - max(-a, 0) for extent, a in zip(shape[2:], after, strict=True)]
        x = g.emit(op.strided_slice(x, list(range(2, 2 + rank)), begin, end))
    widths = [max(v, 0) for pair in zip(before, after, strict=True) for v in pair]
    return g.emit(op.nn.pad(x, [0, 0, 0, 0, *widths])) if any(widths) else x
