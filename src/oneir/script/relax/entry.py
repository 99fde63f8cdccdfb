"""`@R.function`: a Python function, as it is written, as a graph function of the program."""

from __future__ import annotations

import ast
import sys
from typing import Any

from ...ir.expr import GlobalVar
from ...relax.dpl import PatternMatchingRewriter
from ...relax.expr import Function
from ..parser.module import (
    ModuleParser,
    module_of_class,
    parse_decorated,
    register_dialect,
    register_module_decorator,
)
from ..parser.read_relax import RelaxParser
from .struct_info import StructInfoProxy

__all__ = ["StructInfoProxy", "function", "rewriter"]


def function(func: Any = None, pure: bool = True, private: bool = False, check_well_formed: bool = True) -> Any:
    """A graph function.

    One that is not `pure` may have side effects; nothing outside of the module can call a `private` one.
    """
    options = {"pure": pure, "private": private, "check_well_formed": check_well_formed}
    if func is None:
        return lambda decorated: parse_decorated(decorated, function, options, sys._getframe(1))
    return parse_decorated(func, function, options, sys._getframe(1))


def rewriter(cls: type) -> PatternMatchingRewriter:
    """`@R.rewriter`: a class with the functions `pattern` and `replacement`, as what replaces one by the other."""
    return PatternMatchingRewriter.from_module(module_of_class(cls, True, sys._getframe(1)))


class _RelaxDialect:
    """Functions under `@R.function`."""

    def declare(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any], var: GlobalVar) -> None:
        var.set_struct_info(RelaxParser(module, function).signature(node, options))

    def define(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any]) -> Function:
        parser = RelaxParser(module, function)
        result = parser.parse_function(node, options)
        added = parser.builder.mod.functions
        if added and node.name not in module.members:
            raise module.error(node, "R.emit_te adds a function to the module, but this function stands in none")
        module.added.update(added)
        return result


register_dialect(function, _RelaxDialect())
register_module_decorator(rewriter)
