"""AttachExternModules: the functions of external modules become part of a module, and programs built from it call them.

mod, params, externals = model.export_tvm(spec, allow_extern=True)
mod = AttachExternModules(externals)(mod)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir.module import IRModule
from ...ir.transform import ModulePass, Pass, PassContext, PassInfo
from ...runtime.error import TypeMismatch

if TYPE_CHECKING:
    from ..frontend.nn import ExternModule


def AttachExternModules(extern_modules: Sequence[ExternModule]) -> Pass:
    """A pass that loads external modules, compiling those that are source code, as the attribute `external_mods`."""

    def attach(mod: IRModule, ctx: PassContext) -> IRModule:
        from ..frontend.nn import ExternModule

        for module in extern_modules:
            if not isinstance(module, ExternModule):
                raise TypeMismatch(f"AttachExternModules: expected an ExternModule, found {module!r}")
        if not extern_modules:
            return mod
        loaded = [module.load() for module in extern_modules]
        return mod.with_attr("external_mods", [*(mod.get_attr("external_mods", None) or ()), *loaded])

    return ModulePass(attach, PassInfo(0, "AttachExternalModules"))
