"""Channels rearranged into blocks of space."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..index import require_ndim, shape_text


def check_block(data: Tensor, block_size: int, layout: str, function: str) -> None:
    """Raises for layouts other than NCHW and NHWC, data of other than four dimensions, and block sizes below 1."""
    if layout not in ("NCHW", "NHWC"):
        raise InvalidValue(f'topi.nn.{function}: expected the layout "NCHW" or "NHWC", found {layout!r}')
    require_ndim(data, 4, f"nn.{function}", "data")
    if block_size < 1:
        raise InvalidValue(f"topi.nn.{function}: expected a block size of at least 1, found {block_size}")


def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Tensor:
    """(N, C, H, W) as (N, C / b**2, H * b, W * b), b the block size; in the layout NHWC likewise.

    In the mode "DCR" the place in the block is the leading part of the channel, in "CDR" (which ONNX calls "CRD") the
    trailing one.
    """
    check_block(data, block_size, layout, "depth_to_space")
    if mode not in ("DCR", "CDR", "CRD"):
        raise InvalidValue(f'topi.nn.depth_to_space: expected the mode "DCR", "CDR" or "CRD", found {mode!r}')
    first, b = layout == "NCHW", block_size
    channels = data.shape[1] if first else data.shape[3]
    height, width = data.shape[2:4] if first else data.shape[1:3]
    if (known := as_int(channels)) is not None and known % (b * b):
        raise ShapeMismatch(
            f"topi.nn.depth_to_space: the {known} channels of the shape {shape_text(data.shape)} are no multiple of "
            f"{b * b}, the block size squared"
        )
    depth = ops.truncdiv(channels, b * b)

    def element(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        place = b * ops.truncmod(y, b) + ops.truncmod(x, b)
        channel = depth * place + c if mode == "DCR" else c * b * b + place
        row, column = ops.truncdiv(y, b), ops.truncdiv(x, b)
        return data(n, channel, row, column) if first else data(n, row, column, channel)

    return te.compute(
        [data.shape[0], depth, height * b, width * b] if first else [data.shape[0], height * b, width * b, depth],
        lambda *i: element(*i) if first else element(i[0], i[3], i[1], i[2]),
        name="depth_to_space",
        tag=tag.INJECTIVE,
    )
