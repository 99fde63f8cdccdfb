"""What all front ends share: weights that travel with a function until they are detached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.module import IRModule
from ...runtime.tensor import Tensor
from ..expr import Function

PARAMS = "params"
"""The attribute of a function that holds the values of its last parameters."""


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Tensor]]]:
    """Takes the weights out of the functions of a module.

    Returns the module without them and, by the name of each function that had some, its weights in the order of its
    parameters. The weights are the importer's tensors; nothing is copied.
    """
    detached: dict[str, list[Tensor]] = {}
    functions: dict[Any, Any] = {}
    for gvar, func in mod.functions.items():
        if isinstance(func, Function) and PARAMS in func.attrs:
            detached[gvar.name_hint] = list(func.attrs[PARAMS])
            func = func.without_attr(PARAMS)
        functions[gvar] = func
    return (mod.replace(functions=functions) if detached else mod), detached


def attach_params(mod: IRModule, params: Sequence[Tensor], name: str = "main") -> IRModule:
    """The module with the values of the last parameters of one of its functions as an attribute of that."""
    gvar = mod.get_global_var(name)
    return mod.replace(functions={**mod.functions, gvar: mod[gvar].with_attr(PARAMS, list(params))})
