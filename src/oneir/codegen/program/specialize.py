"""Graphs of symbolic extents made for known ones, after they were lowered: the same arguments, arena and constants.

    mod = with_known_extents(mod, "main", 1, [64, 512])    # of a graph over x: Tensor((n, m), ...)

The layout of weights and the order of kernels stay, so the result can take the place of the general code at any time;
the schedules of the kernels, which come later, know all extents.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Call, GlobalVar, IntImm, PrimExpr, Var, const
from ...ir.module import BaseFunc, IRModule
from ...ir.visitor import Mapper
from ...tir.function import PrimFunc
from ...tir.transform.unroll_loop import fold_in
from ..units import SHARED


def extents_of(host: PrimFunc, count: int) -> list[Var]:
    """The symbolic extents of the first `count` parameters of a host function, in the order in which they appear.

    A number that is a parameter itself is none of them: it may be another one in each call.
    """
    buffers = [host.buffer_map[p] for p in host.params[:count] if p in host.buffer_map]
    found = {e: None for buffer in buffers for e in buffer.shape if isinstance(e, Var) and e not in host.params}
    return list(found)


def with_known_extents(mod: IRModule, name: str, count: int, extents: Sequence[int]) -> IRModule:
    """The host function `name` for the given values of `extents_of(host, count)`, and kernels for the calls in it."""
    host = mod[name]
    assert isinstance(host, PrimFunc)
    values = {var: const(value, var.dtype) for var, value in zip(extents_of(host, count), extents, strict=True)}
    calls = _Calls(mod)
    main = calls(fold_in(host, values))
    return mod.replace(functions={GlobalVar(name): main, **calls.functions})


class _Calls(Mapper):
    """Calls kernels in forms of their own for each list of known extents, which they no longer pass."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod
        self.functions: dict[GlobalVar, BaseFunc] = {}
        self._known: dict[str, GlobalVar] = {}

    def visit_Call(self, call: Call) -> PrimExpr:
        callee = call.op
        func = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        if not isinstance(func, PrimFunc) or not func.attrs.get(SHARED):
            return self.generic_visit(call)
        assert isinstance(callee, GlobalVar)
        extents = {e for buffer in func.buffer_map.values() for e in buffer.shape if isinstance(e, Var)}
        given = {p: argument for p, argument in zip(func.params, call.args, strict=True) if p in extents}
        values = {param: argument for param, argument in given.items() if isinstance(argument, IntImm)}
        name = "_".join([callee.name_hint, *(str(values[p].value) if p in values else "n" for p in given)])
        if name not in self._known:
            self._known[name] = var = GlobalVar(name)
            known = fold_in(func, values)
            self.functions[var] = known.replace(params=[p for p in func.params if p not in values])
        passed = [a for p, a in zip(func.params, call.args, strict=True) if p not in values]
        return call.replace(op=self._known[name], args=passed)
