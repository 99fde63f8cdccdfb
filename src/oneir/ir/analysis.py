"""Analyses of whole modules, whatever their functions are: graphs or loops."""

from __future__ import annotations

from .expr import GlobalVar
from .module import BaseFunc, IRModule
from .visitor import post_order_visit


def collect_call_map(module: IRModule) -> dict[GlobalVar, list[GlobalVar]]:
    """The functions that each function of a module refers to, as callee or as argument of `call_tir`.

    Each is listed once, in the order of its first use; functions that refer to none have an empty list.
    """

    def callees(func: BaseFunc) -> list[GlobalVar]:
        found: dict[GlobalVar, None] = {}

        def visit(node: object) -> None:
            if isinstance(node, GlobalVar):
                found[node] = None

        post_order_visit(func, visit)
        return list(found)

    return {var: callees(func) for var, func in module.functions.items()}
