"""`compile`: builds a module of PrimFuncs, or one with graph functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ..ir.instrument import ProgressInstrument
from ..ir.module import BaseFunc, IRModule
from ..ir.transform import Pass, PassContext
from ..runtime.error import TypeMismatch
from ..runtime.module import Executable as CompiledModule
from ..runtime.module import Module
from ..target.target import Target
from ..tir.function import PrimFunc
from .build import build
from .graph import build_graph

if TYPE_CHECKING:
    from ..runtime.vm.executable import Executable


def compile(
    mod: BaseFunc | IRModule,
    target: str | Mapping[str, object] | Target | None = None,
    *,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    progress: bool = False,
) -> Module | Executable:
    """Compiles a module: one with graph functions as `relax.build` does, one of PrimFuncs only as `build` does.

    mod: the module, or a single function.
    target: what to compile for, such as "llvm" (this machine) or "llvm -mcpu=znver3"; without it, the current target
        (`with Target(...)`), else this machine.
    relax_pipeline, tir_pipeline: what lowers graphs and kernels: names of registered pipelines, passes, or None for
        what is lowered already.
    progress: whether to show on stderr how many passes have run, and which one runs.

    Of a module with graph functions the result is an `Executable`, which `oneir.relax.VirtualMachine` runs; of
    PrimFuncs alone it is a `Module`, whose functions are called. Both have `export_library(path)`.

        program = oneir.compile(mod, target="llvm", progress=True)
        y = oneir.relax.VirtualMachine(program, oneir.cpu())["main"](x)

    Raises `TypeMismatch` for anything but a module or a function, `WellFormedError` for a module that breaks a rule of
    the representation, `CompileError` for a kernel that cannot be compiled, `UnsupportedError` for a target without a
    back end, and `NotRegistered` for an unknown pipeline. All of them are `oneir.OneIRError`.
    """
    if not isinstance(mod, (BaseFunc, IRModule)):
        raise TypeMismatch(
            f"compile expects an IRModule, a PrimFunc or a relax Function, found {type(mod).__name__}; a model becomes "
            "an IRModule by oneir.relax.frontend.torch.from_exported_program or oneir.relax.frontend.onnx.from_onnx"
        )
    if progress:
        context = PassContext.current()
        with PassContext(
            context.opt_level,
            context.required_pass,
            context.disabled_pass,
            [*context.instruments, ProgressInstrument()],
            context.config,
        ):
            return compile(mod, target, relax_pipeline=relax_pipeline, tir_pipeline=tir_pipeline)
    functions = list(mod.functions.values()) if isinstance(mod, IRModule) else [mod]
    if functions and all(isinstance(f, PrimFunc) for f in functions):
        return CompiledModule(build(cast("PrimFunc | IRModule", mod), target, tir_pipeline))
    return build_graph(mod, target, None, relax_pipeline, tir_pipeline)
