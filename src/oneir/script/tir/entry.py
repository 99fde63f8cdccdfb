"""`@T.prim_func`: a Python function, as it is written, as a function of the program."""

from __future__ import annotations

import ast
import sys
from typing import Any

from ...ir.expr import GlobalVar
from ...relax.block_builder import function_struct_info
from ...relax.struct_info import FuncStructInfo, PrimStructInfo, TupleStructInfo
from ...tir.function import PrimFunc
from ..parser.module import ModuleParser, parse_decorated, register_dialect
from ..parser.read_tir import TIRParser
from .note import as_type


def prim_func(func: Any = None, private: bool = False, check_well_formed: bool = True) -> Any:
    """A function over buffers. A private one gets no `global_symbol`, so nothing outside of the module can call it."""
    options = {"private": private, "check_well_formed": check_well_formed}
    if func is None:
        return lambda decorated: parse_decorated(decorated, prim_func, options, sys._getframe(1))
    return parse_decorated(func, prim_func, options, sys._getframe(1))


class _TIRDialect:
    """Functions under `@T.prim_func`."""

    def declare(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any], var: GlobalVar) -> None:
        dtype = "void"
        if node.returns is not None:
            parser = TIRParser(module.source, module.scope)
            kind = as_type(parser.annotation(node.returns))
            dtype = module.return_dtypes[var] = getattr(kind, "dtype", "void")
        # Graphs may call the function for its value. Whether it has effects is known once its body is read.
        ret = TupleStructInfo([]) if dtype == "void" else PrimStructInfo(dtype)
        var.set_struct_info(FuncStructInfo.opaque_func(ret=ret, purity=dtype != "void"))

    def define(self, module: ModuleParser, node: ast.FunctionDef, options: dict[str, Any]) -> PrimFunc:
        parser = TIRParser(module.source, module.scope, module.return_dtypes)
        func = parser.parse_function(node, bool(options.get("private", False)))
        var = module.members.get(node.name)
        if var in module.return_dtypes and module.return_dtypes[var] != "void":
            var.set_struct_info(function_struct_info(func))
        return func


register_dialect(prim_func, _TIRDialect())
