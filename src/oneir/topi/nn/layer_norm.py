"""Layer normalization."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir.expr import PrimExpr
from ...te.tensor import Tensor
from .. import tag
from ..index import Axes
from .moments import check_dtypes, check_parameters, normalized, normalized_axes, sums


def layer_norm(data: Tensor, gamma: Tensor, beta: Tensor | None, axis: Axes, epsilon: float = 1e-5) -> Tensor:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, the moments taken over `axis`, one or several.

    `gamma` and `beta` have the extents of these axes. Moments of 16-bit floats are computed in float32.
    """
    check_dtypes("layer_norm", data, gamma=gamma, beta=beta)
    axes = normalized_axes(axis, data, "layer_norm")
    check_parameters("layer_norm", [data.shape[a] for a in axes], gamma=gamma, beta=beta)
    temp = sums(data, axes, data.op.name)

    def element(*ax: PrimExpr) -> Any:
        inner = [ax[a] for a in axes]
        value = normalized(data, temp, axes, epsilon, ax).astype(data.dtype) * gamma(*inner)
        return value if beta is None else value + beta(*inner)

    return te.compute(data.shape, element, name="T_layer_norm", tag=tag.INJECTIVE)
