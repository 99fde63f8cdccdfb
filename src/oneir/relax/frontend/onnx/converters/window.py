"""What windows have in common that slide over images: of convolutions and of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .....ir import operators as ops
from .....runtime.error import UnsupportedError
from ..context import Context

DATA_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


@dataclass
class Window:
    """A window over the spatial dimensions of an image, with a value for each of them."""

    kernel: list[Any]
    strides: list[int]
    dilations: list[int]
    before: list[Any]
    after: list[Any]

    @property
    def padding(self) -> list[Any]:
        """Elements before each dimension, then after each."""
        return [*self.before, *self.after]

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.kernel)

    def reach(self, dim: int) -> Any:
        """How many elements it spans along a dimension."""
        return (self.kernel[dim] - 1) * self.dilations[dim] + 1


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
        for i, extent in enumerate(extents):
            total = _same_padding(g, extent, window.strides[i], window.reach(i))
            small = total // 2
            window.before[i], window.after[i] = (
                (small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small)
            )
    elif auto_pad in ("NOTSET", "", "VALID"):
        if pads is not None and auto_pad != "VALID":
            window.before, window.after = list(pads[:rank]), list(pads[rank:])
    else:
        raise UnsupportedError(f"expected auto_pad to be NOTSET, SAME_UPPER, SAME_LOWER or VALID, found {auto_pad!r}")
    return window


def _same_padding(g: Context, extent: Any, stride: int, reach: int) -> int:
    """How many elements are needed around a dimension for one result for each `stride` elements."""
    if isinstance(extent, int):
        return max((-(-extent // stride) - 1) * stride + reach - extent, 0)
    if stride == 1:
        return reach - 1
    needed = g.block_builder.analyzer.simplify(
        (ops.floordiv(extent + stride - 1, stride) - 1) * stride + reach - extent
    )
    return max(g.static(needed, "the padding that auto_pad makes"), 0)
