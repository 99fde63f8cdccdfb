"""AttachExternModules: the functions of external modules become part of a module, and programs built from it call them.

mod, params, externals = model.export_tvm(spec, allow_extern=True)
mod = AttachExternModules(externals)(mod)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import TypeMismatch
from ...runtime.module import Module


@runtime_checkable
class ExternModule(Protocol):
    """What a `relax.frontend.nn.ExternModule` is to this pass: functions that can be loaded."""

    def load(self) -> Module:
        """The functions, ready to be called."""
        ...


class AttachExternModules(ModulePass, name="AttachExternalModules"):
    """Loads external modules, compiling those that are source code, as the attribute `external_mods`.

    Raises `TypeMismatch` for what is no `ExternModule`.
    """

    extern_modules: Sequence[ExternModule]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extern_modules", tuple(self.extern_modules))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for module in self.extern_modules:
            if not isinstance(module, ExternModule):
                raise TypeMismatch(f"AttachExternModules: expected an ExternModule, found {module!r}")
        if not self.extern_modules:
            return mod
        loaded = [module.load() for module in self.extern_modules]
        return mod.with_attr("external_mods", [*(mod.get_attr("external_mods", None) or ()), *loaded])
