"""Passes over the TensorIR functions of a module.

@prim_func_pass(opt_level=0)
def my_pass(func, mod, ctx):
    return func.with_body(...)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ...ir.module import IRModule
from ...ir.transform import Pass, PassContext, pass_decorator
from ..function import PrimFunc

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


class PrimFuncPass(Pass):
    """A pass over one TensorIR function at a time; its name begins with "tir."."""

    _prefix = "tir."

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        """The transformed function; None leaves it out of the module."""
        raise NotImplementedError

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions: dict[Any, Any] = {}
        changed = False
        for var, func in mod.functions.items():
            new = self.transform_function(func, mod, ctx) if isinstance(func, PrimFunc) else func
            changed = changed or new is not func
            if new is not None:
                functions[var] = new
        return mod.replace(functions=functions) if changed else mod


prim_func_pass = pass_decorator(PrimFuncPass, "transform_function")


def config_option(ctx: PassContext, key: str, config_class: type[Config]) -> Config:
    """The options of a pass: the context's `config[key]`, else the defaults."""
    value = ctx.config.get(key)
    return config_class() if value is None else value
