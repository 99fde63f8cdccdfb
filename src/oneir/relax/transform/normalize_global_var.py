"""NormalizeGlobalVar: every public function is named as its `global_symbol` says, and no two have one name."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..global_names import normalize_global_vars


class NormalizeGlobalVar(ModulePass):
    """Renames functions: a public one to its `global_symbol`, a private one out of its way.

    Raises `NotRegistered` for two public functions of one `global_symbol`.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return normalize_global_vars(mod)
