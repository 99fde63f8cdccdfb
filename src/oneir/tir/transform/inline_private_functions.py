"""InlinePrivateFunctions: calls of the module's private functions are replaced by their bodies."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Call, GlobalVar, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import Mapper, Visitor
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import DeclBuffer, Evaluate, LetStmt, Stmt
from ..stmt_functor import renew_defs, substitute
from .analyzed import uses


class InlinePrivateFunctions(ModulePass, name="tir.InlinePrivateFunctions"):
    """Replaces calls of private functions by their bodies; removes the functions of which no call remains.

    Not inlined are functions that call themselves, directly or not, those that return a value, and those whose
    parameters are tensors, which a call passes as handles; nor those for another target than the caller's.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        calls = {var: _calls_of(func) for var, func in mod.functions.items() if isinstance(func, PrimFunc)}
        inlined: dict[GlobalVar, PrimFunc] = {}
        for var, func in mod.functions.items():
            if not isinstance(func, PrimFunc) or "global_symbol" in func.attrs or func.buffer_map:
                continue
            if not calls[var].returns and not _calls_transitively(var, var, calls):
                inlined[var] = func
        if not inlined:
            return mod
        functions: dict[Any, Any] = {}
        for var, func in mod.functions.items():
            if isinstance(func, PrimFunc) and calls[var].called & inlined.keys():
                func = func.with_body(_Inline(_callable_from(func, inlined))(func.body))
            functions[var] = func
        remaining = {
            callee for var, func in functions.items() if var not in inlined for callee in _calls_of(func).called
        }
        if any(functions[var] is not func for var, func in mod.functions.items()):
            functions = {var: func for var, func in functions.items() if var not in inlined or var in remaining}
            return mod.replace(functions=functions)
        return mod


def _callable_from(func: PrimFunc, inlined: dict[GlobalVar, PrimFunc]) -> dict[GlobalVar, PrimFunc]:
    """The functions without those that are for another target than the one that calls them: those are launched."""
    own = func.attrs.get("target")
    found: dict[GlobalVar, PrimFunc] = {}
    for var, callee in inlined.items():
        target = callee.attrs.get("target")
        if target is None or own is None or str(target) == str(own):
            found[var] = callee
    return found


class _Calls(Visitor):
    """The functions that a function calls, and whether it returns before its end."""

    def __init__(self) -> None:
        super().__init__()
        self.called: set[GlobalVar] = set()
        self.returns = False

    def visit_Call(self, call: Call) -> None:
        if isinstance(call.op, GlobalVar):
            self.called.add(call.op)
        elif isinstance(call.op, Op) and call.op.name == "tir.ret":
            self.returns = True
        self.generic_visit(call)


def _calls_of(func: Any) -> _Calls:
    calls = _Calls()
    calls(func)
    return calls


class _Inline(Mapper):
    def __init__(self, functions: dict[GlobalVar, PrimFunc]):
        super().__init__()
        self.functions = functions

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        call = node.value
        func = self.functions.get(call.op) if isinstance(call, Call) and isinstance(call.op, GlobalVar) else None
        if func is None:
            return self.generic_visit(node)
        assert isinstance(call, Call)
        func = renew_defs(func)
        body = func.body
        values: dict[Var, PrimExpr] = {}
        for param, arg in zip(reversed(func.params), reversed(call.args), strict=True):
            if isinstance(arg, Var) or _is_constant(arg):
                values[param] = arg
            else:
                body = _bound(param, arg, body)
        return self.visit(substitute(body, values))


def _bound(param: Var, arg: PrimExpr, body: Stmt) -> Stmt:
    """A body with the value of a parameter, which stands behind the declarations that do not need it."""
    if isinstance(body, DeclBuffer) and not uses(body.buffer, {param}):
        return body.replace(body=_bound(param, arg, body.body))
    return LetStmt(param, arg, body)


def _is_constant(arg: Any) -> bool:
    return not isinstance(arg, (Call, BufferLoad)) and hasattr(arg, "value") and not hasattr(arg, "body")


def _calls_transitively(start: GlobalVar, goal: GlobalVar, calls: dict[GlobalVar, _Calls]) -> bool:
    """Whether a function calls another, directly or through others."""
    seen: set[GlobalVar] = set()
    pending = list(calls[start].called)
    while pending:
        var = pending.pop()
        if var is goal:
            return True
        if var not in seen and var in calls:
            seen.add(var)
            pending.extend(calls[var].called)
    return False
