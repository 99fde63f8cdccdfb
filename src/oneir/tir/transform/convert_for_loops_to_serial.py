"""ConvertForLoopsToSerial: parallel loops run in order."""

from __future__ import annotations

from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..stmt import For, ForKind
from .pass_base import PrimFuncPass, function_pass


class _Serial(Mapper):
    def visit_For(self, loop: For) -> For:
        loop = self.generic_visit(loop)
        return loop.replace(kind=ForKind.SERIAL) if loop.kind == ForKind.PARALLEL else loop


def convert_for_loops_to_serial(func: PrimFunc) -> PrimFunc:
    """The function without parallel loops."""
    return func.with_body(_Serial()(func.body))


def ConvertForLoopsToSerial() -> PrimFuncPass:
    """Makes parallel loops serial."""
    return function_pass(convert_for_loops_to_serial, "tir.ConvertForLoopsToSerial")
