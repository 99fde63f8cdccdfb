"""Root mean square normalization."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir.expr import PrimExpr, const
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..broadcast import multiply
from ..index import Axes
from ..reduction import sum as sum_over
from .moments import accumulation_dtype, check_dtypes, check_parameters, normalized_axes


def rms_norm(data: Tensor, weight: Tensor, axis: Axes, epsilon: float = 1e-5) -> Tensor:
    """data / sqrt(mean of its squares + epsilon) * weight, the mean taken over `axis`, one or several.

    `weight` has the extents of these axes. 16-bit floats are computed in float32.
    """
    check_dtypes("rms_norm", data, weight=weight)
    axes = normalized_axes(axis, data, "rms_norm")
    check_parameters("rms_norm", [data.shape[a] for a in axes], weight=weight)
    dtype = accumulation_dtype(data.dtype)
    wide, scale = _cast(data, dtype), _cast(weight, dtype)
    squares = sum_over(multiply(wide, wide), axes)
    count: Any = const(1, dtype)
    for a in axes:
        count = count * data.shape[a].astype(dtype)
    factor = te.compute(
        [extent for d, extent in enumerate(data.shape) if d not in axes],
        lambda *ax: tir_op.rsqrt(squares(*ax) / count + const(epsilon, dtype)),
        name="rsqrt",
        tag=tag.INJECTIVE,
    )

    def element(*ax: PrimExpr) -> Any:
        outer = [index for d, index in enumerate(ax) if d not in axes]
        return factor(*outer) * wide(*ax) * scale(*(ax[a] for a in axes))

    return _cast(te.compute(data.shape, element, name="T_rms_norm", tag=tag.INJECTIVE), data.dtype)


def _cast(x: Tensor, dtype: str) -> Tensor:
    return te.compute(x.shape, lambda *ax: x(*ax).astype(dtype), name="T_cast", tag=tag.ELEMWISE)
