"""BindSymbolicVars: symbolic variables become numbers, or other expressions.

def main(x: R.Tensor(("n", 4)))   ->  BindSymbolicVars({"n": 16})  ->   def main(x: R.Tensor((16, 4)))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.expr import PrimExpr, const
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue, NotRegistered, TypeMismatch
from .. import expr
from ..analysis import defined_symbolic_vars, free_symbolic_vars
from ..expr import Function
from ..substitute import bind


class BindSymbolicVars(ModulePass, opt_level=1):
    """Binds symbolic variables, by name or object, to numbers or other expressions.

    In the function `func_name` only, or in all graph functions that have one of the variables.

    Raises `NotRegistered` for a variable that no function has, `TypeMismatch` for a `func_name` of no graph function,
    `InvalidValue` for a name that several variables of a function have, for a variable that is given two values, and
    for a value that uses variables that the function does not define.
    """

    binding_map: Mapping[Any, Any]
    func_name: str | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if self.func_name is not None:
            var = mod.get_global_var(self.func_name)
            func = mod.functions[var]
            if not isinstance(func, Function):
                raise TypeMismatch(f"BindSymbolicVars: `{self.func_name}` is no graph function")
            functions = {**mod.functions, var: bind_symbolic_vars(func, self.binding_map)}
        else:
            functions = _bind_everywhere(mod, self.binding_map)
        changed = any(functions[v] is not f for v, f in mod.functions.items())
        return mod.replace(functions=functions) if changed else mod


def _bind_everywhere(mod: IRModule, binding_map: Mapping[Any, Any]) -> dict[Any, Any]:
    used: set[Any] = set()
    functions = dict(mod.functions)
    known: dict[str, None] = {}
    for var, func in mod.functions.items():
        if not isinstance(func, Function):
            continue
        names: dict[Any, None] = {}
        for symbolic in defined_symbolic_vars(func):
            names[symbolic] = names[symbolic.name] = known[symbolic.name] = None
        own = {key: value for key, value in binding_map.items() if key in names}
        used.update(own)
        functions[var] = bind_symbolic_vars(func, own)
    unused = [key for key in binding_map if key not in used]
    if unused:
        raise _unknown(", ".join(map(_name, unused)), "module", known)
    return functions


@expr.bind_symbolic_vars.provide
def bind_symbolic_vars(func: Function, binding_map: Mapping[Any, Any]) -> Function:
    """The function with some of its symbolic variables, given by name or object, replaced by values."""
    if not binding_map:
        return func
    symbolic = defined_symbolic_vars(func)
    values: dict[TirVar, PrimExpr] = {}
    for key, value in binding_map.items():
        found = [v for v in symbolic if (v.name == key if isinstance(key, str) else v is key)]
        if len(found) > 1:
            raise InvalidValue(f"the function has {len(found)} symbolic variables named {key!r}; say which by object")
        if not found:
            raise _unknown(_name(key), "function", dict.fromkeys(v.name for v in symbolic))
        if found[0] in values:
            raise InvalidValue(f"the symbolic variable `{found[0].name}` is given two values")
        values[found[0]] = value if isinstance(value, PrimExpr) else const(value, found[0].dtype)
    new = bind(func, {}, values)
    free = free_symbolic_vars(new)
    if free:
        raise InvalidValue(
            f"the values of the symbolic variables {', '.join(v.name for v in values)} use "
            f"{', '.join(v.name for v in free)}, which the function does not define"
        )
    return new


def _name(key: Any) -> str:
    if not isinstance(key, (str, TirVar)):
        raise TypeMismatch(f"symbolic variables are given by name or by tir.Var, found {key!r}")
    return f"`{key if isinstance(key, str) else key.name}`"


def _unknown(names: str, where: str, known: Mapping[str, None]) -> NotRegistered:
    return NotRegistered(f"the {where} has no symbolic variable {names}; it has {', '.join(known) or 'none'}")
