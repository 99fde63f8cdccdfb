"""A buffer that keeps the newest elements."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import require_axis, shape_text


@te.tag_scope(tag=tag.INJECTIVE + ",fifo_buffer")
def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Tensor:
    """The last `buffer.shape[axis]` elements of buffer and data joined along `axis`."""
    axis = require_axis(axis, buffer.ndim, "nn.fifo_buffer")
    pairs = [(as_int(d), as_int(b)) for d, b in zip(data.shape, buffer.shape, strict=False)]
    differ = [d is not None and b is not None and (d > b if i == axis else d != b) for i, (d, b) in enumerate(pairs)]
    if data.ndim != buffer.ndim or any(differ):
        raise ShapeMismatch(
            f"topi.nn.fifo_buffer: expected data of the buffer's shape {shape_text(buffer.shape)}, but at most as "
            f"long on axis {axis}, found {shape_text(data.shape)}"
        )
    kept = buffer.shape[axis] - data.shape[axis]

    def element(*i: PrimExpr) -> Any:
        def moved(by: Any) -> list[Any]:
            return [index + by if d == axis else index for d, index in enumerate(i)]

        return tir_op.if_then_else(i[axis] < kept, buffer(*moved(data.shape[axis])), data(*moved(-kept)))

    names = list("ijkl"[: buffer.ndim]) if buffer.ndim <= 4 else None
    return te.compute(buffer.shape, element, name="new_buffer", varargs_names=names)
