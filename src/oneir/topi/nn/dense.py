"""Products of matrices."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..broadcast import add
from ..index import broadcast_shape, is_one, require_ndim, shape_text
from ..math import cast
from .window import same_dtype


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """The product of the last two dimensions, each transposed on request; dimensions before these are broadcast.

    `bias` has one dimension and is added to each row. Products are computed in `out_dtype`, by default that of
    `tensor_a`.
    """
    dtype = out_dtype or tensor_a.dtype
    rows, inner, columns = product_shape(tensor_a, tensor_b, transpose_a, transpose_b, "matmul")
    batch = broadcast_shape(tensor_a.shape[:-2], tensor_b.shape[:-2], "nn.matmul")
    k = te.reduce_axis((0, inner), name="k")

    def element(*i: PrimExpr) -> Any:
        *outer, row, column = i
        left = tensor_a(*_batch_index(tensor_a, outer), *((k, row) if transpose_a else (row, k)))
        right = tensor_b(*_batch_index(tensor_b, outer), *((column, k) if transpose_b else (k, column)))
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    letters = transposition(transpose_a, transpose_b)
    product = te.compute(
        (*batch, rows, columns),
        element,
        name=f"T_matmul_{letters}",
        tag="dense" if letters == "NT" else "matmul",
        attrs={"layout_free_placeholders": [tensor_b]},
    )
    if bias is None:
        return product
    require_ndim(bias, 1, "nn.matmul", "bias")
    return add(product, cast(bias, dtype))


def _batch_index(tensor: Tensor, outer: list[Any]) -> list[Any]:
    extents = tensor.shape[:-2]
    return [
        same_dtype(0, e) if is_one(e) else i for i, e in zip(outer[len(outer) - len(extents) :], extents, strict=True)
    ]


def transposition(transpose_a: bool, transpose_b: bool) -> str:
    """A letter for each factor: T where it is transposed, N where it is not."""
    return ("T" if transpose_a else "N") + ("T" if transpose_b else "N")


def product_shape(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, function: str) -> tuple[Any, Any, Any]:
    """The rows, the extent summed over, and the columns."""
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeMismatch(
            f"topi.nn.{function}: expected tensors of at least 2 dimensions, found the shapes "
            f"{shape_text(a.shape)} and {shape_text(b.shape)}"
        )
    rows, inner = reversed(a.shape[-2:]) if transpose_a else a.shape[-2:]
    other, columns = reversed(b.shape[-2:]) if transpose_b else b.shape[-2:]
    known, found = as_int(inner), as_int(other)
    if known is not None and found is not None and known != found:
        raise ShapeMismatch(
            f"topi.nn.{function}: the inner dimensions differ: {known} of the shape {shape_text(a.shape)}"
            f"{' transposed' if transpose_a else ''} meets {found} of the shape {shape_text(b.shape)}"
            f"{' transposed' if transpose_b else ''}"
        )
    return rows, inner if known is not None or found is None else other, columns


def dense(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """data @ weight.T + bias: `data` is (batch, in), `weight` (out, in), `bias` (out,)."""
    return matmul(data, weight, bias, out_dtype, False, True)


def dense_pack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """As `dense`, with the weight packed by columns: (out // n, in, n)."""
    require_ndim(data, 2, "nn.dense_pack", "data")
    require_ndim(weight, 3, "nn.dense_pack", "weight")
    dtype = out_dtype or data.dtype
    rows, inner = data.shape
    panels, depth, width = weight.shape
    if None not in (as_int(inner), as_int(depth)) and as_int(inner) != as_int(depth):
        raise ShapeMismatch(
            f"topi.nn.dense_pack: the inner dimensions differ: data of shape {shape_text(data.shape)}, weight of shape "
            f"{shape_text(weight.shape)}"
        )
    k = te.reduce_axis((0, inner), name="k")
    shape = (rows, panels * width)
    product = te.compute(
        shape,
        lambda y, x: te.sum(
            data[y, k].astype(dtype) * weight[ops.floordiv(x, width), k, ops.floormod(x, width)].astype(dtype), axis=k
        ),
        name="T_dense_pack",
        tag="dense_pack",
    )
    if bias is None:
        return product
    return te.compute(shape, lambda i, j: product[i, j] + bias[j].astype(dtype), tag=tag.BROADCAST)
