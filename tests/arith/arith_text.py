"""Expressions written as text, built node by node: nothing is folded or reordered on the way."""

from __future__ import annotations

import ast
from typing import Any

from oneir.ir import expr as e

BINARY: dict[type, type] = {
    ast.Add: e.Add,
    ast.Sub: e.Sub,
    ast.Mult: e.Mul,
    ast.FloorDiv: e.FloorDiv,
    ast.Mod: e.FloorMod,
    ast.Lt: e.LT,
    ast.LtE: e.LE,
    ast.Gt: e.GT,
    ast.GtE: e.GE,
    ast.Eq: e.EQ,
    ast.NotEq: e.NE,
    ast.And: e.And,
    ast.Or: e.Or,
}
CALLS: dict[str, Any] = {
    "min": e.Min,
    "max": e.Max,
    "truncdiv": e.Div,
    "truncmod": e.Mod,
    "select": e.Select,
    "ramp": lambda base, stride, lanes: e.Ramp(base, stride, lanes.value),
    "broadcast": lambda value, lanes: e.Broadcast(value, lanes.value),
    "int64": lambda value: e.Cast("int64", value),
    "int32": lambda value: e.Cast("int32", value),
    "if_then_else": lambda c, a, b: e.Call(a.dtype, "tir.if_then_else", [c, a, b]),
    "likely": lambda c: e.Call("bool", "tir.likely", [c]),
    "shift_left": lambda a, b: e.Call(a.dtype, "tir.shift_left", [a, b]),
    "shift_right": lambda a, b: e.Call(a.dtype, "tir.shift_right", [a, b]),
    "bitwise_and": lambda a, b: e.Call(a.dtype, "tir.bitwise_and", [a, b]),
    "impure": lambda a: e.Call(a.dtype, "tir.call_extern", [e.StringImm("f"), a]),
}


def build(text: str, names: dict[str, Any]) -> Any:
    """The expression of a text such as `(i * 4 + j) // 4 < n`; `names` gives its variables."""
    return _build(ast.parse(text, mode="eval").body, names, None)


def _build(node: Any, names: dict[str, Any], dtype: Any) -> Any:
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=bool() as value):
            return e.IntImm("bool", int(value))
        case ast.Constant(value=float() as value):
            return e.FloatImm(dtype or "float32", value)
        case ast.Constant(value=value):
            return e.IntImm(dtype or "int32", value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return e.IntImm(dtype or "int32", -value)
        case ast.UnaryOp(op=ast.Not(), operand=a):
            return e.Not(_build(a, names, None))
        case ast.BinOp(left=a, op=op, right=b) | ast.Compare(left=a, ops=[op], comparators=[b]):
            return BINARY[type(op)](*_pair(a, b, names, dtype))
        case ast.BoolOp(op=op, values=[first, *rest]):
            result = _build(first, names, None)
            for value in rest:
                result = BINARY[type(op)](result, _build(value, names, None))
            return result
        case ast.Call(func=ast.Name(id="min" | "max" | "truncdiv" | "truncmod" as name), args=[a, b]):
            return CALLS[name](*_pair(a, b, names, dtype))
        case ast.Call(func=ast.Name(id=name), args=args):
            return CALLS[name](*(_build(a, names, dtype if name in ("ramp", "broadcast") else None) for a in args))
    raise AssertionError(ast.dump(node))


def _pair(a: Any, b: Any, names: dict[str, Any], dtype: Any) -> tuple[Any, Any]:
    """Both operands; a number takes the other operand's dtype."""
    constant = (ast.Constant, ast.UnaryOp)
    if isinstance(a, constant) and not isinstance(b, constant):
        right = _build(b, names, dtype)
        return _build(a, names, right.dtype.element), right
    left = _build(a, names, dtype)
    return left, _build(b, names, left.dtype.element)


SYMBOLS = {cls: op for op, cls in (("+", e.Add), ("-", e.Sub), ("*", e.Mul), ("//", e.FloorDiv), ("%", e.FloorMod))}
SYMBOLS |= {e.LT: "<", e.LE: "<=", e.GT: ">", e.GE: ">=", e.EQ: "==", e.NE: "!=", e.And: "and", e.Or: "or"}


def show(expr: Any) -> str:
    """The text of an expression, with all parentheses."""
    if isinstance(expr, e.Var):
        return expr.name
    if isinstance(expr, e.ConstExpr):
        return str(bool(expr.value)) if expr.dtype.is_bool else str(expr.value)
    if type(expr) in SYMBOLS:
        return f"({show(expr.a)} {SYMBOLS[type(expr)]} {show(expr.b)})"
    if isinstance(expr, e.Call):
        return f"{expr.op.name}({', '.join(show(a) for a in expr.args)})"
    if isinstance(expr, e.PrimExpr):
        parts = [
            show(v) if isinstance(v, e.PrimExpr) else str(v)
            for v in (getattr(expr, f.name) for f in expr.compared_fields)
        ]
        return f"{type(expr).__name__}({', '.join(parts)})"
    return str(expr)
