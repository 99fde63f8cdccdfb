"""Channels rearranged into blocks of pixels."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ..index import shape_text


def pixel_shuffle(data: Tensor, upscale_factor: int, name: str = "PixelShuffle") -> Tensor:
    """(..., C * r * r, H, W) as (..., C, H * r, W * r), where r is the factor."""
    if upscale_factor < 1:
        raise InvalidValue(f"topi.nn.pixel_shuffle: expected a factor of at least 1, found {upscale_factor}")
    if data.ndim < 3:
        raise ShapeMismatch(
            f"topi.nn.pixel_shuffle: expected data of at least 3 dimensions, found the shape {shape_text(data.shape)}"
        )
    r = upscale_factor
    *outer, channels, height, width = data.shape
    if (known := as_int(channels)) is not None and known % (r * r):
        raise ShapeMismatch(
            f"topi.nn.pixel_shuffle: the {known} channels of the shape {shape_text(data.shape)} are no multiple of "
            f"{r * r}, the factor squared"
        )

    def element(*i: PrimExpr) -> Any:
        *batch, c, h, w = i
        channel = c * r * r + ops.floormod(h, r) * r + ops.floormod(w, r)
        return data(*batch, channel, ops.floordiv(h, r), ops.floordiv(w, r))

    return te.compute([*outer, ops.floordiv(channels, r * r), height * r, width * r], element, name=name)
