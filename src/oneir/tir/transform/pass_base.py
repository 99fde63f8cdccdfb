"""Passes over the TensorIR functions of a module.

@prim_func_pass(opt_level=0)
def my_pass(func, mod, ctx):
    return func.with_body(...)
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from ...ir.module import IRModule
from ...ir.transform import Pass, PassContext, pass_decorator
from ...runtime.error import NotRegistered
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
    """The options of a pass: the context's `config[key]`, an object or a mapping to its fields; else the defaults."""
    value = ctx.config.get(key)
    if isinstance(value, config_class):
        return value
    values = dict(value or {})
    known = [field.name for field in fields(config_class)]
    for name in values:
        if name not in known:
            raise NotRegistered(f"the option {key!r} has no field {name!r}; it has {', '.join(known)}")
    return config_class(**values)
