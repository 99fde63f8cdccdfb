"""A module of lowered functions as the text of one LLVM module."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.visitor import deep_recursion
from ...tir.function import PrimFunc
from ..units import DECLARED, SHARED
from .function import DEPTH, PACKED, FunctionEmitter, function_symbol
from .types import register_type
from .writer import Kernels, ModuleText


def llvm_text(mod: IRModule, kernels: Kernels | None = None) -> str:
    """The LLVM IR of every function of a lowered module.

    A function with a `global_symbol` is visible under that name, a shared one to the other objects of its module, the
    rest only inside. Every function takes, after
    its own parameters, the address of a result value in which it describes an error, and returns 0 when there was
    none; functions that were given a calling convention have this parameter already. Those that are not packed also
    take how deep they are called. `kernels` are what the functions launch on a device, if they do.
    """
    module = ModuleText(kernels)
    with deep_recursion:
        for var, func in mod.functions_items():
            if isinstance(func, PrimFunc) and DECLARED in func.attrs:
                _declare(module, function_symbol(var.name_hint, func), func)
            elif isinstance(func, PrimFunc):
                _emit(module, mod, function_symbol(var.name_hint, func), func)
    return module.text()


def _declare(module: ModuleText, symbol: str, func: PrimFunc) -> None:
    """A function that another object defines. The last parameter is the result's address, and the depth follows it."""
    types = [register_type(var.dtype) for var in func.params]
    module.declare(symbol, "i32", ", ".join([*types, *([] if "calling_conv" in func.attrs else ["ptr"]), "i32"]))


def _emit(module: ModuleText, mod: IRModule, symbol: str, func: PrimFunc) -> None:
    emitter = FunctionEmitter(module, mod, symbol)
    emitter.restrict = bool(func.attrs.get("tir.noalias", False))
    convention = func.attrs.get("calling_conv")
    parameters = []
    for i, var in enumerate(func.params):
        is_result = convention is not None and i == len(func.params) - 1
        name = "%result" if is_result else f"%arg{i}"
        emitter.define(var, name)
        noalias = (
            "noalias " if emitter.restrict and convention != PACKED and not is_result and var.dtype.is_handle else ""
        )
        parameters.append(f"{register_type(var.dtype)} {noalias}{name}")
        if noalias:
            emitter.unaliased.add(var)
    emitter.define(DEPTH, "0")
    if convention is None:
        parameters.append("ptr %result")
    if convention != PACKED:
        parameters.append("i32 %depth")
        emitter.define(DEPTH, "%depth")
        emitter.check_depth()
    emitter.stmt(func.body)
    linkage = "" if "global_symbol" in func.attrs else "hidden" if SHARED in func.attrs else "internal"
    emitter.finish(linkage, symbol, parameters)
