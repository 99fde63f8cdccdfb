"""A module of lowered functions as the text of one LLVM module."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.visitor import deep_recursion
from ...target.target import Target
from ...tir.function import PrimFunc
from ..units import DECLARED, SHARED
from .function import DEPTH, PACKED, FunctionEmitter, function_symbol
from .types import register_type
from .writer import Kernels, ModuleText, Processor


def llvm_text(mod: IRModule, kernels: Kernels | None = None) -> str:
    """The LLVM IR of a lowered module, as text. `kernels` are those that its functions launch on a device, if any.

    Linkage: a function with a `global_symbol` is external under that name; a shared one (`codegen/units.py`) is hidden,
    so other objects of the module may call it, and stays a function of its own; all others are internal.

    Calling convention: every function returns an i32, 0 where there was no error. After its own parameters it takes a
    pointer to a packed value, into which it writes the error; functions with a `calling_conv` have this parameter
    already. Functions that are not packed also take the depth of the call, an i32.

    Raises `CompileError` for what lowering should have replaced, and for operators that LLVM cannot express.
    """
    module = ModuleText(Processor.of_target(_host(mod)), kernels)
    with deep_recursion:
        for var, func in mod.functions_items():
            if isinstance(func, PrimFunc) and DECLARED in func.attrs:
                _declare(module, function_symbol(var.name_hint, func), func)
            elif isinstance(func, PrimFunc):
                _emit(module, mod, function_symbol(var.name_hint, func), func)
    return module.text()


def _host(mod: IRModule) -> Target:
    """The processor that the functions of a module run on: their target, or its host where that is a device."""
    targets = (func.attrs.get("target") for func in mod.functions.values() if isinstance(func, PrimFunc))
    target: Target = next(filter(None, targets), None) or Target("llvm")
    return target.host or target


def _declare(module: ModuleText, symbol: str, func: PrimFunc) -> None:
    """Declares a function that another object defines; its parameters are as in `llvm_text`."""
    types = [register_type(var.dtype) for var in func.params]
    module.declare(symbol, "i32", ", ".join([*types, *([] if "calling_conv" in func.attrs else ["ptr"]), "i32"]))


def _emit(module: ModuleText, mod: IRModule, symbol: str, func: PrimFunc) -> None:
    """Writes the definition of a function."""
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
    emitter.in_memory = convention == PACKED
    emitter.stmt(func.body)
    linkage = "" if "global_symbol" in func.attrs else "hidden" if SHARED in func.attrs else "internal"
    emitter.finish(linkage, symbol, parameters, inline=SHARED not in func.attrs)
