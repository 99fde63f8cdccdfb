"""Names of a module's functions: each public one is named as its `global_symbol` says, and no two have one name."""

from __future__ import annotations

from ..ir.expr import GlobalVar
from ..ir.module import IRModule


def normalize_global_vars(mod: IRModule) -> IRModule:
    """A module whose public functions are named by their `global_symbol`, and whose private ones are out of their way.

    The identical module if nothing changes. Raises `NotRegistered` for two public functions of one `global_symbol`.
    """
    symbols = [func.attrs.get("global_symbol") for func in mod.functions.values()]
    renames: dict[GlobalVar, str] = {}
    taken = {symbol for symbol in symbols if symbol is not None}
    for var, func in mod.functions_items():
        symbol = func.attrs.get("global_symbol")
        if symbol is not None:
            name = symbol
        else:
            name, number = var.name_hint, 0
            while name in taken:
                number += 1
                name = f"{var.name_hint}_{number}"
            taken.add(name)
        if name != var.name_hint:
            renames[var] = name
    return mod.replace_global_vars(renames) if renames else mod
