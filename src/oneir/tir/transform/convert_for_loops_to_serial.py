"""ConvertForLoopsToSerial: parallel loops run in order."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..function import PrimFunc
from ..stmt import For, ForKind
from .pass_base import PrimFuncPass


class ConvertForLoopsToSerial(PrimFuncPass):
    """Makes parallel loops serial."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Serial()(func.body))


class _Serial(Mapper):
    def visit_For(self, loop: For) -> For:
        loop = self.generic_visit(loop)
        return loop.replace(kind=ForKind.SERIAL) if loop.kind == ForKind.PARALLEL else loop
