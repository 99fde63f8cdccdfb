"""Activations that act on each element by itself."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir.expr import PrimExpr, Select, as_int, const
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import is_one, require_axis, require_ndim, shape_text
from .moments import accumulation_dtype


@te.tag_scope(tag=tag.ELEMWISE)
def relu(x: Tensor) -> Tensor:
    """max(x, 0); NaN stays NaN."""
    return te.compute(x.shape, lambda *i: te.max(x(*i), const(0, x.dtype)))


@te.tag_scope(tag=tag.ELEMWISE)
def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x where it is positive, else alpha * x."""

    def element(*i: PrimExpr) -> Any:
        value = x(*i)
        return Select(value > 0, value, value * const(alpha, x.dtype))

    return te.compute(x.shape, element)


@te.tag_scope(tag=tag.ELEMWISE)
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds the threshold and the two are as good as equal."""
    # Below the threshold, exponentials are out of float16's range already.
    dtype = accumulation_dtype(x.dtype)
    scale = const(beta, dtype)

    def element(*i: PrimExpr) -> Any:
        value = x(*i).astype(dtype)
        soft = (1 / scale) * tir_op.log(1 + tir_op.exp(scale * value))
        return Select(scale * value > const(threshold, dtype), value, soft).astype(x.dtype)

    return te.compute(x.shape, element)


@te.tag_scope(tag=tag.BROADCAST)
def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """x where it is positive, else slope * x, with one slope for each index of `axis`, or one for all."""
    require_ndim(slope, 1, "nn.prelu", "slope")
    axis = require_axis(axis, x.ndim, "nn.prelu")
    channels, slopes = as_int(x.shape[axis]), as_int(slope.shape[0])
    if is_one(slope.shape[0]):
        single = slope
        slope = te.compute(
            (x.shape[axis],), lambda c: single(const(0, single.shape[0].dtype)), name="slope_broadcasted"
        )
    elif None not in (channels, slopes) and channels != slopes:
        raise ShapeMismatch(
            f"topi.nn.prelu: expected one slope or {channels}, as axis {axis} of the data of shape "
            f"{shape_text(x.shape)} has, found the shape {shape_text(slope.shape)}"
        )

    def element(*i: PrimExpr) -> Any:
        value = x(*i)
        return Select(value > 0, value, value * slope(i[axis]))

    return te.compute(x.shape, element)
