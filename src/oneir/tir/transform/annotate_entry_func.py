"""AnnotateEntryFunc: marks the entry function of a module."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..function import PrimFunc

ENTRY = "tir.is_entry_func"


class AnnotateEntryFunc(ModulePass, name="tir.AnnotateEntryFunc"):
    """Sets the attribute `tir.is_entry_func` of the module's only function, or its only one with a `global_symbol`.

    Where there are several, none gets it.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions = {var: f for var, f in mod.functions.items() if isinstance(f, PrimFunc)}
        if len(functions) > 1:
            functions = {var: f for var, f in functions.items() if "global_symbol" in f.attrs}
        if len(functions) != 1:
            return mod
        ((var, func),) = functions.items()
        if func.attrs.get(ENTRY):
            return mod
        return mod.replace(functions={**mod.functions, var: func.with_attr(ENTRY, True)})
