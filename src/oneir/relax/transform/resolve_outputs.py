"""A function that returns a variable of a dataflow block returns what the block gives out of it."""

from __future__ import annotations

from ...ir.module import BaseFunc, IRModule
from ..expr import BindingBlock, DataflowBlock, DataflowVar, Expr, Function, SeqExpr, Var, VarBinding


def resolve_outputs(mod: IRModule) -> IRModule:
    """The module with such results replaced by the output that is bound to them, or by a new output.

    Builders that hand a dataflow variable to `emit_func_output` make them: the variable is not seen outside of its
    block, so the module is not well-formed.
    """
    functions: dict[object, BaseFunc] = {}
    for var, func in mod.functions.items():
        functions[var] = _resolved(func) if isinstance(func, Function) else func
    same = all(functions[v] is f for v, f in mod.functions.items())
    return mod if same else mod.replace(functions=functions)


def _resolved(func: Function) -> Function:
    result = func.body.body
    if not isinstance(result, DataflowVar):
        return func
    blocks: list[BindingBlock] = []
    output: Expr | None = None
    for block in func.body.blocks:
        if isinstance(block, DataflowBlock) and any(b.var is result for b in block.bindings):
            for binding in block.bindings:
                if binding.value is result and not isinstance(binding.var, DataflowVar):
                    output = binding.var
            if output is None:
                output = Var(result.name, result.struct_info)
                block = DataflowBlock([*block.bindings, VarBinding(output, result)])
        blocks.append(block)
    return func if output is None else func.replace(body=SeqExpr(blocks, output))
