"""AttachGlobalSymbol: every function becomes public, under the name that it has in the module.

With the module's attribute `system_lib_prefix`, PrimFuncs are called by that prefix and their name.
"""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...ir.transform import ModulePass, PassContext
from ...tir.function import PrimFunc
from ..expr import Function


class AttachGlobalSymbol(ModulePass):
    """Gives every graph function and every PrimFunc the attribute `global_symbol`."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        prefix = mod.get_attr("system_lib_prefix", "")
        functions: dict[GlobalVar, BaseFunc] = {}
        renames: dict[GlobalVar, str] = {}
        changed = False
        for var, func in mod.functions.items():
            functions[var] = func
            if isinstance(func, (Function, PrimFunc)):
                name = prefix + var.name_hint if isinstance(func, PrimFunc) else var.name_hint
                if func.attrs.get("global_symbol") != name:
                    functions[var] = func.with_attr("global_symbol", name)
                    changed = True
                    if name != var.name_hint:
                        renames[var] = name
        if not changed:
            return mod
        new = mod.replace(functions=functions)
        return new.replace_global_vars(renames) if renames else new
