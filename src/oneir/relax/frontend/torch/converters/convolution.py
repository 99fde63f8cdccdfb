"""Convolutions and their transposes."""

from __future__ import annotations

from typing import Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr
from ..importer import Importer, as_shape
from ..registry import converter

_DATA_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL_LAYOUT = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED_LAYOUT = {1: "IOW", 2: "IOHW", 3: "IODHW"}


def per_axis(value: Any, rank: int) -> list[Any]:
    """One value for each spatial dimension."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


def batched(g: Importer, x: Expr, rank: int) -> tuple[Expr, bool]:
    """An image, or a batch of them, as a batch; and whether it was none."""
    if g.ndim(x) == rank + 2:
        return x, False
    return g.emit(op.expand_dims(x, 0)), True


def _padding(padding: Any, kernel: list[Any], dilation: list[int], stride: list[int]) -> list[Any]:
    """Elements before each dimension, then after each."""
    rank = len(kernel)
    if not isinstance(padding, str):
        return per_axis(padding, rank)
    if padding == "valid":
        return [0] * rank
    if any(s != 1 for s in stride):
        raise UnsupportedError('padding="same" needs a stride of 1')
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def _with_bias(g: Importer, out: Expr, bias: Expr | None, rank: int) -> Expr:
    return out if bias is None else g.emit(op.add(out, op.reshape(bias, [1, -1, *[1] * rank])))


def convolve(
    g: Importer,
    rank: int,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Expr:
    """A convolution over `rank` dimensions."""
    x, single = batched(g, x, rank)
    strides, dilations = per_axis(stride, rank), per_axis(dilation, rank)
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[rank]
    out = g.emit(
        function(
            x,
            weight,
            strides=strides,
            padding=_padding(padding, g.shape(weight)[2:], dilations, strides),
            dilation=dilations,
            groups=groups,
            data_layout=_DATA_LAYOUT[rank],
            kernel_layout=_KERNEL_LAYOUT[rank],
            out_dtype=g.dtype(x),
        )
    )
    out = _with_bias(g, out, bias, rank)
    return g.emit(op.squeeze(out, [0])) if single else out


def convolve_transposed(
    g: Importer,
    rank: int,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Expr:
    """The transpose of a convolution over `rank` dimensions."""
    x, single = batched(g, x, rank)
    given = [per_axis(v, rank) for v in (stride, padding, output_padding, dilation)]
    if rank == 3 or any(more >= step for more, step in zip(given[2], given[0], strict=True)):
        out = _with_bias(g, _spread_convolution(g, rank, x, weight, *given, groups=groups), bias, rank)
        return g.emit(op.squeeze(out, [0])) if single else out
    function = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}[rank]
    out = g.emit(
        function(
            x,
            weight,
            strides=per_axis(stride, rank),
            padding=per_axis(padding, rank),
            output_padding=per_axis(output_padding, rank),
            dilation=per_axis(dilation, rank),
            groups=groups,
            data_layout=_DATA_LAYOUT[rank],
            kernel_layout=_TRANSPOSED_LAYOUT[rank],
            out_dtype=g.dtype(x),
        )
    )
    out = _with_bias(g, out, bias, rank)
    return g.emit(op.squeeze(out, [0])) if single else out


def _spread_convolution(
    g: Importer,
    rank: int,
    x: Expr,
    weight: Expr,
    strides: list[int],
    padding: list[int],
    output_padding: list[int],
    dilations: list[int],
    groups: int,
) -> Expr:
    """A transposed convolution as a plain one of images with zeros between their elements, by the turned kernel."""
    fan_in, fan_out, *kernel = g.shape(weight)
    for i, step in enumerate(strides):
        if step > 1:
            axis, shape = 2 + i, g.shape(x)
            around = [0, 0] * (len(shape) + 1)
            around[2 * axis + 3] = step - 1
            spread = op.nn.pad(op.expand_dims(x, axis + 1), around)
            x = g.emit(op.reshape(spread, as_shape([*shape[:axis], shape[axis] * step, *shape[axis + 1 :]])))
    before, after = [], []
    for i, step in enumerate(strides):
        reach = dilations[i] * (kernel[i] - 1)
        before.append(reach - padding[i])
        # The last element has zeros after it already.
        after.append(reach - padding[i] + output_padding[i] - (step - 1))
    x = _fitted(g, x, before, after)
    turned = weight
    for i in range(rank):
        turned = op.flip(turned, 2 + i)
    parts = op.reshape(turned, [groups, fan_in // groups, fan_out, *kernel])
    swapped = op.permute_dims(parts, [0, 2, 1, *range(3, 3 + rank)])
    turned = g.emit(op.reshape(swapped, [groups * fan_out, fan_in // groups, *kernel]))
    return convolve(g, rank, x, turned, None, 1, 0, dilations, groups)


def _fitted(g: Importer, x: Expr, before: list[int], after: list[int]) -> Expr:
    """Zeros around the spatial dimensions; fewer elements where their number is negative."""
    shape, rank = g.shape(x), len(before)
    if min(*before, *after) < 0:
        begin = [max(-b, 0) for b in before]
        end = [extent - max(-a, 0) for extent, a in zip(shape[2:], after, strict=True)]
        x = g.emit(op.strided_slice(x, list(range(2, 2 + rank)), begin, end))
    around = [max(v, 0) for pair in zip(before, after, strict=True) for v in pair]
    return g.emit(op.nn.pad(x, [0, 0, 0, 0, *around])) if any(around) else x


def _register(rank: int) -> None:
    def forward(
        g: Importer,
        x: Expr,
        weight: Expr,
        bias: Expr | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Expr:
        return convolve(g, rank, x, weight, bias, stride, padding, dilation, groups)

    def transposed(
        g: Importer,
        x: Expr,
        weight: Expr,
        bias: Expr | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Expr:
        return convolve_transposed(g, rank, x, weight, bias, stride, padding, output_padding, groups, dilation)

    converter(f"conv{rank}d")(forward)
    converter(f"conv_transpose{rank}d")(transposed)


for _rank in (1, 2, 3):
    _register(_rank)


@converter("convolution", "_convolution")
def convolution(
    g: Importer,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *backend: Any,
) -> Expr:
    """A convolution or its transpose, over as many dimensions as the weight has."""
    rank = g.ndim(weight) - 2
    if transposed:
        return convolve_transposed(g, rank, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolve(g, rank, x, weight, bias, stride, padding, dilation, groups)
