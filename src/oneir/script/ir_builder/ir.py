"""`I` of builders: modules, and what is stated in them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...relax.block_builder import function_struct_info
from ...runtime.error import InvalidValue
from .. import ir as vocabulary
from .base import IRBuilder, IRBuilderFrame

dummy_global_info = vocabulary.dummy_global_info
vdevice = vocabulary.vdevice


class IRModuleFrame(IRBuilderFrame):
    """A module; functions that end inside of it become its own."""

    def __init__(self) -> None:
        super().__init__()
        self.global_vars: dict[str, GlobalVar] = {}
        self.functions: dict[GlobalVar, BaseFunc | None] = {}
        self.attrs: dict[str, Any] = {}
        self.global_infos: dict[str, list[Any]] = {}

    def declare(self, name: str) -> GlobalVar:
        """The variable of the function of that name, which may be defined later."""
        var = self.global_vars.get(name)
        if var is None:
            var = self.global_vars[name] = GlobalVar(name)
            self.functions[var] = None
        return var

    def define(self, name: str, func: BaseFunc) -> GlobalVar:
        """Adds a function."""
        var = self.declare(name)
        if self.functions[var] is not None:
            raise InvalidValue(f"the module has a function `{name}` already")
        self.functions[var] = func
        var.set_struct_info(function_struct_info(func))
        return var

    def close(self) -> None:
        functions = {var: func for var, func in self.functions.items() if func is not None}
        undefined = [var.name_hint for var in self.functions if var not in functions]
        if undefined:
            raise InvalidValue(f"the module declares {', '.join(undefined)} but does not define it: I.def_function")
        self.builder.finish(IRModule(functions, self.attrs, self.global_infos))


def ir_module() -> IRModuleFrame:
    """`with I.ir_module():`"""
    return IRModuleFrame()


def current_module() -> IRModuleFrame:
    """The module that is open."""
    frame = IRBuilder.current().find_frame(IRModuleFrame)
    if frame is None:
        raise InvalidValue("this speaks of a module: write it inside `with I.ir_module():`")
    return frame


def decl_function(func_name: str, func_signature: BaseFunc) -> GlobalVar:
    """The variable of a function that is defined later; calls are checked against a function like it."""
    var = current_module().declare(func_name)
    var.set_struct_info(function_struct_info(func_signature))
    return var


def def_function(func_name: str, func: BaseFunc) -> None:
    """Adds a finished function to the module."""
    current_module().define(func_name, func)


def _stating(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def state(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs).apply(current_module())

    return state


lookup_vdevice = _stating(vocabulary.lookup_vdevice)
module_attrs = _stating(vocabulary.module_attrs)
module_get_attr = _stating(vocabulary.module_get_attr)
module_set_attr = _stating(vocabulary.module_set_attr)
module_global_infos = _stating(vocabulary.module_global_infos)


def define_function(builder: IRBuilder, name: str, func: BaseFunc) -> None:
    """Hands a finished function to the module around it, or on as the builder's result."""
    module = builder.find_frame(IRModuleFrame)
    if module is None:
        builder.finish(func)
    elif not name:
        raise InvalidValue("a function of a module has a name: state it with T.func_name or R.func_name")
    else:
        module.define(name, func)
