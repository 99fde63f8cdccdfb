"""RemoveUnusedParameters: private functions are not given what they do not use.

Where a parameter only told the value of a symbolic variable, that value is passed in its place:

    def f(x: R.Tensor(["n"])):                 def f(param_n: R.Prim(value="n")):
        return R.zeros(R.shape([n]))    ->         return R.zeros(R.shape([n]))
"""

from __future__ import annotations

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue
from ..analysis import definable_tir_vars_in_struct_info, free_symbolic_vars, free_vars, remove_all_unused
from ..analysis.struct_info import call_error
from ..expr import Call, Expr, Function, PrimValue, Var
from ..struct_info import PrimStructInfo, TupleStructInfo
from ..substitute import infer_symbolic_values
from .call_sites import CallRewrite, change_signatures, changeable_functions


class RemoveUnusedParameters(ModulePass):
    """Removes the parameters that private functions, if they are only called, do not use.

    Raises `InvalidValue` for a call whose arguments do not tell the value of a symbolic variable that is then missing.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        changes: dict[GlobalVar, tuple[Function, CallRewrite]] = {}
        for var, func in changeable_functions(mod).items():
            used = _used(func)
            if not used.issuperset(func.params):
                changes[var] = _without_unused(func, used)
        if not changes:
            return mod
        new = change_signatures(mod, changes)
        # What computed an argument that is no longer passed may have become unused.
        old = set(mod.functions.values()) | {func for func, _ in changes.values()}
        functions = {
            var: remove_all_unused(func) if isinstance(func, Function) and func not in old else func
            for var, func in new.functions.items()
        }
        return new.replace(functions=functions)


def _used(func: Function) -> set[Var]:
    """What the body uses: variables, and numbers that alone tell the value of a symbolic variable."""
    used = set(free_vars(func.body))
    missing: set[PrimExpr] = set(_undefined(func, [p for p in func.params if p in used]))
    for param in func.params:
        info = param.struct_info
        if isinstance(info, PrimStructInfo) and info.value is not None and info.value in missing:
            used.add(param)
            missing.remove(info.value)
    return used


def _without_unused(func: Function, used: set[Var]) -> tuple[Function, CallRewrite]:
    kept = [i for i, param in enumerate(func.params) if param in used]
    params = [func.params[i] for i in kept]
    symbolic = _undefined(func, params)[::-1]  # the last one first, as published
    given = [Var(f"param_{v.name}", PrimStructInfo(value=v)) for v in symbolic]

    def rewrite(call: Call, callee: GlobalVar) -> Expr:
        args: list[Expr] = [call.args[i] for i in kept]
        if symbolic:
            values = infer_symbolic_values(dict(zip(func.params, call.args, strict=True)))
            unknown = [v.name for v in symbolic if v not in values]
            if unknown:
                raise call_error(
                    call,
                    InvalidValue,
                    f"the shapes of the arguments of `{callee.name_hint}` do not tell the value of its symbolic "
                    f"variables {', '.join(unknown)}: cast the arguments with match_cast",
                )
            args += [PrimValue(values[v]) for v in symbolic]
        return Call(callee, args, call.attrs, call.sinfo_args, call.span)

    return func.replace(params=[*params, *given]), rewrite


def _undefined(func: Function, params: list[Var]) -> list[TirVar]:
    """The symbolic variables that a function uses and that these parameters do not define."""
    defined = set(definable_tir_vars_in_struct_info(TupleStructInfo([p.struct_info for p in params])))
    # Those of the body come first, then those that only the signature uses.
    uses = [*free_symbolic_vars(func.body), *free_symbolic_vars(func.replace(params=params))]
    return [v for v in dict.fromkeys(uses) if v not in defined]
