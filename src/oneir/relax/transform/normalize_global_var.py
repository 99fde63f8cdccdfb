"""NormalizeGlobalVar: every public function is named as its `global_symbol` says, and no two have one name."""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext


class NormalizeGlobalVar(ModulePass):
    """Renames functions: a public one to its `global_symbol`, a private one out of its way.

    Raises `NotRegistered` for two public functions of one `global_symbol`.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        public: dict[str, GlobalVar] = {}
        for var, func in mod.functions_items():
            symbol = func.attrs.get("global_symbol")
            if symbol is not None:
                public.setdefault(symbol, var)
        renames: dict[GlobalVar, str] = {}
        taken = set(public)
        for var, func in mod.functions_items():
            symbol = func.attrs.get("global_symbol")
            if symbol is not None:
                name = symbol
            else:
                name, number = var.name_hint, 0
                while name in taken:
                    number += 1
                    name = f"{var.name_hint}_{number}"
                taken.add(name)
            if name != var.name_hint:
                renames[var] = name
        return mod.replace_global_vars(renames) if renames else mod
