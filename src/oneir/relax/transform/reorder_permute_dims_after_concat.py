"""ReorderPermuteDimsAfterConcat: tensors are joined before they are transposed.

R.concat((R.permute_dims(a), R.permute_dims(b)), axis=1)   ->   R.permute_dims(R.concat((a, b), axis=0))
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from ...ir.module import IRModule
from ...ir.transform import PassContext
from .. import op
from ..dpl import DFPattern, is_op, is_tuple, rewrite_call, wildcard
from ..expr import Function
from ..struct_info import TensorStructInfo
from .pass_base import FunctionPass

MAX_TENSORS = 11


class ReorderPermuteDimsAfterConcat(FunctionPass, opt_level=1):
    """Joins up to 11 tensors before their transposition, where all are transposed alike."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        tensors = [wildcard() for _ in range(MAX_TENSORS)]
        permuted = [is_op("relax.permute_dims")(tensor) for tensor in tensors]
        joined: list[DFPattern] = [is_op("relax.concat")(is_tuple(permuted[:n])) for n in range(2, MAX_TENSORS + 1)]
        pattern = reduce(or_, joined)

        def rewrite(expr: Any, found: Any) -> Any:
            calls = [found[p] for p in permuted if p in found]
            orders = [_order(call) for call in calls]
            axis = found[pattern].attrs["axis"]
            if axis is None or orders[0] is None or any(order != orders[0] for order in orders):
                return expr
            old_axis = orders[0][axis % len(orders[0])]
            whole = op.concat(tuple(found[t] for t in tensors if t in found), old_axis)
            return op.permute_dims(whole, calls[0].attrs["axes"])

        return rewrite_call(pattern, rewrite, func)


def _order(call: Any) -> list[int] | None:
    """Which dimension of its argument each dimension of a permuted tensor is; None where that is not known."""
    axes, info = call.attrs["axes"], call.args[0].struct_info
    if not isinstance(info, TensorStructInfo) or info.ndim == -1:
        return None
    if axes is None:
        return list(range(info.ndim))[::-1]
    return [int(a) % info.ndim for a in axes]
