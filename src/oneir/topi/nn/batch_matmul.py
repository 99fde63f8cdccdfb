"""The product of the matrices of two batches."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir.expr import PrimExpr, as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from ..index import Shape, is_one, require_ndim, shape_text
from .dense import product_shape, transposition
from .window import same_dtype


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Shape | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """The products of (batch, m, k) with (batch, n, k), the second transposed unless said otherwise.

    A batch of 1 is used with every matrix of the other. `oshape` is the shape of the result where it cannot be told
    from the inputs. Products are computed in `out_dtype`, by default that of `tensor_a`.
    """
    for tensor, what in ((tensor_a, "tensor_a"), (tensor_b, "tensor_b")):
        require_ndim(tensor, 3, "nn.batch_matmul", what)
    dtype = out_dtype or tensor_a.dtype
    rows, inner, columns = product_shape(tensor_a, tensor_b, transpose_a, transpose_b, "batch_matmul")
    batch_a, batch_b = tensor_a.shape[0], tensor_b.shape[0]
    known = {as_int(batch_a), as_int(batch_b)}
    if len(known) == 2 and not known & {1, None}:
        raise ShapeMismatch(
            f"topi.nn.batch_matmul: the batches differ: {shape_text(tensor_a.shape)} and "
            f"{shape_text(tensor_b.shape)}; make them equal, or one of them 1"
        )
    k = te.reduce_axis((0, inner), name="k")

    def element(b: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        left = tensor_a(same_dtype(0, batch_a) if is_one(batch_a) else b, *((k, i) if transpose_a else (i, k)))
        right = tensor_b(same_dtype(0, batch_b) if is_one(batch_b) else b, *((j, k) if transpose_b else (k, j)))
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    return te.compute(
        oshape or (batch_b if is_one(batch_a) else batch_a, rows, columns),
        element,
        name=f"T_batch_matmul_{transposition(transpose_a, transpose_b)}",
        tag="batch_matmul",
        attrs={"layout_free_placeholders": [tensor_b]},
    )
