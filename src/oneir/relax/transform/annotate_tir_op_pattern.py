"""AnnotateTIROpPattern: TensorIR functions get the attribute `op_pattern`, by which FuseOps decides."""

from __future__ import annotations

from ...ir.transform import Pass
from ...tir.function import PrimFunc
from ...tir.transform.pass_base import function_pass
from ..analysis.op_pattern import op_pattern_of


def AnnotateTIROpPattern() -> Pass:
    """A pass that works out the pattern of each TensorIR function that has none."""
    return function_pass(_annotate, "AnnotateTIROpPattern")


def _annotate(func: PrimFunc) -> PrimFunc:
    if "op_pattern" in func.attrs:
        return func
    return func.with_attr("op_pattern", int(op_pattern_of(func)))
