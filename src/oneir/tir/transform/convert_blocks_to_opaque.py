"""ConvertBlocksToOpaque: a block's variables are replaced by the values bound to them."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import Array, map_array
from ...ir.expr import Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..function import PrimFunc
from ..stmt import BlockRealize
from .pass_base import PrimFuncPass


class ConvertBlocksToOpaque(PrimFuncPass):
    """Substitutes the values bound to block variables, so that every block is opaque.

    Raises `WellFormedError` for a block that still has an init statement.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Opaque()(func.body))


class _Opaque(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Var, Any] = {}

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_BlockRealize(self, realize: BlockRealize) -> BlockRealize:
        block = realize.block
        if block.init is not None:
            raise WellFormedError(f"block `{block.name_hint}` still has an init; run LowerInitBlock first")
        values = map_array(realize.iter_values, self.visit)
        for iter_var, value in zip(block.iter_vars, values, strict=True):
            self.values[iter_var.var] = ops.cast(iter_var.var.dtype, value)
        # The predicate is written in terms of the loops around the block.
        predicate = self.visit(realize.predicate)
        block = self.generic_visit(block.replace(iter_vars=Array()) if block.iter_vars else block)
        if block is realize.block and predicate is realize.predicate:
            return realize
        return realize.replace(iter_values=Array(), predicate=predicate, block=block)
