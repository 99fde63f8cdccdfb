"""RemoveRedundantReshape: of two reshapes in a row the second does, and one to the same shape does nothing.

R.reshape(R.reshape(x, R.shape([8, 2])), R.shape([4, 4]))   ->   R.reshape(x, R.shape([4, 4]))
"""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext
from .. import op
from ..dpl import is_op, rewrite_call, wildcard
from ..expr import Function
from ..struct_info import TensorStructInfo
from .pass_base import FunctionPass


class RemoveRedundantReshape(FunctionPass):
    """Removes reshapes without effect, except in fused functions."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        data = wildcard()
        single = is_op("relax.reshape")(data, wildcard())
        double = is_op("relax.reshape")(single, wildcard())

        def rewrite(expr: Any, found: Any) -> Any:
            value = found[data]
            if double in found:
                return op.reshape(value, found[double].args[1])
            info = value.struct_info_
            same = isinstance(info, TensorStructInfo) and structural_equal(info.shape, found[single].args[1])
            return value if same else expr

        return rewrite_call(double | single, rewrite, func)
