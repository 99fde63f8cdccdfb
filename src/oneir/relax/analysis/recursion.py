"""Which functions of a module call themselves, directly or through others."""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ..expr import Function
from .variables import all_global_vars


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """The groups of graph functions that call one another, or themselves.

    Functions are in one group when each can be reached from the other, whether by one cycle of calls or by several that
    share functions. Groups, and functions in them, are in the order of the module.
    """
    calls = {
        var: [callee for callee in all_global_vars(func) if callee in mod.functions]
        for var, func in mod.functions.items()
        if isinstance(func, Function)
    }
    component: dict[GlobalVar, int] = {}
    for number, members in enumerate(_components(calls)):
        component.update(dict.fromkeys(members, number))
    groups: dict[int, list[GlobalVar]] = {}
    for var in calls:
        groups.setdefault(component[var], []).append(var)
    return [group for group in groups.values() if len(group) > 1 or group[0] in calls[group[0]]]


def _components(calls: dict[GlobalVar, list[GlobalVar]]) -> list[list[GlobalVar]]:
    """The strongly connected components of the graph of calls (Tarjan's algorithm, without recursion)."""
    index: dict[GlobalVar, int] = {}
    low: dict[GlobalVar, int] = {}
    stack: list[GlobalVar] = []
    done: set[GlobalVar] = set()
    components: list[list[GlobalVar]] = []
    for root in calls:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        path = [(root, iter(calls[root]))]
        while path:
            var, callees = path[-1]
            for callee in callees:
                if callee not in calls or callee in done:
                    continue
                if callee in index:
                    low[var] = min(low[var], index[callee])
                    continue
                index[callee] = low[callee] = len(index)
                stack.append(callee)
                path.append((callee, iter(calls[callee])))
                break
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[var])
                if low[var] == index[var]:
                    members = stack[stack.index(var) :]
                    del stack[-len(members) :]
                    done.update(members)
                    components.append(members)
    return components
