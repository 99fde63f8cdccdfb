"""Transposed convolutions of any number of dimensions: plain ones of the dilated data with the kernel turned round."""

from __future__ import annotations

from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ..index import Padding, Sizes, require_ndim, shape_text
from .dilate import dilate
from .pad import pad
from .window import padding_of, per_dimension


def preprocess(
    data: Tensor,
    kernel: Tensor,
    strides: Sizes,
    padding: Padding,
    output_padding: Sizes,
    letters: str,
    function: str,
    kernel_name: str = "kernel_transform",
    kernel_axes: str = "oi",
) -> tuple[Tensor, Tensor]:
    """The data, dilated and padded, and the kernel, turned round and with its output channels first.

    `letters` name the spatial dimensions; the kernel is (in channels, out channels, ...).
    """
    dim = len(letters)
    require_ndim(data, dim + 2, f"nn.{function}", "data")
    require_ndim(kernel, dim + 2, f"nn.{function}", "kernel")
    strides = per_dimension(strides, dim, function, "stride")
    extra = per_dimension(output_padding, dim, function, "output padding")
    for stride, more in zip(strides, extra, strict=True):
        if None not in (as_int(stride), as_int(more)) and not ops.less(more, stride):
            raise InvalidValue(
                f"topi.nn.{function}: expected output padding below the stride {as_int(stride)}, found {as_int(more)}"
            )
    channels, outputs, *window = kernel.shape
    if None not in (as_int(channels), as_int(data.shape[1])) and as_int(channels) != as_int(data.shape[1]):
        raise ShapeMismatch(
            f"topi.nn.{function}: the data of shape {shape_text(data.shape)} has {data.shape[1]} channels, the kernel "
            f"of shape {shape_text(kernel.shape)} takes {channels}"
        )
    head, tail = padding_of(padding, window, function)
    dilated = dilate(data, [1, 1, *strides], name="data_dilate")
    padded = pad(
        dilated,
        [0, 0, *(k - 1 - p for k, p in zip(window, head, strict=True))],
        [0, 0, *(k - 1 - p + e for k, p, e in zip(window, tail, extra, strict=True))],
        name="data_pad",
    )

    def turned(o: PrimExpr, i: PrimExpr, *place: Any) -> Any:
        return kernel(i, o, *(k - 1 - x for k, x in zip(window, place, strict=True)))

    return padded, te.compute(
        (outputs, channels, *window),
        lambda *axes: turned(*axes),
        name=kernel_name,
        varargs_names=[*kernel_axes, *letters],
    )


def correlate(padded: Tensor, kernel: Tensor, groups: Any, dtype: str, letters: str, function: str) -> Tensor:
    """The sums of products of windows of the data and the turned kernel."""
    batch, channels, *extents = padded.shape
    group_outputs, _, *window = kernel.shape
    simplify = Analyzer().simplify
    outputs = simplify(group_outputs * groups)
    if as_int(channels) is not None and as_int(groups) is not None:
        known, count = as_int(channels) or 0, as_int(groups) or 0
        if count < 1 or known % count:
            raise ShapeMismatch(f"topi.nn.{function}: {known} input channels do not divide into {count} groups")
    out = [simplify(e - k + 1) for e, k in zip(extents, window, strict=True)]
    dc = te.reduce_axis((0, ops.floordiv(channels, groups)), name="dc")
    reduction = [te.reduce_axis((0, k), name=f"d{letter}") for letter, k in zip(letters, window, strict=True)]

    def element(b: PrimExpr, c: PrimExpr, *place: PrimExpr) -> Any:
        channel, output = dc.var, c
        if as_int(groups) != 1:
            of_group = ops.floordiv(outputs, groups)
            channel = ops.floordiv(c, of_group) * ops.floordiv(channels, groups) + dc.var
            output = ops.floormod(c, of_group)
        left = padded(b, channel, *(x + r.var for x, r in zip(place, reduction, strict=True)))
        return te.sum(left.astype(dtype) * kernel(output, channel, *reduction).astype(dtype), axis=[dc, *reduction])

    return te.compute((batch, outputs, *out), element, tag=function, varargs_names=list(letters))
