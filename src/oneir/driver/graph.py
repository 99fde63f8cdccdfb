"""Building graphs: from a module with graph functions to an executable.

The pipeline lowers the graphs; what is left of them becomes bytecode, and native functions where it can; the loops are
built as any others, with the native functions among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..codegen.program.bytecode import ProgramBuilder, emit_bytecode, symbol_of
from ..codegen.program.native import Native, NotNative, native_form, with_direct_kernels
from ..codegen.units import merged
from ..dlight import ApplyDefaultSchedule, cpu
from ..ir.expr import GlobalVar
from ..ir.module import BaseFunc, IRModule
from ..ir.transform import Pass, PassContext, Sequential
from ..relax import transform
from ..relax.analysis.well_formed import verify_well_formed
from ..relax.expr import Function
from ..relax.pipeline import get_default_pipeline, get_pipeline
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.module import Later, Module
from ..runtime.vm.executable import Executable
from ..runtime.vm.native import NativeGraph
from ..target.target import Target
from ..tir.function import PrimFunc
from ..tir.transform import ExactExtremes, ExactMoments, WideSums
from . import graph_cache
from .build import Sources, as_module, as_target, compile_units, signatures_of
from .collection import no_collection
from .graph_cache import Compiled, Loops


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
        key = None
        if relax_pipeline == tir_pipeline == "default":
            key = graph_cache.key_of(mod, params or {}, target)
        compiled = None if key is None else graph_cache.get(key)
        if compiled is None:
            mod = lower_graph(mod, target, params, relax_pipeline)
            compiled = _compiled(mod, target, tir_pipeline)
            if key is not None:
                graph_cache.put(key, compiled)
        executable = _executable(compiled, target, tir_pipeline)
        for module in mod.get_attr("external_mods", ()):
            executable.import_module(module)
        return executable


def _compiled(lowered: IRModule, target: Target, pipeline: str | Pass | None) -> Compiled:
    """The bytecode, the kernels and the native functions of a lowered module.

    Loops that nobody has scheduled get the default schedules of the target when they are compiled: what the cache has
    needs none.
    """
    builder = emit_bytecode(lowered)
    natives = _native_forms(lowered, builder)
    loops, found = None, _loops(lowered, natives)
    if found is not None:
        mod, public_forms, direct = found
        as_module(merged([mod, public_forms]))
        objects = compile_units(mod, target, pipeline, default_schedule())
        public = signatures_of(public_forms) if direct else {}
        loops = Loops(objects, signatures_of(mod), public, lambda: (mod, public_forms))
    return Compiled(builder.program(), {name: native.spec for name, native in natives.items()}, loops)


def _executable(compiled: Compiled, target: Target, pipeline: str | Pass | None) -> Executable:
    """The executable of what a graph compiled to. Public forms of kernels are compiled when asked for."""
    loops = compiled.loops
    if loops is None:
        return Executable(compiled.program)
    context = PassContext.current()

    def public_forms() -> Sequence[bytes]:
        with PassContext(context.opt_level, context.required_pass, context.disabled_pass, config=context.config):
            return compile_units(loops.modules()[1], target, pipeline)

    def source(fmt: str) -> str:
        return Sources(merged(loops.modules()), target, pipeline, default_schedule())(fmt)

    later = Later(public_forms, loops.public) if loops.public else None
    library = Module.from_objects(loops.objects, loops.signatures, source, later)
    natives = {name: NativeGraph(spec, library) for name, spec in compiled.natives.items()}
    return Executable(compiled.program, library, natives)


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
    """The passes that make the operators' loops exact, and schedule those that nobody has scheduled."""
    schedules = ApplyDefaultSchedule(
        cpu.Attention(), cpu.Depthwise(), cpu.DotProducts(), cpu.Contraction(), cpu.Reduction(), cpu.Spatial()
    )
    return Sequential([ExactExtremes(), ExactMoments(), WideSums(), schedules], name="default_schedule")


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


def loops_of(lowered: IRModule) -> IRModule | None:
    """The TensorIR functions that the program of a lowered module is compiled from; None where there are none."""
    found = _loops(lowered, _native_forms(lowered, emit_bytecode(lowered)))
    return None if found is None else found[0]


def _loops(mod: IRModule, natives: Mapping[str, Native]) -> tuple[IRModule, IRModule, bool] | None:
    """The TensorIR functions of a lowered module and of its native graph functions; None where there are none.

    Native graph functions call their kernels directly: the second module has the forms that others may call, and the
    truth value says if there are any.
    """
    functions: dict[GlobalVar, Any] = {v: f for v, f in mod.functions.items() if isinstance(f, PrimFunc)}
    kernels: set[GlobalVar] = set()
    for native in natives.values():
        kernels |= native.kernels
        for name, func in native.functions.items():
            functions[GlobalVar(name)] = func
    return (*with_direct_kernels(IRModule(functions), kernels), bool(kernels)) if functions else None
