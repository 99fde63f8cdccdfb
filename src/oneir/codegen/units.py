"""Units: the parts of a module that become objects of their own, compiled one by one and linked in the end.

    {main, f (shared), g (shared)}    ->    {main, f declared, g declared}, {f}, {g}

A shared function is a unit; all others are one, so that LLVM may inline what is private to them. A unit can be compiled
while the next is lowered, and is found again in the cache when other parts of a model have changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.expr import Call, GlobalVar
from ..ir.module import BaseFunc, IRModule
from ..ir.visitor import Visitor
from ..target.target import Target
from ..tir.function import PrimFunc
from ..tir.pipeline import driven
from ..tir.stmt import Evaluate

SHARED = "tir.is_shared"
"""The attribute of private functions that the module's other objects may call."""

DECLARED = "tir.is_declared"
"""The attribute of functions that another object defines; only their parameters count."""


def split(mod: IRModule) -> list[IRModule]:
    """The units of a module, those of shared functions first; each declares the shared functions that it calls."""
    shared = {var: func for var, func in mod.functions.items() if SHARED in func.attrs and DECLARED not in func.attrs}
    if not shared:
        return [mod]
    rest = {var: func for var, func in mod.functions.items() if var not in shared}
    units = [{var: func} for var, func in shared.items()]
    if any(DECLARED not in func.attrs for func in rest.values()):
        units.append(rest)
    return [mod.replace(functions=with_declarations(unit, mod)) for unit in units]


def by_target(mod: IRModule, target: Target) -> list[tuple[Target, IRModule]]:
    """The functions of a module by the target that they are for: their attribute `target`, or else `target`.

    Each part declares the shared functions of others that it calls. Functions for one kind of target are one part.
    """
    targets = {var: func.attrs.get("target", target) for var, func in mod.functions.items()}
    kinds = {own.kind.name: own for own in targets.values()}
    if len(kinds) < 2:
        return [(target if target.kind.name in kinds else own, mod) for own in kinds.values()]
    # Callers of functions for another target must know which one that is.
    for var, func in mod.functions.items():
        targets[var] = driven(targets[var])
        if func.attrs.get("tir.is_host_func"):
            targets[var] = targets[var].host or targets[var]
    functions = {var: func.with_attr("target", targets[var]) for var, func in mod.functions.items()}
    mod = mod.replace(functions=functions)
    kinds |= {target.kind.name: target}
    parts: list[tuple[Target, IRModule]] = []
    for kind, own in kinds.items():
        part = {var: func for var, func in functions.items() if targets[var].kind.name == kind}
        if part:
            parts.append((own, mod.replace(functions=with_declarations(part, mod))))
    return parts


def with_declarations(unit: dict[GlobalVar, BaseFunc], mod: IRModule) -> dict[GlobalVar, BaseFunc]:
    """Functions of a module, and declarations of the shared functions that they call."""
    callees = _Callees()
    for func in unit.values():
        if isinstance(func, PrimFunc):
            callees(func.body)
    declared: dict[GlobalVar, BaseFunc] = {}
    for var in callees.found:
        func = mod.functions.get(var)
        if var not in unit and isinstance(func, PrimFunc) and SHARED in func.attrs:
            declared[var] = func.with_body(Evaluate(0)).with_attr(DECLARED, True)
    return {**unit, **declared}


def merged(units: Sequence[IRModule]) -> IRModule:
    """The module that consists of the given units, of which there is at least one; the inverse of `split`."""
    functions: dict[GlobalVar, BaseFunc] = {}
    for unit in units:
        for var, func in unit.functions.items():
            if var not in functions or DECLARED not in func.attrs:
                functions[var] = func
    return units[0].replace(functions=functions)


class _Callees(Visitor):
    """Collects the functions that are called, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[GlobalVar, None] = {}

    def visit_Call(self, node: Call) -> None:
        if isinstance(node.op, GlobalVar):
            self.found[node.op] = None
        self.generic_visit(node)
