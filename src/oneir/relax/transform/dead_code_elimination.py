"""DeadCodeElimination: functions that nothing calls, and bindings that nothing uses, are removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import Visitor
from ..analysis import all_global_vars, remove_all_unused
from ..expr import ExternFunc, Function


class DeadCodeElimination(ModulePass, opt_level=1):
    """Removes bindings that nothing uses, and functions that no public, external or entry function needs.

    Bindings of values with side effects stay. `entry_functions` are names of functions that stay though they are
    private. Raises `NotRegistered` for one that is not there.
    """

    entry_functions: Sequence[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry_functions", tuple(self.entry_functions or ()))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        entries = {mod.get_global_var(name) for name in self.entry_functions or ()}
        for var, func in mod.functions.items():
            if isinstance(func, ExternFunc) or "global_symbol" in func.attrs:
                entries.add(var)
        mod = _without_unreachable(mod, entries)
        functions = {
            var: remove_all_unused(func) if isinstance(func, Function) else func for var, func in mod.functions.items()
        }
        if all(functions[var] is func for var, func in mod.functions.items()):
            return mod
        return _without_unreachable(mod.replace(functions=functions), entries)


class _GlobalVars(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[GlobalVar] = set()

    def visit_GlobalVar(self, var: GlobalVar) -> None:
        self.found.add(var)


def _callees(func: BaseFunc) -> Iterable[GlobalVar]:
    if isinstance(func, Function):
        return all_global_vars(func)
    visitor = _GlobalVars()
    visitor(func)
    return visitor.found


def _without_unreachable(mod: IRModule, entries: set[GlobalVar]) -> IRModule:
    reachable, to_visit = set(entries), list(entries)
    while to_visit:
        for callee in _callees(mod.functions[to_visit.pop()]):
            if callee in reachable:
                continue
            if callee not in mod.functions:
                # Where the module is not complete, it is not known what is needed.
                return mod
            reachable.add(callee)
            to_visit.append(callee)
    functions = {var: func for var, func in mod.functions.items() if var in reachable}
    return mod if len(functions) == len(mod.functions) else mod.replace(functions=functions)
