"""ReorderTakeAfterMatmul: rows of a table of weights are taken out of the product with the whole table.

R.matmul(x, R.take(table, indices, axis=1))   ->   R.take(R.matmul(x, table), indices, axis=1)

The product no longer waits for the indices, and the weights are not copied.
"""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.transform import PassContext
from .. import op
from ..dpl import is_op, rewrite_call, wildcard
from ..dpl.rewrite_module import Found
from ..expr import Expr, Function
from ..struct_info import TensorStructInfo
from .pass_base import FunctionPass


class ReorderTakeAfterMatmul(FunctionPass, opt_level=1):
    """Moves `take` behind products: from the last axis of a table, or of a matrix for each batch."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        data, table, indices = wildcard(), wildcard(), wildcard()
        taken = is_op("relax.take")(table, indices)

        def rewrite(expr: Expr, found: Found) -> Expr:
            return _rewritten(expr, found[taken], found[data], found[table], found[indices])

        return rewrite_call(is_op("relax.matmul")(data, taken), rewrite, func)


def _rewritten(expr: Any, take: Any, data: Expr, table: Expr, indices: Expr) -> Expr:
    infos = [e.struct_info_ for e in (data, table, indices, expr)]
    axis, mode = take.attrs["axis"], take.attrs["mode"]
    if axis is None or not all(isinstance(info, TensorStructInfo) and info.ndim != -1 for info in infos):
        return expr
    x, w, rows, result = infos
    axis %= w.ndim
    if rows.ndim == 1 and w.ndim == 2 and axis == 1:
        # [*batch, k] @ [k, table], of which columns are taken
        return op.take(op.matmul(data, table), indices, result.ndim - 1, mode)
    if not (x.ndim == w.ndim == 3 and rows.ndim == 1 and axis == 0 and x.extents and w.extents):
        return expr
    # [batch, n, k] @ [batch, k, m], the second one taken out of [table, k, m]: the product with all of it, and of
    # that what each element of the batch has taken
    batch, n, _ = x.extents
    size, k, m = w.extents
    flat = op.reshape(op.permute_dims(table, [1, 0, 2]), (k, size * m))
    everything = op.reshape(op.matmul(data, flat), (batch, n, size, m))
    return op.einsum((op.take(everything, indices, 2, mode),), "ijik->ijk")
