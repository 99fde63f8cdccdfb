"""Padding, and channels that become pixels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import topi
from ....ir import operators as ops
from ....ir.expr import as_int
from ....runtime.error import InvalidValue
from ...expr import Call, Expr
from ...operator_facts import OpPattern
from ...struct_info import StructInfo, TensorStructInfo
from ..arguments import integer
from ..inference import fail, tensor_argument
from ..manipulate import of_shape, unknown_shape
from ..op_attrs import PadAttrs, PixelShuffleAttrs
from ..registry import operator

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_TOPI = {"reflect": topi.nn.reflect_pad, "replicate": topi.nn.replicate_pad, "circular": topi.nn.circular_pad}


@operator("relax.nn.pad", pattern=OpPattern.INJECTIVE, attrs=PadAttrs)
def pad(data: Expr, pad_width: list[int] | tuple[int, ...], pad_mode: str = "constant", pad_value: float = 0.0) -> Call:
    """The tensor with elements around it, `pad_width` those before and after each dimension in turn.

    `pad_mode`: "constant" (of `pad_value`), "reflect" (mirrored, without the border), "replicate" (of the border) or
    "circular" (of the other side).
    """
    if pad_mode not in _MODES:
        raise InvalidValue(f"relax.nn.pad: expected the mode to be one of {tuple(_MODES)}, found {pad_mode!r}")
    value = float(getattr(pad_value, "value", pad_value))
    return pad.call(data, pad_width=[integer(w) for w in pad_width], pad_value=value, pad_mode=pad_mode)


@pad.struct_info
def _pad_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, widths = tensor_argument(call, 0), call.attrs["pad_width"]
    if len(widths) % 2 or info.ndim not in (-1, len(widths) // 2):
        raise fail(call, f"expected {2 * info.ndim} widths for {info.ndim} dimensions, found {list(widths)}")
    if info.extents is None:
        return unknown_shape(info, len(widths) // 2)
    mode = call.attrs["pad_mode"]
    for i, extent in enumerate(map(as_int, info.extents)):
        width, spare = max(widths[2 * i : 2 * i + 2]), {"constant": None, "reflect": 1}.get(mode, 0)
        if extent is None or width <= 0 or spare is None:
            continue
        if (spare and width >= extent) or not extent:
            raise fail(call, f"{extent} elements along dimension {i} cannot be padded by {width} with mode {mode!r}")
    sums = [before + after for before, after in zip(widths[::2], widths[1::2], strict=True)]
    return of_shape(info, [ops.add(e, s) for e, s in zip(info.extents, sums, strict=True)])


@pad.reference
def _pad_reference(data: np.ndarray, pad_width: list[int], pad_value: float, pad_mode: str) -> np.ndarray:
    widths = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    mode: Any = _MODES[pad_mode]
    return np.pad(data, widths, mode, **({"constant_values": pad_value} if pad_mode == "constant" else {}))


@pad.legalize_as
def _legalize_pad(builder: BlockBuilder, call: Call) -> Expr:
    widths, mode = call.attrs["pad_width"], call.attrs["pad_mode"]
    before, after = list(widths[::2]), list(widths[1::2])
    if mode == "constant":
        return builder.call_te(
            topi.nn.pad, call.args[0], before, after, call.attrs["pad_value"], primfunc_name_hint="pad"
        )
    return builder.call_te(_TOPI[mode], call.args[0], before, after)


@operator("relax.nn.pixel_shuffle", pattern=OpPattern.INJECTIVE, attrs=PixelShuffleAttrs)
def pixel_shuffle(data: Expr, upscale_factor: int) -> Call:
    """(..., C * r * r, H, W) as (..., C, H * r, W * r), where r is the factor."""
    if upscale_factor < 1:
        raise InvalidValue(f"relax.nn.pixel_shuffle: expected a factor of at least 1, found {upscale_factor}")
    return pixel_shuffle.call(data, upscale_factor=integer(upscale_factor))


@pixel_shuffle.struct_info
def _pixel_shuffle_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info, factor = tensor_argument(call, 0), call.attrs["upscale_factor"]
    if info.ndim in (0, 1, 2):
        raise fail(call, f"expected a tensor of at least three dimensions, found {info.ndim}")
    if info.extents is None:
        return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
    *outer, channels, height, width = info.extents
    known = as_int(channels)
    if known is not None and known % factor**2:
        raise fail(call, f"{known} channels do not divide by the square of the factor {factor}")
    simplify = builder.analyzer.simplify
    shape = [simplify(ops.floordiv(channels, factor**2)), simplify(height * factor), simplify(width * factor)]
    return of_shape(info, [*outer, *shape])


@pixel_shuffle.reference
def _pixel_shuffle_reference(data: np.ndarray, upscale_factor: int) -> np.ndarray:
    r = upscale_factor
    *outer, channels, height, width = data.shape
    parts = data.reshape(math.prod(outer), channels // r**2, r, r, height, width).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(*outer, channels // r**2, height * r, width * r)


pixel_shuffle.legalize(topi.nn.pixel_shuffle)
