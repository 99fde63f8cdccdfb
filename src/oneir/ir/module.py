"""The IRModule: functions by name, with attributes; the unit that passes transform."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

from ..runtime.error import NotRegistered, TypeMismatch
from ..runtime.hook import Hook
from .attrs import AttrsHolder, DictAttrs, as_dict_attrs
from .container import EMPTY, Array
from .expr import GlobalVar, RelaxExpr
from .json import load_json, save_json
from .node import Node, attr, binder, child, meta
from .span import Span


class CallingConv(IntEnum):
    """How a lowered function is called: what its attribute `calling_conv` says."""

    DEFAULT = 0
    C_PACKED_FUNC = 1
    DEVICE_KERNEL_LAUNCH = 2


class BaseFunc(AttrsHolder, RelaxExpr):
    """Base of functions: kernels (`tir.PrimFunc`) and graphs (`relax.Function`)."""

    def _with(self, values: Mapping[str, Any]) -> Any:
        return self.replace(attrs=DictAttrs(values))


expr_to_function: Hook[[Any], BaseFunc] = Hook("expr_to_function", "oneir.relax.analysis")
"""The function of a module that a graph expression becomes."""


def _sorted_functions(functions: Mapping[GlobalVar, BaseFunc]) -> list[tuple[GlobalVar, BaseFunc]]:
    return sorted(functions.items(), key=lambda item: item[0].name_hint)


class IRModule(AttrsHolder, Node):
    """Functions indexed by `GlobalVar` or by name.

    `IRModule({"main": func})` and `IRModule({GlobalVar("main"): func})` are the same.
    Two functions cannot share a name.
    Passes return new modules; the methods `update*` and item assignment change this one, for the convenience of
    scripts.
    """

    functions: Mapping[GlobalVar, BaseFunc] = binder(default=EMPTY)
    attrs: DictAttrs = attr(default=None, converter=as_dict_attrs)
    global_infos: Mapping[str, Any] = child(default=EMPTY)
    span: Span | None = meta(default=None)

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | DictAttrs | None = None,
        global_infos: Mapping[str, Any] | None = None,
        span: Span | None = None,
    ):
        self.attrs = as_dict_attrs(attrs)
        self.global_infos = {k: Array(v) for k, v in (global_infos or {}).items()}
        self.span = span
        table: dict[GlobalVar, BaseFunc] = {}
        names: dict[str, GlobalVar] = {}
        for key, func in (functions or {}).items():
            var = GlobalVar(key) if isinstance(key, str) else key
            if not isinstance(var, GlobalVar):
                raise TypeMismatch(f"the functions of a module are named by str or GlobalVar, found {key!r}")
            if var.name_hint in names:
                raise NotRegistered(f"two functions of a module have the name {var.name_hint!r}")
            names[var.name_hint] = var
            table[var] = func
        self.functions = table

    # -- access --

    def get_global_vars(self) -> Array[GlobalVar]:
        """The names of all functions, in alphabetical order."""
        return Array(sorted(self.functions, key=lambda var: var.name_hint))

    def get_global_var(self, name: str) -> GlobalVar:
        """The `GlobalVar` of the function of that name."""
        for var in self.functions:
            if var.name_hint == name:
                return var
        names = [v.name_hint for v in self.functions]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotRegistered(f"the module has no function {name!r}; it has {', '.join(sorted(names)) or 'none'}{hint}")

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """Names and functions, in alphabetical order."""
        return _sorted_functions(self.functions)

    def _key(self, var: Any) -> GlobalVar:
        if isinstance(var, str):
            return self.get_global_var(var)
        if isinstance(var, GlobalVar):
            return var if var in self.functions else self.get_global_var(var.name_hint)
        raise TypeMismatch(f"expected the name of a function or a GlobalVar, found {var!r}")

    def __getitem__(self, var: GlobalVar | str) -> Any:
        return self.functions[self._key(var)]

    def __contains__(self, var: object) -> bool:
        if isinstance(var, str):
            return any(v.name_hint == var for v in self.functions)
        return var in self.functions

    def __len__(self) -> int:
        return len(self.functions)

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    # -- change in place --

    def __setitem__(self, var: GlobalVar | str, func: BaseFunc) -> None:
        self.update_func(var, func)

    def __delitem__(self, var: GlobalVar | str) -> None:
        key = self._key(var)
        self.functions = {k: f for k, f in self.functions.items() if k is not key}

    def update_func(self, var: GlobalVar | str, func: BaseFunc) -> None:
        """Sets the function of that name, adding it when it is new."""
        name = var if isinstance(var, str) else var.name_hint
        old = next((v for v in self.functions if v.name_hint == name), None)
        table = dict(self.functions)
        if old is not None and isinstance(var, GlobalVar) and old is not var:
            table = {var if k is old else k: f for k, f in table.items()}
            old = var
        table[old if old is not None else GlobalVar(var) if isinstance(var, str) else var] = func
        self.functions = table

    def update(self, other: IRModule | Mapping[Any, BaseFunc]) -> None:
        """Adds the functions of another module; they replace those of the same name."""
        for var, func in (other.functions if isinstance(other, IRModule) else other).items():
            self.update_func(var, func)

    def update_global_info(self, name: str, global_info: Any) -> None:
        """Sets the list of global infos of that name."""
        self.global_infos = {**self.global_infos, name: Array(global_info)}

    def replace_global_vars(self, replacements: Mapping[Any, Any]) -> IRModule:
        """A module in which functions have other names, at their definition and at every use."""
        from .visitor import Mapper

        renamed: dict[GlobalVar, GlobalVar] = {}
        for old, new in replacements.items():
            renamed[self._key(old)] = GlobalVar(new) if isinstance(new, str) else new

        class Rename(Mapper):
            def visit_GlobalVar(self, var: GlobalVar) -> GlobalVar:
                return renamed.get(var, var)

        mapper = Rename()
        table: dict[GlobalVar, BaseFunc] = {}
        for var, func in self.functions.items():
            new_var, new_func = renamed.get(var, var), mapper(func)
            if new_var is not var and "global_symbol" in func.attrs:
                new_func = new_func.with_attr("global_symbol", new_var.name_hint)
            table[new_var] = new_func
        return self.replace(functions=table)

    # -- copies --

    def __getstate__(self) -> dict[str, str]:
        """The module as JSON, under the key "handle"."""
        return {"handle": save_json(self)}

    def __setstate__(self, state: Mapping[str, str]) -> None:
        """Makes this module what `__getstate__` of another one, or of itself before, has saved."""
        saved: IRModule = load_json(state["handle"])
        self.functions, self.attrs, self.global_infos = saved.functions, saved.attrs, saved.global_infos
        self.span = saved.span

    def clone(self) -> IRModule:
        """A shallow copy: changing it leaves this module alone."""
        return IRModule(self.functions, self.attrs, self.global_infos, self.span)

    def _with(self, values: Mapping[str, Any]) -> IRModule:
        return self.replace(attrs=DictAttrs(values))

    @staticmethod
    def from_expr(expr: Any, functions: Mapping[GlobalVar, BaseFunc] | None = None) -> IRModule:
        """A module whose function "main" (or as its `global_symbol` says) is `expr`."""
        func = expr if isinstance(expr, BaseFunc) else expr_to_function(expr)
        return IRModule({**(functions or {}), func.attrs.get("global_symbol", "main"): func})
