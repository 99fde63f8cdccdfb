"""Building graphs: from a module with graph functions to an executable.

The pipeline lowers the graphs; what is left of them becomes bytecode, and host functions where it can; these are built
with the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..codegen.backend import backend_of
from ..codegen.program.bytecode import emit_bytecode
from ..codegen.units import by_target, merged
from ..ir.module import BaseFunc, IRModule
from ..ir.transform import Pass, PassContext
from ..relax import transform
from ..relax.analysis.well_formed import verify_well_formed
from ..relax.expr import Function
from ..relax.pipeline import get_default_pipeline, get_pipeline
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.module import DeferredFunctions, Module
from ..runtime.vm.builder import ExecBuilder
from ..runtime.vm.executable import Executable
from ..runtime.vm.native import NativeGraph
from ..runtime.vm.specialized import Compile
from ..target.target import Target
from . import graph_cache
from .background import compiler_of
from .build import KernelSources, as_module, as_target, compile_units, signatures_of
from .collection import no_collection
from .graph_cache import Compiled, KernelCode
from .kernels import Kernels, host_functions, kernels_and_hosts
from .stages import schedule_passes
from .standalone import Standalone


def build_graph(
    mod: IRModule | BaseFunc,
    target: str | Mapping[str, object] | Target | None = None,
    params: Mapping[str, object] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
) -> Executable:
    """An executable of a module's graph functions; see `oneir.relax.build`.

    Raises `InvalidValue` for another `exec_mode`, `TypeMismatch` for anything but an IRModule or a relax Function,
    `WellFormedError` for a module that breaks a rule, and `CompileError` for a kernel that cannot be compiled.
    """
    _check_mode(exec_mode)
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeMismatch(f"build expects an IRModule or a relax Function, found {type(mod).__name__}")
    target = as_target(_first_device(mod) if target is None else target)
    with no_collection:
        key = None
        if relax_pipeline == tir_pipeline == "default":
            key = graph_cache.key_of(mod, params or {}, target)
        compiled = None if key is None else graph_cache.get(key)
        if compiled is None:
            mod = lower_graph(mod, target, params, relax_pipeline)
            compiled = _compiled(mod, target, tir_pipeline, key)
        executable = _executable(compiled, target, tir_pipeline, compiler_of(key, target))
        for module in mod.get_attr("external_mods", ()):
            executable.import_module(module)
        return executable


def _first_device(mod: IRModule) -> Target | None:
    """The target of the first device that a module declares, unless another one is entered."""
    declared = mod.global_infos.get("vdevice", ())
    return Target(declared[0].target) if declared and Target.current(allow_none=True) is None else None


def _check_mode(exec_mode: str) -> None:
    if exec_mode not in ("bytecode", "compiled"):
        raise InvalidValue(f'exec_mode is "bytecode" or "compiled", found {exec_mode!r}')


def _compiled(lowered: IRModule, target: Target, pipeline: str | Pass | None, key: str | None) -> Compiled:
    """The bytecode, the kernels and the host functions of a lowered module, which are kept under `key`.

    Kernels without a schedule get the default one of the target just before they are compiled, so kernels that the
    cache has are not scheduled at all.
    """
    builder = emit_bytecode(lowered, target.get_target_device_type())
    reasons: dict[str, str] = {}
    hosts = host_functions(lowered, builder, target, reasons)
    program = builder.program()
    with graph_cache.writing_weights(key, program) as weights:
        code = _kernel_code(kernels_and_hosts(lowered, hosts), target, pipeline, reasons)
        compiled = Compiled(program, {name: host.spec for name, host in hosts.items()}, code)
        if key is not None:
            graph_cache.put(key, compiled, weights())
    return compiled


def _kernel_code(
    found: Kernels | None, target: Target, pipeline: str | Pass | None, reasons: dict[str, str]
) -> KernelCode | None:
    """The code of kernels and host functions; None where there are none."""
    if found is None:
        return None
    mod, public_forms = found.module, found.public_forms
    as_module(merged([mod, public_forms]))
    objects = _compiled_units(mod, target, pipeline)
    public = signatures_of(public_forms, target) if found.has_public_forms else {}
    return KernelCode(objects, signatures_of(mod, target), public, lambda: (mod, public_forms), reasons)


def _compiled_units(mod: IRModule, target: Target, pipeline: str | Pass | None) -> list[bytes]:
    """The object code of kernels, each scheduled and written by the back end of its own target."""
    parts = by_target(mod, target)
    return [data for own, part in parts for data in compile_units(part, own, pipeline, schedule_passes(own))]


def _source(mod: IRModule, target: Target, pipeline: str | Pass | None, fmt: str) -> str:
    """The text of the kernels that a format is for or, if it is not known or "", of those for `target`."""
    parts = by_target(mod, target)
    chosen = [p for p in parts if fmt in backend_of(p[0]).formats] or [p for p in parts if p[0] is target] or parts
    return "\n".join(KernelSources(part, own, pipeline, schedule_passes(own))(fmt) for own, part in chosen)


def emit_graphs(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """Adds the graph functions of a lowered module to a program; see `oneir.relax.vm_build._vmcodegen`.

    Raises `InvalidValue` for another `exec_mode`.
    """
    _check_mode(exec_mode)
    target = Target.current(allow_none=True)
    with no_collection:
        emit_bytecode(mod, 1 if target is None else target.get_target_device_type(), builder, checked=False)
    left = {var: func for var, func in mod.functions.items() if not isinstance(func, Function)}
    return mod.replace(functions=left)


def link_program(
    builder: ExecBuilder,
    target: str | Mapping[str, object] | Target | None,
    tir_mod: IRModule | None,
    tir_pipeline: str | Pass | None,
    ext_libs: Sequence[Module],
    params: Mapping[str, object],
) -> Executable:
    """The executable of a program and its kernels; see `oneir.relax.vm_build._vmlink`."""
    target = as_target(target)
    for name, value in params.items():
        builder.convert_constant(value, name)
    with no_collection:
        code = None if tir_mod is None else _kernel_code(kernels_and_hosts(tir_mod, {}), target, tir_pipeline, {})
        executable = _executable(Compiled(builder.program(), {}, code), target, tir_pipeline)
    for module in (*(tir_mod.get_attr("external_mods", ()) if tir_mod else ()), *ext_libs):
        executable.import_module(module)
    return executable


def _executable(
    compiled: Compiled, target: Target, pipeline: str | Pass | None, compile: Compile | None = None
) -> Executable:
    """The executable of what a graph compiled to. Public forms of kernels are compiled when asked for.

    `compile` compiles the graph anew for extents that calls bring often.
    """
    code, context = compiled.code, PassContext.current()
    exporter = Standalone(code, target, pipeline, context)
    if code is None:
        return Executable(compiled.program, exporter=exporter)

    def public_forms() -> Sequence[bytes]:
        with PassContext(context.opt_level, context.required_pass, context.disabled_pass, config=context.config):
            return _compiled_units(code.modules()[1], target, pipeline)

    def source(fmt: str) -> str:
        return _source(merged(code.modules()), target, pipeline, fmt)

    deferred = DeferredFunctions(public_forms, code.public) if code.public else None
    library = backend_of(target).load(code.objects, code.signatures, source, deferred)
    natives = {name: NativeGraph(spec, library, compile) for name, spec in compiled.natives.items()}
    return Executable(compiled.program, library, natives, exporter)


def lower_graph(
    mod: IRModule, target: Target, params: Mapping[str, object] | None, relax_pipeline: str | Pass | None
) -> IRModule:
    """The module after the pipeline. It is checked first, and `params` are bound to the parameters of "main"."""
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
