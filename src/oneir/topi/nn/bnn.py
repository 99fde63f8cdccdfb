"""Networks of signs: packed, and multiplied by counting bits."""

from __future__ import annotations

from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import ShapeMismatch, TypeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..index import require_axis, require_ndim, shape_text


def binarize_pack(data: Tensor, axis: int | None = None, name: str = "PackedInput") -> Tensor:
    """The signs along `axis`, the last one by default, 32 to a uint32: 1 where an element is at least 0.

    The first of the elements that share a word is its highest bit.
    """
    axis = require_axis(-1 if axis is None else axis, data.ndim, "nn.binarize_pack")
    if (known := as_int(data.shape[axis])) is not None and known % 32:
        raise ShapeMismatch(
            f"topi.nn.binarize_pack: axis {axis} of the shape {shape_text(data.shape)} is no multiple of 32"
        )
    simplify = Analyzer().simplify
    shape = [simplify(ops.floordiv(e, 32)) if d == axis else e for d, e in enumerate(data.shape)]

    def word(*i: PrimExpr) -> Any:
        packed: Any = const(0, "uint32")
        for bit in range(32):
            place = [index * 32 + bit if d == axis else index for d, index in enumerate(i)]
            sign = (data(*place) >= 0).astype("uint32")
            packed = ops.bitwise_or(packed, sign)
            if bit < 31:
                packed = ops.shift_left(packed, const(1, "uint32"))
        return packed

    return te.compute(shape, word, name=name, tag="binarize_pack")


def binary_dense(data: Tensor, weight: Tensor) -> Tensor:
    """data @ weight.T of packed signs, (batch, in // 32) and (out, in // 32), as float32."""
    for tensor, what in ((data, "data"), (weight, "weight")):
        require_ndim(tensor, 2, "nn.binary_dense", what)
        if tensor.dtype != "uint32":
            raise TypeMismatch(f"topi.nn.binary_dense: expected {what} of uint32, found {tensor.dtype}")
    (batch, words), (outputs, depth) = data.shape, weight.shape
    if None not in (as_int(words), as_int(depth)) and as_int(words) != as_int(depth):
        raise ShapeMismatch(
            f"topi.nn.binary_dense: the inner dimensions differ: data of shape {shape_text(data.shape)}, weight of "
            f"shape {shape_text(weight.shape)}"
        )
    k = te.reduce_axis((0, words), name="k")
    differing = te.compute(
        (batch, outputs),
        lambda i, j: te.sum(te.popcount(ops.bitwise_xor(data(i, k), weight(j, k))), axis=k),
        tag="binary_dense",
    )
    return te.compute(
        (batch, outputs),
        lambda i, j: (32 * words).astype("float32") - const(2.0, "float32") * differing(i, j).astype("float32"),
        tag=tag.ELEMWISE,
    )
