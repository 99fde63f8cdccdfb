"""What passes over dataflow blocks find out, for tests to look at."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..analysis.aliases import Aliases, live_ranges
from ..block_builder import BlockBuilder
from ..expr import Call, DataflowBlock, Var
from ..expr_functor import PyExprMutator
from ..transform.dataflow_use_inplace_calls import find_opportunities, make_inplace_call


class ApplyEmptyCppMutator(ModulePass):
    """Walks over all graphs and changes nothing."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return PyExprMutator(mod).transform_functions(mod)


def dataflow_liveness_analysis(block: DataflowBlock) -> dict[Var, tuple[int, int]]:
    """For each variable, the positions of its definition and of its last use (`live_ranges`)."""
    return live_ranges(block)


def dataflow_alias_analysis(
    block: DataflowBlock, inputs: Sequence[Var]
) -> tuple[dict[Var, set[int]], dict[int, list[set[int]]]]:
    """The memories that each variable may hold, and those that the fields of tuples may hold (`Aliases`)."""
    found = Aliases(block, inputs)
    return found.sets, found.tuples


def dataflow_inplace_analysis(
    block: DataflowBlock, inputs: Sequence[Var], mod: IRModule
) -> tuple[list[tuple[int, set[int]]], list[tuple[int, set[int]]]]:
    """Which bindings may write into which arguments: large enough ones, and ones of the same shape."""
    large, exact = find_opportunities(block, inputs, BlockBuilder(mod).analyzer)
    return [(i, set(places)) for i, places in large], [(i, set(places)) for i, places in exact]


def dataflow_single_inplace_call(mod: IRModule, call: Call, inplace_indices: Sequence[int]) -> tuple[Call, IRModule]:
    """A call that writes into the given arguments, and the module with its kernel."""
    builder = BlockBuilder(mod)
    new, func = make_inplace_call(builder, call, inplace_indices)
    (name, *args) = new.args
    assert isinstance(name, GlobalVar)
    var = builder.add_func(func, name.name_hint)
    return new.replace(args=[var, *args]), builder.get()
