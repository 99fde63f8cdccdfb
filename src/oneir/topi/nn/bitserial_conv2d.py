"""Convolutions of integers of few bits, packed."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr
from ...te.tensor import Tensor
from ..index import Padding, Sizes, require_ndim
from .bitserial_util import bit_product, bitpack
from .pad import pad
from .window import output_extent, padding_of, per_dimension


def bitserial_conv2d_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Tensor:
    """The convolution of data NCHW with a kernel OIHW; the kernel may be packed already: OIHW and bits.

    With `unipolar`, bits of the kernel that are 0 count as -1.
    """
    function = "bitserial_conv2d_nchw"
    require_ndim(data, 4, f"nn.{function}", "data")
    packed = bitpack(data, activation_bits, pack_axis=1, bit_axis=2, pack_type=pack_dtype)
    if kernel.ndim == 4:
        kernel = bitpack(kernel, weight_bits, pack_axis=1, bit_axis=4, pack_type=pack_dtype)
    require_ndim(kernel, 5, f"nn.{function}", "a packed kernel")
    batch, words, bits, *extents = packed.shape
    outputs, _, height, width, of_weight = kernel.shape
    before, after = padding_of(padding, [height, width], function)
    strides = per_dimension(stride, 2, function, "stride")
    out = [output_extent(*s, function) for s in zip(extents, (height, width), strides, before, after, strict=True)]
    padded = pad(packed, [0, 0, 0, *before], [0, 0, 0, *after], name="pad_temp")
    rc, ry, rx, b2, b1 = axes = _axes(words, height, width, of_weight, bits)

    def element(nn: PrimExpr, ff: PrimExpr, yy: PrimExpr, xx: PrimExpr) -> Any:
        source = padded(nn, rc, b1, yy * strides[0] + ry.var, xx * strides[1] + rx.var)
        product = bit_product(source, kernel(ff, rc, ry, rx, b2), out_dtype, unipolar)
        return te.sum(ops.shift_left(product, (b1.var + b2.var).astype(out_dtype)), axis=axes)

    return te.compute((batch, outputs, *out), element, name="Conv2dOutput", tag=function)


def bitserial_conv2d_nhwc(
    data: Tensor,
    kernel: Tensor,
    stride: Sizes,
    padding: Padding,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Tensor:
    """The convolution of data NHWC with a kernel HWIO; the kernel may be packed already: HWIO and bits.

    With `unipolar`, bits of the kernel that are 0 count as -1.
    """
    function = "bitserial_conv2d_nhwc"
    require_ndim(data, 4, f"nn.{function}", "data")
    packed = bitpack(data, activation_bits, pack_axis=3, bit_axis=4, pack_type=pack_dtype)
    if kernel.ndim == 4:
        kernel = bitpack(kernel, weight_bits, pack_axis=2, bit_axis=4, pack_type=pack_dtype)
    require_ndim(kernel, 5, f"nn.{function}", "a packed kernel")
    batch, *extents, words, bits = packed.shape
    height, width, _, outputs, of_weight = kernel.shape
    before, after = padding_of(padding, [height, width], function)
    strides = per_dimension(stride, 2, function, "stride")
    out = [output_extent(*s, function) for s in zip(extents, (height, width), strides, before, after, strict=True)]
    padded = pad(packed, [0, *before, 0, 0], [0, *after, 0, 0], name="PaddedInput")
    rc, ry, rx, b2, b1 = axes = _axes(words, height, width, of_weight, bits)

    def element(nn: PrimExpr, yy: PrimExpr, xx: PrimExpr, ff: PrimExpr) -> Any:
        source = padded(nn, yy * strides[0] + ry.var, xx * strides[1] + rx.var, rc, b1)
        product = bit_product(source, kernel(ry, rx, rc, ff, b2), out_dtype, unipolar)
        return te.sum(ops.shift_left(product, (b1.var + b2.var).astype(out_dtype)), axis=axes)

    return te.compute((batch, *out, outputs), element, name="Conv2dOutput", tag=function)


def _axes(words: Any, height: Any, width: Any, weight_bits: Any, data_bits: Any) -> list[Any]:
    extents = {"rc": words, "ry": height, "rx": width, "b2": weight_bits, "b1": data_bits}
    return [te.reduce_axis((0, extent), name=name) for name, extent in extents.items()]
