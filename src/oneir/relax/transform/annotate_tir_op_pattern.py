"""AnnotateTIROpPattern: PrimFuncs get the attribute `op_pattern`, by which FuseOps decides."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...tir.function import PrimFunc
from ...tir.transform.pass_base import PrimFuncPass
from ..analysis.op_pattern import op_pattern_of


class AnnotateTIROpPattern(PrimFuncPass, name="AnnotateTIROpPattern"):
    """Works out the pattern of each PrimFunc that has none, as its attribute `op_pattern`."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if "op_pattern" in func.attrs:
            return func
        return func.with_attr("op_pattern", int(op_pattern_of(func)))
