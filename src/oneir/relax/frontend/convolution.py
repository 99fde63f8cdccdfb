"""Convolutions of importers, and their transposes, over one to three dimensions.

Images are (batch, channels, ...), kernels (output channels, input channels per group, ...), those of transposed
convolutions (input channels, output channels per group, ...).
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import op
from ..expr import Expr
from .importer import ModelImporter
from .window import DATA_LAYOUT, Window, zero_padded

_KERNEL_LAYOUT = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED_LAYOUT = {1: "IOW", 2: "IOHW", 3: "IODHW"}
_CONVOLUTION = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}


def convolve(
    g: ModelImporter,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    window: Window,
    groups: int,
    out_dtype: str | None = None,
) -> Expr:
    """A convolution, plus a bias for each channel if there is one."""
    out = _CONVOLUTION[window.rank](
        x,
        weight,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        groups=groups,
        data_layout=DATA_LAYOUT[window.rank],
        kernel_layout=_KERNEL_LAYOUT[window.rank],
        out_dtype=out_dtype,
    )
    return with_bias(g, g.emit(out), bias)


def convolve_transposed(
    g: ModelImporter,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    window: Window,
    output_padding: Sequence[int],
    groups: int,
    out_dtype: str | None = None,
    *,
    by_operator: bool = True,
) -> Expr:
    """The transpose of a convolution, plus a bias for each channel if there is one.

    Without `by_operator`, or where no operator computes it, it is a plain convolution of an image with zeros between
    its elements.
    """
    wide = any(more >= step for more, step in zip(output_padding, window.strides, strict=True))
    if window.rank not in _TRANSPOSED or wide or not by_operator:
        out = _convolve_dilated_image(g, x, weight, window, output_padding, groups, out_dtype)
        return with_bias(g, out, bias)
    out = _TRANSPOSED[window.rank](
        x,
        weight,
        strides=window.strides,
        padding=window.padding,
        output_padding=list(output_padding),
        dilation=window.dilations,
        groups=groups,
        data_layout=DATA_LAYOUT[window.rank],
        kernel_layout=_TRANSPOSED_LAYOUT[window.rank],
        out_dtype=out_dtype,
    )
    return with_bias(g, g.emit(out), bias)


def with_bias(g: ModelImporter, out: Expr, bias: Expr | None) -> Expr:
    """A result plus a bias for each channel, if there is one."""
    return out if bias is None else g.emit(op.add(out, g.along(bias, 1, g.ndim(out))))


def _convolve_dilated_image(
    g: ModelImporter,
    x: Expr,
    weight: Expr,
    window: Window,
    output_padding: Sequence[int],
    groups: int,
    out_dtype: str | None,
) -> Expr:
    """A transposed convolution as a plain one, by the mirrored kernel, of an image with zeros between its elements."""
    rank = window.rank
    fan_in, fan_out, *kernel = g.static_shape(weight, "the shape of a kernel")
    for i, step in enumerate(window.strides):
        if step > 1:
            axis, shape = 2 + i, g.shape(x)
            widths = [0, 0] * (len(shape) + 1)
            widths[2 * axis + 3] = step - 1
            dilated = g.emit(op.nn.pad(op.expand_dims(x, axis + 1), widths))
            x = g.reshaped(dilated, [*shape[:axis], shape[axis] * step, *shape[axis + 1 :]])
    before = [window.extent(i) - 1 - p for i, p in enumerate(window.before)]
    # The last element has zeros after it already.
    after = [
        window.extent(i) - 1 - p + more - (step - 1)
        for i, (p, more, step) in enumerate(zip(window.after, output_padding, window.strides, strict=True))
    ]
    x = zero_padded(g, x, before, after)
    for i in range(rank):
        weight = g.emit(op.flip(weight, 2 + i))
    parts = g.reshaped(weight, [groups, fan_in // groups, fan_out, *kernel])
    swapped = g.emit(op.permute_dims(parts, [0, 2, 1, *range(3, 3 + rank)]))
    weight = g.reshaped(swapped, [groups * fan_out, fan_in // groups, *kernel])
    plain = Window(kernel, [1] * rank, window.dilations, [0] * rank, [0] * rank)
    return convolve(g, x, weight, None, plain, groups, out_dtype)
