"""The windows of convolutions and poolings, as nodes describe them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....ir import operators as ops
from .....runtime.error import UnsupportedError
from ...window import DATA_LAYOUT, Window
from ..context import Context


def window_of(
    g: Context,
    extents: Sequence[Any],
    kernel: Sequence[Any],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Window:
    """The window that a node describes over images of some extents."""
    rank = len(extents)
    if rank not in DATA_LAYOUT:
        raise UnsupportedError(f"windows over {rank} dimensions; 1 to 3 are computed")
    if len(kernel) != rank:
        raise UnsupportedError(f"a window of {len(kernel)} dimensions over {rank}")
    window = Window(list(kernel), list(strides or [1] * rank), list(dilations or [1] * rank), [0] * rank, [0] * rank)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [_same_padding(g, extent, window.strides[i], window.extent(i)) for i, extent in enumerate(extents)]
        share_padding(window, totals, auto_pad)
    elif auto_pad in ("NOTSET", "", "VALID"):
        if pads is not None and auto_pad != "VALID":
            window.before, window.after = list(pads[:rank]), list(pads[rank:])
    else:
        raise UnsupportedError(f"expected auto_pad to be NOTSET, SAME_UPPER, SAME_LOWER or VALID, found {auto_pad!r}")
    return window


def share_padding(window: Window, totals: Sequence[int], auto_pad: str) -> None:
    """Splits the padding of each dimension evenly; an odd element comes after it for SAME_UPPER, else before it."""
    halves, rest = [t // 2 for t in totals], [t - t // 2 for t in totals]
    window.before, window.after = (halves, rest) if auto_pad == "SAME_UPPER" else (rest, halves)


def _same_padding(g: Context, extent: Any, stride: int, kernel_extent: int) -> int:
    """The padding with which a dimension has one window for each `stride` elements."""
    if isinstance(extent, int):
        return max((-(-extent // stride) - 1) * stride + kernel_extent - extent, 0)
    if stride == 1:
        return kernel_extent - 1
    count = ops.floordiv(extent + stride - 1, stride)
    needed = g.block_builder.analyzer.simplify((count - 1) * stride + kernel_extent - extent)
    return max(g.static(needed, "the padding that auto_pad makes"), 0)
