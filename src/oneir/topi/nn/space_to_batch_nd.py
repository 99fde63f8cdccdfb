"""Blocks of space rearranged into the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import operators as ops
from ...ir.expr import as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ..index import shape_text
from ..transform import reshape, transpose
from .pad import pad_ends
from .window import same_dtype


def check_lengths(data: Tensor, block_shape: Any, before: Any, after: Any, names: str, function: str) -> None:
    """Raises where block shape, paddings and crops have different lengths, or the data has too few dimensions."""
    count = len(block_shape)
    if len(before) != count or len(after) != count:
        raise InvalidValue(
            f"topi.nn.{function}: expected {names} for each of the {count} extents of the block, "
            f"found {len(before)} and {len(after)}"
        )
    if count >= data.ndim:
        raise ShapeMismatch(
            f"topi.nn.{function}: a block of {count} extents needs data of more than {count} dimensions, "
            f"found the shape {shape_text(data.shape)}"
        )


def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[Any],
    pad_after: Sequence[Any],
    pad_value: float = 0.0,
) -> Tensor:
    """The data, (batch, spatial..., rest...), padded, its blocks made batches: (batch * block, spatial / block, rest).

    `block_shape` and the paddings have an element for each spatial dimension.
    """
    check_lengths(data, block_shape, pad_before, pad_after, "pads", "space_to_batch_nd")
    count = len(block_shape)
    rest = [0] * (data.ndim - count - 1)
    value = const(pad_value, data.dtype)
    padded = pad_ends(data, [0, *pad_before, *rest], [0, *pad_after, *rest], value, "T_pad")
    batch, *extents = padded.shape
    split: list[Any] = [batch]
    small: list[Any] = []
    size = 1
    for i, (extent, block) in enumerate(zip(extents, block_shape, strict=False)):
        if (known := as_int(extent)) is not None and known % block:
            raise ShapeMismatch(
                f"topi.nn.space_to_batch_nd: dimension {i + 1}, {known} after padding, is no multiple of its block "
                f"extent {block}"
            )
        small.append(ops.floordiv(extent, block))
        split += [small[-1], same_dtype(block, extent)]
        size *= block
    tail = list(extents[count:])
    inner = [2 * i + 2 for i in range(count)]
    order = [*inner, 0, *(i - 1 for i in inner), *range(2 * count + 1, 2 * count + 1 + len(tail))]
    return reshape(transpose(reshape(padded, [*split, *tail]), order), [batch * size, *small, *tail])
