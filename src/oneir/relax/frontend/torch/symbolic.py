"""PyTorch's symbolic integers as expressions."""

from __future__ import annotations

from typing import Any

from ....ir import operators
from ....ir.expr import PrimExpr, SizeVar
from ....runtime.error import UnsupportedError


def as_prim_expr(value: Any, symbols: dict[str, PrimExpr]) -> Any:
    """An extent: integers as they are, a `SymInt` as an expression over `symbols`, which holds them by name."""
    node = getattr(value, "node", None)
    return int(value) if node is None else _expression(node.expr, symbols)


def _expression(expr: Any, symbols: dict[str, PrimExpr]) -> Any:
    """A SymPy expression over integers."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        name = str(expr)
        if name not in symbols:
            symbols[name] = SizeVar(name, "int64")
        return symbols[name]
    args = [_expression(a, symbols) for a in expr.args]
    kind = type(expr).__name__
    if kind in ("Add", "Mul"):
        result = args[0]
        for arg in args[1:]:
            result = result + arg if kind == "Add" else result * arg
        return result
    if kind == "Pow" and isinstance(args[1], int) and args[1] > 0:
        result = args[0]
        for _ in range(args[1] - 1):
            result = result * args[0]
        return result
    two = {
        "FloorDiv": operators.floordiv,
        "CleanDiv": operators.floordiv,
        "Mod": operators.floormod,
        "PythonMod": operators.floormod,
        "Max": operators.maximum,
        "Min": operators.minimum,
    }.get(kind)
    if two is None or len(args) != 2:
        raise UnsupportedError(f"the symbolic extent {expr} cannot be imported; export with other dynamic_shapes")
    return two(*args)
