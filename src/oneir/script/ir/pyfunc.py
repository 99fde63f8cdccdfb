"""`@I.pyfunc`: members of a module that are functions of Python."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar

from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc
from ...relax.base_py_module import python_function
from ..parser.module import ModuleParser, register_dialect

F = TypeVar("F", bound=Callable[..., Any])


def pyfunc(func: F) -> F:
    """A decorator of functions of Python in the class of a module, which derives from `BasePyModule`."""
    return func


class _PythonDialect:
    """Such functions are not read: they run as they are."""

    def declare(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any], var: GlobalVar) -> None:
        if not module.allows_python:
            raise module.error(
                node, f"`{node.name}` is a function of Python: the class of its module must derive from BasePyModule"
            )

    def define(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any]) -> BaseFunc:
        return python_function(node.name, ast.unparse(node))


register_dialect(pyfunc, _PythonDialect())
