"""Operators that move elements without computing with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import topi
from ..expr import Call, Expr
from ..struct_info import StructInfo, TensorStructInfo
from .inference import fail, normalize_axes, tensor_argument
from .registry import OpPattern, operator


@operator("relax.permute_dims", pattern=OpPattern.INJECTIVE)
def permute_dims(x: Expr, axes: list[int] | None = None) -> Call:
    """The tensor with its dimensions in another order: dimension i of the result is axes[i]; reversed without axes."""
    return permute_dims.call(x, axes=None if axes is None else [int(a) for a in axes])


@permute_dims.struct_info
def _permute_dims_struct_info(call: Call, builder: Any) -> StructInfo:
    info, axes = tensor_argument(call, 0), call.attrs["axes"]
    if axes is None:
        extents = info.extents
        if extents is None:
            return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
        return TensorStructInfo(list(reversed(extents)), info.dtype, info.vdevice)
    if info.ndim not in (-1, len(axes)):
        raise fail(call, f"expected {info.ndim} axes for a tensor of {info.ndim} dimensions, found {list(axes)}")
    order = normalize_axes(call, axes, len(axes))
    if info.extents is None:
        return TensorStructInfo(None, info.dtype, info.vdevice, len(axes))
    return TensorStructInfo([info.extents[a] for a in order], info.dtype, info.vdevice)


permute_dims.reference(lambda x, axes: np.transpose(x, axes))
permute_dims.legalize(topi.transpose)
