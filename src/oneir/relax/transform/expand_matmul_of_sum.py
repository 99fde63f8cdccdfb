"""ExpandMatmulOfSum: the product with a sum becomes the sum of products.

R.matmul(x, R.add(a, b))   ->   R.add(R.matmul(x, a), R.matmul(x, b))

Where `b` is itself a product of small matrices, as adapters of large models are, `AdjustMatmulOrder` then takes the
cheaper order.
"""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.transform import PassContext
from .. import op
from ..analysis.compile_time import computable_at_compile_time
from ..dpl import is_op, rewrite_call, wildcard
from ..expr import Function
from .pass_base import FunctionPass


class ExpandMatmulOfSum(FunctionPass, opt_level=1):
    """Expands products with sums on the right, transposed or not, but those of two weights."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        known = set(computable_at_compile_time(func))
        data, a, b = wildcard(), wildcard(), wildcard()
        total = is_op("relax.add")(a, b)
        transposed = is_op("relax.permute_dims")(total)

        def rewrite(expr: Any, found: Any) -> Any:
            left, right = found[a], found[b]
            if left in known and right in known:
                return expr  # The sum is computed while compiling.
            if transposed in found:
                axes = found[transposed].attrs["axes"]
                left, right = op.permute_dims(left, axes), op.permute_dims(right, axes)
            return op.add(op.matmul(found[data], left), op.matmul(found[data], right))

        return rewrite_call(is_op("relax.matmul")(data, total | transposed), rewrite, func)
