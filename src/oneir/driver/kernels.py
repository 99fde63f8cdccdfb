"""The PrimFuncs of a lowered graph that are compiled to code (stage `kernels`).

A lowered module has graph functions and the TensorIR functions that they call. Graph functions become host functions
where they can, which call their kernels directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..codegen.backend import backend_of
from ..codegen.program.bytecode import ProgramBuilder, emit_bytecode, symbol_of
from ..codegen.program.native import Native, NotNative, native_form, with_direct_kernels
from ..ir.expr import GlobalVar
from ..ir.module import BaseFunc, IRModule
from ..ir.transform import PassContext
from ..relax.expr import Function
from ..relax.transform.rewrite_cuda_graph import USE_CUDA_GRAPH
from ..target.target import Target
from ..tir.function import PrimFunc


@dataclass(frozen=True, slots=True)
class Kernels:
    """The functions of a graph that are compiled to code."""

    module: IRModule
    """Kernels, and the graphs that call them as host functions."""
    public_forms: IRModule
    """Kernels as others may call them, with checks of their arguments; compiled when one is asked for."""
    has_public_forms: bool


def host_functions(
    mod: IRModule, builder: ProgramBuilder, target: Target, reasons: dict[str, str] | None = None
) -> dict[str, Native]:
    """The graph functions of a lowered module that have the form of a host function, by name.

    `reasons` gets, for each of the others, why it has none.
    """
    if not backend_of(target).calls_kernels:
        return {}
    use_graphs = bool(PassContext.current().config.get(USE_CUDA_GRAPH)) and target.kind.name == "cuda"
    found: dict[str, Native] = {}
    for var, func in mod.functions_items():
        if isinstance(func, Function):
            name = symbol_of(var, func)
            try:
                host = native_form(mod, name, func, builder.place_of_constant, target)
            except NotNative as reason:
                if reasons is not None:
                    reasons[name] = str(reason)
                continue
            host.spec.use_graphs = use_graphs and host.spec.only_launches
            found[name] = host
    return found


def kernels_and_hosts(mod: IRModule, hosts: Mapping[str, Native]) -> Kernels | None:
    """The TensorIR functions of a lowered module and of its host functions; None where there are none."""
    functions: dict[GlobalVar, BaseFunc] = {v: f for v, f in mod.functions.items() if isinstance(f, PrimFunc)}
    called: set[GlobalVar] = set()
    for host in hosts.values():
        called |= host.kernels
        for name, func in host.functions.items():
            functions[GlobalVar(name)] = func
    return Kernels(*with_direct_kernels(IRModule(functions), called), bool(called)) if functions else None


def kernels_of(lowered: IRModule, target: Target) -> IRModule | None:
    """The PrimFuncs that code is generated for, of a lowered module; None if it only calls the runtime."""
    builder = emit_bytecode(lowered, target.get_target_device_type())
    found = kernels_and_hosts(lowered, host_functions(lowered, builder, target))
    return None if found is None else found.module
