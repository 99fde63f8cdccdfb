"""Building graphs: from a module with graph functions to an executable.

The pipeline lowers the graphs; what is left of them becomes bytecode, and native functions where it can; the loops are
built as any others, with the native functions among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..codegen.program.bytecode import ProgramBuilder, emit_bytecode, symbol_of
from ..codegen.program.native import Native, NotNative, native_form, with_direct_kernels
from ..codegen.units import merged
from ..dlight import ApplyDefaultSchedule, cpu
from ..ir.expr import GlobalVar
from ..ir.module import BaseFunc, IRModule
from ..ir.transform import Pass, PassContext
from ..relax import transform
from ..relax.analysis.well_formed import verify_well_formed
from ..relax.expr import Function
from ..relax.pipeline import get_default_pipeline, get_pipeline
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.module import Later, Module
from ..runtime.vm.executable import Executable, NativeFunction
from ..runtime.vm.native import NativeGraph
from ..target.target import Target
from ..tir.function import PrimFunc
from .build import Sources, as_module, as_target, compile_units, signatures_of
from .collection import no_collection


def build_graph(
    mod: IRModule | BaseFunc,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
) -> Executable:
    """An executable of a module's graph functions; see `oneir.relax.build`."""
    if exec_mode not in ("bytecode", "compiled"):
        raise InvalidValue(f'exec_mode is "bytecode" or "compiled", found {exec_mode!r}')
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeMismatch(f"build expects an IRModule or a relax Function, found {type(mod).__name__}")
    target = as_target(target)
    with no_collection():
        return assemble(lower_graph(mod, target, params, relax_pipeline), target, tir_pipeline)


def assemble(lowered: IRModule, target: Target, tir_pipeline: str | Pass | None = "default") -> Executable:
    """The executable of a lowered module: its bytecode, its kernels and its native functions.

    Loops that nobody has scheduled get the default schedules of the target.
    """
    builder = emit_bytecode(lowered)
    program = builder.program()
    natives = _native_forms(lowered, builder)
    library = _library(lowered, natives, target, tir_pipeline)
    forms: dict[str, NativeFunction] = {}
    if library is not None:
        forms = {name: NativeGraph(native.spec, library) for name, native in natives.items()}
    return Executable(program, library, forms)


def lower_graph(
    mod: IRModule, target: Target, params: Mapping[str, Any] | None, relax_pipeline: str | Pass | None
) -> IRModule:
    """The module after a pipeline, checked before it."""
    mod = transform.resolve_outputs(mod)
    verify_well_formed(mod)
    if params:
        mod = transform.BindParams("main", dict(params))(mod)
    if relax_pipeline is None:
        return mod
    if isinstance(relax_pipeline, str):
        named = relax_pipeline == "default"
        relax_pipeline = get_default_pipeline(target) if named else get_pipeline(relax_pipeline)
    with target:
        return relax_pipeline(mod)


def default_schedule() -> Pass:
    """The pass that schedules loops that nobody has scheduled."""
    return ApplyDefaultSchedule(cpu.Attention(), cpu.Depthwise(), cpu.DotProducts(), cpu.Contraction(), cpu.Reduction(), cpu.Spatial())


def _native_forms(mod: IRModule, builder: ProgramBuilder) -> dict[str, Native]:
    """The native forms of the functions that have one, by name."""
    found: dict[str, Native] = {}
    for var, func in mod.functions_items():
        if isinstance(func, Function):
            try:
                found[symbol_of(var, func)] = native_form(mod, symbol_of(var, func), func, builder.place_of_constant)
            except NotNative:
                continue
    return found


def _library(
    mod: IRModule, natives: Mapping[str, Native], target: Target, pipeline: str | Pass | None
) -> Module | None:
    """The TensorIR functions of a lowered module and of its native graph functions; None where there are none.

    They get their schedules when they are compiled: what the cache has needs none.
    Native graph functions call their kernels directly, so the forms that others may call are compiled when asked for.
    """
    functions: dict[GlobalVar, Any] = {v: f for v, f in mod.functions.items() if isinstance(f, PrimFunc)}
    kernels: set[GlobalVar] = set()
    for native in natives.values():
        kernels |= native.kernels
        for name, func in native.functions.items():
            functions[GlobalVar(name)] = func
    if not functions:
        return None
    loops, public_forms = with_direct_kernels(IRModule(functions), kernels)
    as_module(merged([loops, public_forms]))
    context, schedule = PassContext.current(), default_schedule()

    def objects() -> Sequence[bytes]:
        with PassContext(context.opt_level, context.required_pass, context.disabled_pass, config=context.config):
            return compile_units(public_forms, target, pipeline)

    return Module.from_objects(
        compile_units(loops, target, pipeline, schedule),
        signatures_of(loops),
        Sources(merged([loops, public_forms]), target, pipeline, schedule),
        Later(objects, signatures_of(public_forms)) if kernels else None,
    )


compile_stages: tuple[tuple[str, Callable[[Any, Target], Any]], ...] = (
    ("lowering the graph", lambda mod, target: lower_graph(mod, target, None, "default")),
    ("compiling kernels", lambda mod, target: assemble(mod, target)),
)
"""The steps of compiling a graph, by what a user may be told of them."""
