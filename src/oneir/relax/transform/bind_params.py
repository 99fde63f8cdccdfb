"""BindParams: parameters of a function become constants.

    @R.function
    def main(x: R.Tensor((1, 784)), w: R.Tensor((784, 10))): ...
->  BindParams("main", {"w": weights})
    @R.function
    def main(x: R.Tensor((1, 784))): ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.expr import const as number
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue, NotRegistered, TypeMismatch
from .. import expr
from ..analysis import struct_info_base_check
from ..expr import Constant, Expr, Function, PrimValue, Var, as_graph_expr, const
from ..struct_info import BaseCheckResult, PrimStructInfo, substitute_struct_info
from ..substitute import bind, infer_symbolic_values


class BindParams(ModulePass):
    """Binds parameters of the function `func_name` to values.

    `params` has tensors, NumPy arrays, numbers or graph expressions, by the parameter's name or variable. Symbolic
    variables get the values that follow from the shapes. A public function goes by its `global_symbol`.

    Raises `NotRegistered` for a function or parameter that is not there, `TypeMismatch` for a value that the parameter
    cannot have, `InvalidValue` for a name that several parameters have and for a parameter that is given two values.
    """

    func_name: str
    params: Mapping[Any, Any]

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for var, func in mod.functions.items():
            if isinstance(func, Function) and func.attrs.get("global_symbol", var.name_hint) == self.func_name:
                new = bind_params(func, self.params)
                return mod if new is func else mod.replace(functions={**mod.functions, var: new})
        names = ", ".join(v.name_hint for v, f in mod.functions_items() if isinstance(f, Function))
        raise NotRegistered(f"the module has no graph function {self.func_name!r}; it has {names or 'none'}")


@expr.bind_params.provide
def bind_params(func: Function, binding_map: Mapping[Any, Any]) -> Function:
    """The function with some of its parameters, given by name or object, replaced by values."""
    if not binding_map:
        return func
    by_name: dict[str, list[Var]] = {}
    for param in func.params:
        by_name.setdefault(param.name, []).append(param)
    values: dict[Var, Expr] = {}
    for key, value in binding_map.items():
        param = _parameter(key, by_name)
        if param in values:
            raise InvalidValue(f"the parameter `{param.name}` is given two values")
        values[param] = _as_value(value, param)
    symbolic = infer_symbolic_values(values)
    for param, value in values.items():
        expected = substitute_struct_info(param.struct_info, symbolic)
        if struct_info_base_check(expected, value.struct_info) is BaseCheckResult.FAIL_L0:
            raise TypeMismatch(
                f"the parameter `{param.name}` is bound to a value that it cannot have: expected {expected}, "
                f"found {value.struct_info}"
            )
    return bind(func, values, symbolic)


def _parameter(key: Any, by_name: Mapping[str, list[Var]]) -> Var:
    if isinstance(key, str):
        found = by_name.get(key, [])
        if len(found) > 1:
            raise InvalidValue(f"the function has {len(found)} parameters named {key!r}; say which by its variable")
        if found:
            return found[0]
    elif not isinstance(key, Var):
        raise TypeMismatch(f"parameters are named by str or relax.Var, found {key!r}")
    elif key in by_name.get(key.name, []):
        return key
    name = key if isinstance(key, str) else key.name
    raise NotRegistered(f"the function has no parameter `{name}`; it has {', '.join(by_name) or 'none'}")


def _as_value(value: Any, param: Var) -> Expr:
    if isinstance(value, (bool, int, float)):
        info = param.struct_info
        return PrimValue(number(value, info.dtype) if isinstance(info, PrimStructInfo) else value)
    if isinstance(value, (Expr, PrimExpr, str, list, tuple)):
        return as_graph_expr(value)
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return Constant(const(value).data, name=param.name)
    raise TypeMismatch(
        f"the parameter `{param.name}` is bound to {value!r} of type {type(value).__name__}; "
        "expected a tensor, a NumPy array, a number or a graph expression"
    )
