"""Group normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..index import require_axis
from ..transform import reshape
from .moments import accumulation_dtype, check_dtypes, check_parameters, normalized, sums


def group_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Tensor:
    """Each group of channels less its mean, divided by its standard deviation, times gamma, plus beta.

    The moments are taken over the channels of a group and over `axes`, which do not contain the channel axis.
    `gamma` and `beta` have an element for each channel. Moments of 16-bit floats are computed in float32.
    """
    check_dtypes("group_norm", data, gamma=gamma, beta=beta)
    channel = require_axis(channel_axis, data.ndim, "nn.group_norm", "channel_axis")
    channels = data.shape[channel]
    check_parameters("group_norm", [channels], gamma=gamma, beta=beta)
    known = as_int(channels)
    if num_groups < 1 or (known is not None and known % num_groups):
        raise ShapeMismatch(f"topi.nn.group_norm: {channels} channels do not divide into {num_groups} groups")
    given = [require_axis(a, data.ndim, "nn.group_norm", "axes") for a in axes]
    if channel in given:
        raise InvalidValue(f"topi.nn.group_norm: axes must not contain the channel axis {channel}, found {given}")
    # The channels become two dimensions, groups and channels of a group.
    split = [const(num_groups, channels.dtype), ops.floordiv(channels, num_groups)]
    grouped = reshape(data, [*data.shape[:channel], *split, *data.shape[channel + 1 :]])
    dtype = accumulation_dtype(data.dtype)
    if dtype != data.dtype:
        narrow = grouped
        grouped = te.compute(narrow.shape, lambda *ax: narrow(*ax).astype(dtype), name="T_cast", tag=tag.ELEMWISE)
    scale = None if gamma is None else reshape(gamma, split)
    shift = None if beta is None else reshape(beta, split)
    over = sorted({channel + 1, *(a + (a > channel) for a in given)})
    temp = sums(grouped, over, data.op.name)

    def element(*ax: PrimExpr) -> Any:
        value = normalized(grouped, temp, over, epsilon, ax).astype(data.dtype)
        value = value if scale is None else value * scale(ax[channel], ax[channel + 1])
        return value if shift is None else value + shift(ax[channel], ax[channel + 1])

    return reshape(te.compute(grouped.shape, element, name="T_group_norm", tag=tag.INJECTIVE), data.shape)
