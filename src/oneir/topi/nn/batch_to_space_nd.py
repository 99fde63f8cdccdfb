"""The batch rearranged into blocks of space."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir import operators as ops
from ...ir.expr import as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from ..index import shape_text
from ..slicing import strided_slice
from ..transform import reshape, transpose
from .space_to_batch_nd import check_lengths
from .window import same_dtype


def batch_to_space_nd(
    data: Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Tensor:
    """The data, (batch, spatial..., rest...), as (batch / block, spatial * block, rest), then cropped.

    `block_shape` and the crops have an element for each spatial dimension.
    """
    check_lengths(data, block_shape, crop_begin_list, crop_end_list, "crops", "batch_to_space_nd")
    count, size = len(block_shape), math.prod(block_shape)
    batch, *extents = data.shape
    if (known := as_int(batch)) is not None and known % size:
        raise ShapeMismatch(
            f"topi.nn.batch_to_space_nd: the batch of the shape {shape_text(data.shape)} is no multiple of {size}, the "
            f"elements of a block"
        )
    small = ops.floordiv(batch, size)
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    order += range(2 * count + 1, count + data.ndim)
    moved = transpose(reshape(data, [*(same_dtype(b, batch) for b in block_shape), small, *extents]), order)
    spatial = [e * b for e, b in zip(extents, block_shape, strict=False)]
    joined = reshape(moved, [small, *spatial, *extents[count:]])
    for extent, begin, end in zip(spatial, crop_begin_list, crop_end_list, strict=True):
        if (known := as_int(extent)) is not None and known <= begin + end:
            raise ShapeMismatch(f"topi.nn.batch_to_space_nd: cannot crop {begin} and {end} from {known} elements")
    rest = joined.shape[count + 1 :]
    return strided_slice(
        joined,
        [0, *crop_begin_list, *(0 for _ in rest)],
        [small, *(e - c for e, c in zip(spatial, crop_end_list, strict=True)), *rest],
        [1] * joined.ndim,
    )
