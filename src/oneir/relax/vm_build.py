"""`relax.build`: from a module to an executable, which a `VirtualMachine` runs.

ex = relax.build(mod, target="llvm")
vm = relax.VirtualMachine(ex, oneir.cpu())
y = vm["main"](x)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..runtime.hook import Hook
from ..runtime.vm import Executable

VMExecutable = Executable

build_graph: Hook[..., Executable] = Hook("build_graph", "oneir.driver")
"""What `build` calls, with its arguments by position."""


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
