"""The correlation of patches of two images."""

from __future__ import annotations

from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ..broadcast import divide
from ..index import Padding, require_ndim, shape_text
from .pad import pad
from .window import padding_of, same_dtype


def correlation_nchw(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Padding,
    is_multiply: bool,
) -> Tensor:
    """The means over channels and patches of products of both images, one output channel for each displacement.

    Patches of the first image are `kernel_size` (odd) wide and `stride1` apart; those of the second are displaced by
    up to `max_displacement`, in steps of `stride2`. Without `is_multiply` it is absolute differences, not products.
    """
    function = "correlation_nchw"
    for tensor, name in ((data1, "data1"), (data2, "data2")):
        require_ndim(tensor, 4, f"nn.{function}", name)
    pairs = [(as_int(a), as_int(b)) for a, b in zip(data1.shape, data2.shape, strict=True)]
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ShapeMismatch(
            f"topi.nn.{function}: expected data1 and data2 of one shape, found {shape_text(data1.shape)} and "
            f"{shape_text(data2.shape)}"
        )
    if kernel_size < 1 or kernel_size % 2 != 1:
        raise InvalidValue(f"topi.nn.{function}: expected an odd kernel size, found {kernel_size}")
    before, after = padding_of(padding, [kernel_size, kernel_size], function)
    padded1, padded2 = (pad(data, [0, 0, *before], [0, 0, *after]) for data in (data1, data2))
    batch, channel, *extents = data1.shape
    border = max_displacement + (kernel_size - 1) // 2
    radius = max_displacement // stride2
    size = 2 * radius + 1
    simplify = Analyzer().simplify
    out = [
        simplify(ops.floordiv(e + b + a - 2 * border + stride1 - 1, stride1))
        for e, b, a in zip(extents, before, after, strict=True)
    ]
    for extent, result in zip(extents, out, strict=True):
        if (known := as_int(result)) is not None and known < 1:
            raise ShapeMismatch(
                f"topi.nn.{function}: {as_int(extent)} elements, padded, are too few for a displacement of "
                f"{max_displacement} and a kernel of {kernel_size}"
            )
    rc = te.reduce_axis((0, channel), name="rc")
    ry = te.reduce_axis((0, same_dtype(kernel_size, channel)), name="ry")
    rx = te.reduce_axis((0, same_dtype(kernel_size, channel)), name="rx")

    def element(n: PrimExpr, q: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        y1, x1 = i * stride1 + max_displacement, j * stride1 + max_displacement
        y2 = y1 + (ops.floordiv(q, size) - radius) * stride2
        x2 = x1 + (ops.floormod(q, size) - radius) * stride2
        left = padded1(n, rc, y1 + ry.var, x1 + rx.var)
        right = padded2(n, rc, y2 + ry.var, x2 + rx.var)
        return te.sum(left * right if is_multiply else te.abs(left - right), axis=[rc, ry, rx])

    total = te.compute((batch, same_dtype(size * size, channel), *out), element, tag=function)
    return divide(total, kernel_size * kernel_size * channel)
