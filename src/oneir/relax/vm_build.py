"""`relax.build`: from a module to an executable, which a `VirtualMachine` runs.

ex = relax.build(mod, target="llvm")
vm = relax.VirtualMachine(ex, oneir.cpu())
y = vm["main"](x)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..runtime.hook import Hook
from ..runtime.module import Module
from ..runtime.vm import ExecBuilder, Executable

VMExecutable = Executable

build_graph: Hook[..., Executable] = Hook("build_graph", "oneir.driver")
"""What `build` calls, with its arguments by position."""

emit_graphs: Hook[[ExecBuilder, IRModule, str], IRModule] = Hook("emit_graphs", "oneir.driver")
"""What `_vmcodegen` calls."""
link_program: Hook[..., Executable] = Hook("link_program", "oneir.driver")
"""What `_vmlink` calls, with its arguments by position."""


def build(
    mod: IRModule | Any,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> Executable:
    """Compiles the graph functions of a module, and the kernels that they call.

    `mod` is a module or a single graph function. `target` is this machine unless given or entered as a context.
    `params` are values for parameters of `main`, by name. `relax_pipeline` and `tir_pipeline` lower graphs and kernels:
    the name of a registered pipeline, a pass, or None for a module that is lowered already. `exec_mode` is "bytecode"
    or "compiled"; either way a function runs natively where it can, and as bytecode where it must. `system_lib` is
    accepted for scripts that pass it: there is no library to link into here.

    Raises `OneIRError` for a program that cannot be compiled, and says where; `NotRegistered` for an unknown pipeline.
    """
    return build_graph(mod, target, params, relax_pipeline, tir_pipeline, exec_mode)


def _vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """Adds the graph functions of a lowered module to a program; returns the module of the functions that are left.

    The first half of `build` after its pipeline, for tools that add functions of their own; `_vmlink` is the second.
    The functions compare no arguments with their parameters but where they call what does.
    """
    return emit_graphs(builder, mod, exec_mode)


def _vmlink(
    builder: ExecBuilder,
    target: Any = None,
    tir_mod: IRModule | None = None,
    tir_pipeline: str | Pass | None = "default",
    ext_libs: Sequence[Module] | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    system_lib: bool | None = None,
) -> Executable:
    """The executable of a program, of the kernels in `tir_mod`, and of modules of other compilers.

    `params` are further constants, by name. `system_lib` is accepted as by `build`.
    """
    return link_program(builder, target, tir_mod, tir_pipeline, ext_libs or (), params or {})
