"""Instance normalization."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir.expr import PrimExpr
from ...te.tensor import Tensor
from .. import tag
from ..index import Axes, require_axis
from .moments import check_dtypes, check_parameters, normalized, normalized_axes, sums


def instance_norm(
    data: Tensor, gamma: Tensor, beta: Tensor | None, channel_axis: int, axis: Axes, epsilon: float = 1e-5
) -> Tensor:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken over `axis`, one or several.

    `gamma` and `beta` have an element for each channel. Moments of 16-bit floats are computed in float32.
    """
    check_dtypes("instance_norm", data, gamma=gamma, beta=beta)
    axes = normalized_axes(axis, data, "instance_norm")
    channel = require_axis(channel_axis, data.ndim, "nn.instance_norm", "channel_axis")
    check_parameters("instance_norm", [data.shape[channel]], gamma=gamma, beta=beta)
    temp = sums(data, axes, data.op.name)

    def element(*ax: PrimExpr) -> Any:
        value = normalized(data, temp, axes, epsilon, ax).astype(data.dtype) * gamma(ax[channel])
        return value if beta is None else value + beta(ax[channel])

    return te.compute(data.shape, element, name="T_instance_norm", tag=tag.INJECTIVE)
