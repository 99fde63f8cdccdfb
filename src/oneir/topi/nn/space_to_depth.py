"""Blocks of space rearranged into channels."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..index import shape_text
from .depth_to_space import check_block


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """(N, C, H, W) as (N, C * b**2, H / b, W / b), b the block size; in the layout NHWC likewise.

    The place in the block is the leading part of the new channel.
    """
    check_block(data, block_size, layout, "space_to_depth")
    first, b = layout == "NCHW", block_size
    channels = data.shape[1] if first else data.shape[3]
    height, width = data.shape[2:4] if first else data.shape[1:3]
    for extent in (height, width):
        if (known := as_int(extent)) is not None and known % b:
            raise ShapeMismatch(
                f"topi.nn.space_to_depth: {known} of the shape {shape_text(data.shape)} is no multiple of the block "
                f"size {b}"
            )

    def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        place, channel = ops.truncdiv(c, channels), ops.truncmod(c, channels)
        row = ops.truncdiv(place, b) + y * b
        column = ops.truncmod(place, b) + x * b
        return data(n, channel, row, column) if first else data(n, row, column, channel)

    small = [ops.truncdiv(height, b), ops.truncdiv(width, b)]
    return te.compute(
        [data.shape[0], channels * b * b, *small] if first else [data.shape[0], *small, channels * b * b],
        lambda *i: element(*i) if first else element(i[0], i[3], i[1], i[2]),
        name="space_to_depth",
        tag=tag.INJECTIVE,
    )
