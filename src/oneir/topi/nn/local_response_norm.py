"""Local response normalization."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, const
from ...runtime.error import InvalidValue, TypeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..broadcast import divide
from ..index import require_ndim
from .pad import pad_ends
from .window import same_dtype


def lrn(data: Tensor, size: int, axis: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 2) -> Tensor:
    """data / (bias + alpha / size * (sum of squares of the `size` channels around))**beta.

    `axis` is where the channels stand, 1 or 3; `size` is odd.
    """
    require_ndim(data, 4, "nn.lrn", "data")
    if size < 1 or size % 2 != 1:
        raise InvalidValue(f"topi.nn.lrn: expected an odd window size, found {size}")
    if axis not in (1, 3):
        raise InvalidValue(f"topi.nn.lrn: expected the axis 1 or 3, found {axis}")
    if not data.dtype.is_float:
        raise TypeMismatch(f"topi.nn.lrn: expected data of a float dtype, found {data.dtype}")
    pads = [size // 2 if d == axis else 0 for d in range(4)]
    around = pad_ends(data, pads, pads, const(0, data.dtype), "pad_data")
    window = te.reduce_axis((0, same_dtype(size, data.shape[axis])), "rxs")

    def squares(*ax: PrimExpr) -> Any:
        value = around(*(index + window.var if d == axis else index for d, index in enumerate(ax)))
        return te.sum(value * value, axis=[window])

    def scale(*ax: PrimExpr) -> Any:
        mean = ops.divide(const(alpha, data.dtype) * total(*ax), const(size, data.dtype))
        return tir_op.power(const(bias, data.dtype) + mean, const(beta, data.dtype))

    total = te.compute(data.shape, squares, name="tensor", tag="sqr_sum")
    return divide(data, te.compute(data.shape, scale, name="tensor", tag=tag.ELEMWISE))
