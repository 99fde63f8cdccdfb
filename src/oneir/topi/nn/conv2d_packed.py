"""Convolutions of two dimensions whose channels are split into blocks that stand last, as in NCHW16c."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..index import Extent, Padding, Sizes, require_ndim, shape_text
from .pad import pad
from .window import dilated, output_extent, padding_of, per_dimension, same_dtype


class _Window:
    """The padded data (n, chunk, height, width, block) of a convolution, its window and its output's extents."""

    def __init__(
        self,
        data: Tensor,
        kernel: Sequence[Extent],
        stride: Sizes,
        padding: Padding,
        dilation: Sizes,
        name: str,
        function: str,
    ):
        require_ndim(data, 5, f"nn.{function}", "data")
        self.strides = per_dimension(stride, 2, function, "stride")
        self.dilations = per_dimension(dilation, 2, function, "dilation")
        windows = dilated(kernel, self.dilations)
        before, after = padding_of(padding, windows, function)
        sizes = zip(data.shape[2:4], windows, self.strides, before, after, strict=True)
        self.out = [output_extent(*s, function) for s in sizes]
        padded = any(as_int(p) != 0 for p in (*before, *after))
        self.data = pad(data, [0, 0, *before, 0], [0, 0, *after, 0], name=name) if padded else data
        self.kh = te.reduce_axis((0, kernel[0]), name="kh")
        self.kw = te.reduce_axis((0, kernel[1]), name="kw")

    def source(self, oh: Any, ow: Any) -> list[Any]:
        """The row and the column that the window's element reads for an element of the output."""
        place = zip((oh, ow), self.strides, (self.kh, self.kw), self.dilations, strict=True)
        return [i * s + r.var * d for i, s, r, d in place]


def _groups(data: Tensor, per_group: Any, kernel: Tensor, function: str) -> Any:
    """How many groups a kernel for `per_group` channels makes of the data's."""
    channels = data.shape[1] * data.shape[4]
    known, count = as_int(channels), as_int(per_group)
    if known is not None and count is not None and (count == 0 or known % count):
        raise ShapeMismatch(
            f"topi.nn.{function}: {known} channels of the data of shape {shape_text(data.shape)} are no multiple of "
            f"the {count} that the kernel of shape {shape_text(kernel.shape)} takes"
        )
    return ops.floordiv(channels, per_group)


def conv2d_NCHWc(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    layout: str,
    out_layout: str,
    out_dtype: str | None = "float32",
) -> Tensor:
    """The convolution of data (n, chunk, height, width, block), in groups where the kernel takes fewer channels.

    The kernel is (out chunk, in chunk, height, width, in block, out block). The layouts are known from the shapes.
    """
    function = "conv2d_NCHWc"
    require_ndim(kernel, 6, f"nn.{function}", "kernel")
    dtype = out_dtype or data.dtype
    oc_chunk, ic_chunk, kh, kw, ic_block, oc_block = kernel.shape
    window = _Window(data, [kh, kw], stride, padding, dilation, "data_pad", function)
    groups = _groups(data, ic_chunk * ic_block, kernel, function)
    block = data.shape[4]
    ic = te.reduce_axis((0, ops.floordiv(data.shape[1] * block, groups)), name="ic")

    def element(n: PrimExpr, occ: PrimExpr, oh: PrimExpr, ow: PrimExpr, oc_inner: PrimExpr) -> Any:
        chunk, inner = ops.floordiv(ic.var, block), ops.floormod(ic.var, block)
        read = chunk
        if as_int(groups) != 1:
            group = ops.floordiv(occ, ops.floordiv(oc_chunk, groups))
            read = group * ops.floordiv(data.shape[1], groups) + chunk
        left = window.data(n, read, *window.source(oh, ow), inner)
        right = kernel(occ, chunk, window.kh, window.kw, inner, oc_inner)
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=[ic, window.kh, window.kw])

    first = "oc_chunk" if as_int(groups) == 1 else "occ"
    return te.compute(
        (data.shape[0], oc_chunk, *window.out, oc_block),
        lambda *axes: element(*axes),
        name=function,
        tag=function,
        varargs_names=["n", first, "oh", "ow", "oc_block"],
    )


