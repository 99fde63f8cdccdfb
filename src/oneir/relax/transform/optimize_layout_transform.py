"""OptimizeLayoutTransform: a change of layout and the change back, as `AlterOpImpl` leaves them, are none.

lv = R.layout_transform(y, blocked_to_plain)
gv = R.layout_transform(lv, plain_to_blocked)   ->   y
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.expr import Range
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext
from ..dpl import is_op, is_tuple, rewrite_call, wildcard
from ..expr import Call, Function
from ..struct_info import TensorStructInfo
from .pass_base import FunctionPass


class OptimizeLayoutTransform(FunctionPass):
    """Removes changes of layout that undo each other, except in fused functions.

    What removes padding in between (a function whose attribute `operator_name` is "remove_pad") goes as well: the
    padding comes back, and its elements have no meaning.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        data, callee = wildcard(), wildcard()
        first = is_op("relax.layout_transform")(data)
        second = is_op("relax.layout_transform")(first)
        unpadded = is_op("relax.layout_transform")(is_op("relax.call_tir")(callee, is_tuple([first])))

        def rewrite(expr: Any, found: Any) -> Any:
            if unpadded in found:
                kernel = mod.functions.get(found[callee])
                if kernel is None or kernel.attrs.get("operator_name") != "remove_pad":
                    return expr
            value, before, after = found[data], found[first], found[unpadded if unpadded in found else second]
            shapes = [getattr(e.struct_info_, "shape", None) for e in (value, after)]
            same = shapes[0] is not None and structural_equal(shapes[0], shapes[1])
            return value if same and _undoes(before, after) else expr

        return rewrite_call(second | unpadded, rewrite, func)


def _undoes(before: Call, after: Call) -> bool:
    """Whether the second of two changes of layout brings each element back to where it was before the first."""
    info = before.args[0].struct_info
    assert isinstance(info, TensorStructInfo) and info.extents is not None
    first, second = before.attrs["index_map"], after.attrs["index_map"]
    analyzer = Analyzer()
    for var, extent in zip(first.initial_indices, info.extents, strict=True):
        analyzer.bind(var, Range.from_min_extent(0, extent))
    back = second.map_indices(first.map_indices(first.initial_indices))
    return len(back) == len(first.initial_indices) and all(
        analyzer.can_prove_equal(i, j) for i, j in zip(back, first.initial_indices, strict=True)
    )
