"""Convolutions whose window is displaced, element by element, by offsets from another tensor."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from ..index import Padding, Sizes, require_ndim, shape_text
from .window import dilated, padding_of, per_dimension


def deformable_conv2d_nchw(
    data: Tensor,
    offset: Tensor,
    kernel: Tensor,
    strides: Sizes,
    padding: Padding,
    dilation: Sizes,
    deformable_groups: int,
    groups: int,
    out_dtype: str | None,
) -> Tensor:
    """The convolution of data NCHW with a kernel OIHW; `offset` is (N, deformable groups * H * W * 2, out H, out W).

    Between pixels the data is interpolated linearly; outside of it is 0.
    """
    window = _Window("NCHW", data, offset, kernel, strides, padding, dilation, deformable_groups, groups)
    dtype = out_dtype or data.dtype
    n, channels, outputs = data.shape[0], data.shape[1], kernel.shape[0]
    kh, kw = window.kernel
    moved = te.compute(
        (n, channels, kh, kw, *window.out),
        lambda n, c, kh, kw, y, x: window.sample(n, c, kh, kw, y, x),
        tag="data_deform",
    )
    rc, ry, rx = window.axes(channels)
    return te.compute(
        (n, outputs, *window.out),
        lambda n, f, y, x: te.sum(
            moved(n, rc, ry, rx, y, x).astype(dtype) * kernel(f, rc, ry, rx).astype(dtype), axis=[rc, ry, rx]
        ),
        tag="deformable_conv2d_nchw",
    )


def deformable_conv2d_nhwc(
    data: Tensor,
    offset: Tensor,
    kernel: Tensor,
    strides: Sizes,
    padding: Padding,
    dilation: Sizes,
    deformable_groups: int,
    groups: int,
    out_dtype: str | None,
) -> Tensor:
    """The convolution of data NHWC with a kernel HWIO; `offset` is (N, out H, out W, deformable groups * H * W * 2).

    Between pixels the data is interpolated linearly; outside of it is 0.
    """
    window = _Window("NHWC", data, offset, kernel, strides, padding, dilation, deformable_groups, groups)
    dtype = out_dtype or data.dtype
    n, channels, outputs = data.shape[0], data.shape[3], kernel.shape[3]
    kh, kw = window.kernel
    moved = te.compute(
        (n, kh, kw, channels, *window.out),
        lambda n, kh, kw, c, y, x: window.sample(n, c, kh, kw, y, x),
        tag="data_deform",
    )
    rc, ry, rx = window.axes(channels)
    return te.compute(
        (n, *window.out, outputs),
        lambda n, y, x, f: te.sum(
            moved(n, ry, rx, rc, y, x).astype(dtype) * kernel(ry, rx, rc, f).astype(dtype), axis=[ry, rx, rc]
        ),
        tag="deformable_conv2d_nhwc",
    )


class _Window:
    """Where each element of the window reads the data."""

    def __init__(
        self,
        layout: str,
        data: Tensor,
        offset: Tensor,
        kernel: Tensor,
        strides: Sizes,
        padding: Padding,
        dilation: Sizes,
        deformable_groups: int,
        groups: int,
    ):
        function = f"deformable_conv2d_{layout.lower()}"
        for tensor, name in ((data, "data"), (offset, "offset"), (kernel, "kernel")):
            require_ndim(tensor, 4, f"nn.{function}", name)
        if as_int(groups) != 1:
            raise InvalidValue(f"topi.nn.{function}: expected 1 group, found {groups}")
        self.first = layout == "NCHW"
        self.data, self.offset = data, offset
        spatial = slice(2, 4) if self.first else slice(1, 3)
        channels = data.shape[1] if self.first else data.shape[3]
        taken = kernel.shape[1] if self.first else kernel.shape[2]
        known, expected = as_int(channels), as_int(taken)
        if known is not None and (known % deformable_groups or (expected is not None and known != expected)):
            raise ShapeMismatch(
                f"topi.nn.{function}: {known} channels of the data of shape {shape_text(data.shape)} must be those of "
                f"the kernel of shape {shape_text(kernel.shape)}, and divide into {deformable_groups} deformable groups"
            )
        self.extents, self.out = data.shape[spatial], offset.shape[spatial]
        self.kernel = kernel.shape[2:4] if self.first else kernel.shape[:2]
        self.strides = per_dimension(strides, 2, function, "stride")
        self.dilations = per_dimension(dilation, 2, function, "dilation")
        self.before, _ = padding_of(padding, dilated(list(self.kernel), self.dilations), function)
        self.of_group = ops.floordiv(channels, deformable_groups)
        wanted = as_int(self.kernel[0] * self.kernel[1] * 2 * deformable_groups)
        found = as_int(offset.shape[1] if self.first else offset.shape[3])
        if None not in (wanted, found) and wanted != found:
            raise ShapeMismatch(
                f"topi.nn.{function}: expected {wanted} offsets, two for each element of the window in each deformable "
                f"group, found the shape {shape_text(offset.shape)}"
            )

    def axes(self, channels: Any) -> tuple[Any, Any, Any]:
        """The reduction axes over the channels and the window."""
        height, width = self.kernel
        return (
            te.reduce_axis((0, channels), name="rc"),
            te.reduce_axis((0, height), name="ry"),
            te.reduce_axis((0, width), name="rx"),
        )

    def sample(self, n: Any, c: Any, kh: Any, kw: Any, y: Any, x: Any) -> Any:
        """What the element (kh, kw) of the window reads in the channel c for the output (y, x)."""
        height, width = self.kernel
        index = ops.floordiv(c, self.of_group) * (width * height * 2) + (kh * width + kw) * 2
        place = []
        sizes = zip((y, x), (kh, kw), self.strides, self.before, self.dilations, strict=True)
        for axis, (at, k, stride, pad, dilation) in enumerate(sizes):
            move = self.offset(n, index + axis, y, x) if self.first else self.offset(n, y, x, index + axis)
            place.append((at * stride - pad + k * dilation).astype(self.offset.dtype) + move)
        outside = tir_op.any(*(p < 0 for p in place), *(p >= e for p, e in zip(place, self.extents, strict=True)))
        return tir_op.if_then_else(outside, const(0, self.data.dtype), self._between(n, c, *place))

    def _between(self, n: Any, c: Any, h: Any, w: Any) -> Any:
        """The data at (h, w), interpolated between four pixels; beyond the last pixel it is that pixel."""
        lows, highs, parts = [], [], []
        for at, extent in zip((h, w), self.extents, strict=True):
            low = tir_op.floor(at).astype(extent.dtype)
            lows.append(low)
            highs.append(te.min(low + 1, extent - 1))
            parts.append((at - tir_op.floor(at)).astype(self.data.dtype))

        def pixel(row: PrimExpr, column: Any) -> Any:
            return self.data(n, c, row, column) if self.first else self.data(n, row, column, c)

        top = pixel(lows[0], lows[1]) * (1 - parts[1]) + pixel(lows[0], highs[1]) * parts[1]
        bottom = pixel(highs[0], lows[1]) * (1 - parts[1]) + pixel(highs[0], highs[1]) * parts[1]
        return top * (1 - parts[0]) + bottom * parts[0]