def conv2d_NCHWc_int8(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    layout: str,
    out_layout: str,
    out_dtype: str | None = "int32",
    n_elems: int = 4,
) -> Tensor:
    """As `conv2d_NCHWc`, for dot products of `n_elems` bytes.

    The kernel is (out chunk, in chunk, height, width, in block // n_elems, out block, n_elems).
    """
    function = "conv2d_NCHWc_int8"
    require_ndim(kernel, 7, f"nn.{function}", "kernel")
    dtype = out_dtype or data.dtype
    oc_chunk, ic_chunk, kh, kw, _, oc_block, _ = kernel.shape
    window = _Window(data, [kh, kw], stride, padding, dilation, "data_pad", function)
    block = data.shape[4]
    groups = _groups(data, ic_chunk * block, kernel, function)
    of_group = ops.floordiv(data.shape[1], groups)
    outer = te.reduce_axis((0, of_group), name="ic_outer")
    f_inner = te.reduce_axis((0, ops.floordiv(block, n_elems)), name="ic_f_inner")
    s_inner = te.reduce_axis((0, same_dtype(n_elems, block)), name="ic_s_inner")

    def element(n: PrimExpr, occ: PrimExpr, oh: PrimExpr, ow: PrimExpr, oc_inner: PrimExpr) -> Any:
        chunk: Any = outer.var
        if as_int(groups) != 1:
            group = ops.floordiv(occ * oc_block, ops.floordiv(oc_chunk * oc_block, groups))
            chunk = group * of_group + outer.var
        left = window.data(n, chunk, *window.source(oh, ow), f_inner.var * n_elems + s_inner.var)
        right = kernel(occ, outer, window.kh, window.kw, f_inner, oc_inner, s_inner)
        axes = [window.kh, window.kw, outer, f_inner, s_inner]
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=axes)

    first = "oc_chunk" if as_int(groups) == 1 else "occ"
    return te.compute(
        (data.shape[0], oc_chunk, *window.out, oc_block),
        lambda *axes: element(*axes),
        name=function,
        tag=function,
        attrs={"schedule_rule": f"meta_schedule.{function}"},
        varargs_names=["n", first, "oh", "ow", "oc_block"],
    )


def depthwise_conv2d_NCHWc(
    Input: Tensor,
    Filter: Tensor,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> Tensor:
    """Each channel of data (n, chunk, height, width, block) with its own filters.

    The filter is (out chunk, 1, height, width, 1, out block), where the output channels are those of the input times
    the multiplier. The layouts are known from the shapes.
    """
    function = "depthwise_conv2d_NCHWc"
    require_ndim(Filter, 6, f"nn.{function}", "Filter")
    dtype = out_dtype or Input.dtype
    oc_chunk, _, kh, kw, _, oc_block = Filter.shape
    window = _Window(Input, [kh, kw], stride, padding, dilation, "PaddedInput", function)
    block = Input.shape[4]
    channels, outputs = as_int(Input.shape[1] * block), as_int(oc_chunk * oc_block)
    if channels is not None and outputs is not None and (channels == 0 or outputs % channels):
        raise ShapeMismatch(
            f"topi.nn.{function}: {outputs} output channels of the filter of shape {shape_text(Filter.shape)} are no "
            f"multiple of the {channels} of the data of shape {shape_text(Input.shape)}"
        )
    multiplier = ops.floordiv(oc_chunk * oc_block, Input.shape[1] * block)

    def element(b: PrimExpr, oco: PrimExpr, oh: PrimExpr, ow: PrimExpr, oci: PrimExpr) -> Any:
        channel = ops.floordiv(oco * oc_block + oci, multiplier)
        place, zero = window.source(oh, ow), same_dtype(0, oc_block)
        left = window.data(b, ops.floordiv(channel, block), *place, ops.floormod(channel, block))
        right = Filter(oco, zero, window.kh, window.kw, zero, oci)
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=[window.kh, window.kw])

    shape = (Input.shape[0], oc_chunk, *window.out, oc_block)
    return te.compute(shape, element, name="DepthwiseConv2d", tag=function)


def unpack_NCHWc_to_nchw(packed_out: Tensor, out_dtype: str) -> Tensor:
    """(n, chunk, height, width, block) as (n, chunk * block, height, width), converted to a dtype."""
    require_ndim(packed_out, 5, "nn.unpack_NCHWc_to_nchw", "packed_out")
    n, chunk, height, width, block = packed_out.shape
    return te.compute(
        (n, chunk * block, height, width),
        lambda n, c, h, w: packed_out(n, ops.floordiv(c, block), h, w, ops.floormod(c, block)).astype(out_dtype),
        name="output_unpack",
        tag=f"{tag.INJECTIVE},unpack_nchwc",
    )
