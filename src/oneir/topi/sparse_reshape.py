"""Sparse tensors in another shape."""

from __future__ import annotations

from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, Select, const
from ..te.tensor import Tensor
from .index import require_int, require_ndim


def sparse_reshape(
    sparse_indices: Tensor, prev_shape: Tensor, new_shape: Tensor, new_sparse_indices_shape: Any, new_shape_shape: Any
) -> list[Tensor]:
    """The indices of a sparse tensor, a row for each value, after reshaping it; and the new shape.

    Shapes are vectors of int64; one extent of the new one may be -1, which stands for what remains. The last two
    arguments are the shapes of the results.
    """
    require_ndim(sparse_indices, 2, "sparse_reshape", "sparse_indices")
    require_ndim(prev_shape, 1, "sparse_reshape", "prev_shape")
    require_ndim(new_shape, 1, "sparse_reshape", "new_shape")
    old_ndim = require_int(prev_shape.shape[0], "sparse_reshape", "the length of prev_shape")
    ndim = require_int(new_shape.shape[0], "sparse_reshape", "the length of new_shape")

    def product(values: list[PrimExpr]) -> PrimExpr:
        result: Any = const(1, "int64")
        for value in values:
            result = ops.multiply(result, value)
        return result

    old = [ops.cast("int64", prev_shape(i)) for i in range(old_ndim)]
    given = [ops.cast("int64", new_shape(i)) for i in range(ndim)]
    known = product([Select(ops.equal(d, -1), const(1, "int64"), d) for d in given])

    def extent(i: PrimExpr) -> PrimExpr:
        value = ops.cast("int64", new_shape(i))
        return Select(ops.equal(value, -1), ops.floordiv(product(old), known), value)

    shape = te.compute(new_shape_shape, lambda *ax: extent(ax[0]), name="new_shape")

    def coordinate(row: PrimExpr, column: Any) -> PrimExpr:
        position: Any = const(0, "int64")
        for i in range(old_ndim):
            position = ops.add(ops.multiply(position, old[i]), ops.cast("int64", sparse_indices(row, i)))
        result: Any = const(0, "int64")
        for i in reversed(range(ndim)):
            result = Select(ops.equal(column, i), ops.floormod(position, shape(i)), result)
            position = ops.floordiv(position, shape(i))
        return result

    indices = te.compute(new_sparse_indices_shape, coordinate, name="new_sparse_indices")
    return [indices, shape]
