"""AnnotateEntryFunc: the function that a module is entered by says so."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import ModulePass, Pass, PassContext, PassInfo
from ..function import PrimFunc

ENTRY = "tir.is_entry_func"


def annotate_entry_func(mod: IRModule) -> IRModule:
    """The module with its only function, or its only one with a `global_symbol`, marked as the entry."""
    functions = {var: f for var, f in mod.functions.items() if isinstance(f, PrimFunc)}
    if len(functions) > 1:
        functions = {var: f for var, f in functions.items() if "global_symbol" in f.attrs}
    if len(functions) != 1:
        return mod
    ((var, func),) = functions.items()
    if func.attrs.get(ENTRY):
        return mod
    return mod.replace(functions={**mod.functions, var: func.with_attr(ENTRY, True)})


def AnnotateEntryFunc() -> Pass:
    """Sets the attribute `tir.is_entry_func` of the function that a module is entered by, if there is but one."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        return annotate_entry_func(mod)

    return ModulePass(transform, PassInfo(0, "tir.AnnotateEntryFunc"))
