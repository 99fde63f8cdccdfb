"""Rows of half precision that meet many vectors are widened once.

    C[i, j] += float(A[i, k]) * float(B[k, j])    ->    wide[i, k] = float(A[i, k])
                                                        C[i, j] += wide[i, k] * float(B[k, j])

A tile broadcasts each element of its rows, and one of float32 is a part of the multiply-add, where others take two or
three instructions. Vectors of weights are widened as they are read, since all rows of a tile share them.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import Cast
from ...ir.visitor import Mapper
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad
from ...tir.schedule import Schedule
from ..analysis.leaves import Leaf


def with_wide_rows(sch: Schedule, leaf: Leaf, rows: Buffer) -> Schedule:
    """The schedule with an operand of half precision, which a contraction casts to float32, in float32.

    A parameter is copied; what the function computes itself, such as a padded image, is widened where it is stored.
    """
    if rows in sch.mod["main"].buffer_map.values():
        index = next(i for i, region in enumerate(leaf.block.reads) if region.buffer is rows)
        copy = sch.cache_read(leaf.handle, index, "global")
    else:
        copy = next(b for b in sch.get_producers(leaf.handle) if sch.get(b).writes[0].buffer is rows)
    sch.unsafe_set_dtype(copy, 0, "float32")
    func = sch.mod["main"]
    wide = sch.get(copy).writes[0].buffer
    return Schedule(func.replace(body=_WithoutNarrowing(wide)(func.body)))


class _WithoutNarrowing(Mapper):
    """Elements of a buffer as they are, where they are cast to its dtype by way of a shorter one, which they fit."""

    def __init__(self, wide: Buffer):
        super().__init__()
        self.wide = wide

    def visit_Cast(self, cast: Cast) -> Any:
        narrowed = cast.value.value if isinstance(cast.value, Cast) else None
        is_wide = isinstance(narrowed, BufferLoad) and narrowed.buffer is self.wide
        return narrowed if is_wide and cast.dtype == self.wide.dtype else self.generic_visit(cast)
