"""Convolutions and their transposes."""

from __future__ import annotations

from typing import Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr
from ...convolution import convolve, convolve_transposed
from ...window import Window
from ..importer import Importer
from ..registry import converter


def per_axis(value: Any, rank: int) -> list[Any]:
    """One value for each spatial dimension."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


def batched(g: Importer, x: Expr, rank: int) -> tuple[Expr, bool]:
    """An image, or a batch of them, as a batch; and whether it was none."""
    if g.ndim(x) == rank + 2:
        return x, False
    return g.emit(op.expand_dims(x, 0)), True


def window_of(rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    """The window of a convolution or pooling; `padding` is that of both sides, or "same" or "valid"."""
    size, strides, dilations = per_axis(kernel, rank), per_axis(stride, rank), per_axis(dilation, rank)
    if not isinstance(padding, str):
        return Window(size, strides, dilations, per_axis(padding, rank), per_axis(padding, rank))
    if padding == "valid":
        return Window(size, strides, dilations, [0] * rank, [0] * rank)
    if any(s != 1 for s in strides):
        raise UnsupportedError('padding="same" needs a stride of 1')
    total = [d * (k - 1) for d, k in zip(dilations, size, strict=True)]
    return Window(size, strides, dilations, [t // 2 for t in total], [t - t // 2 for t in total])


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
        return convolution(g, x, weight, bias, stride, padding, dilation, False, 0, groups)

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
        return convolution(g, x, weight, bias, stride, padding, dilation, True, output_padding, groups)

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
    rank, dtype = g.ndim(weight) - 2, g.dtype(x)
    window = window_of(rank, g.shape(weight)[2:], stride, padding, dilation)
    x, single = batched(g, x, rank)
    if transposed:
        out = convolve_transposed(g, x, weight, bias, window, per_axis(output_padding, rank), groups, dtype)
    else:
        out = convolve(g, x, weight, bias, window, groups, dtype)
    return g.emit(op.squeeze(out, [0])) if single else out
