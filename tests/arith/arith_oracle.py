"""An evaluator of integer expressions that shares nothing with the simplifier, and random expressions to try it on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from oneir.ir import expr as e
from oneir.ir.dtype import DataType


def wrapped(value: int, dtype: DataType) -> int:
    """What a register of the dtype holds."""
    if dtype.is_bool:
        return int(bool(value))
    value %= 1 << dtype.bits
    return value - (1 << dtype.bits) if dtype.code == "int" and value >= 1 << (dtype.bits - 1) else value


def truncated_quotient(a: int, b: int) -> int:
    if b == 0:
        return 0
    q = abs(a) // abs(b)
    return q if (a >= 0) == (b >= 0) else -q


def shifted(a: int, count: int, left: bool, bits: int) -> int:
    if not 0 <= count < bits:
        return 0 if left or a >= 0 else -1
    return a << count if left else a >> count


BINARY = {
    e.Add: lambda a, b: a + b,
    e.Sub: lambda a, b: a - b,
    e.Mul: lambda a, b: a * b,
    e.FloorDiv: lambda a, b: a // b if b else 0,
    e.FloorMod: lambda a, b: a % b if b else a,
    e.Div: truncated_quotient,
    e.Mod: lambda a, b: a - b * truncated_quotient(a, b),
    e.Min: min,
    e.Max: max,
    e.EQ: lambda a, b: a == b,
    e.NE: lambda a, b: a != b,
    e.LT: lambda a, b: a < b,
    e.LE: lambda a, b: a <= b,
    e.GT: lambda a, b: a > b,
    e.GE: lambda a, b: a >= b,
    e.And: lambda a, b: bool(a) and bool(b),
    e.Or: lambda a, b: bool(a) or bool(b),
}


def evaluate(expr: Any, values: dict[e.Var, int]) -> Any:
    """The value of an expression: an int, or a list of them for a vector."""
    if isinstance(expr, e.Var):
        return values[expr]
    if isinstance(expr, e.IntImm):
        return expr.value
    if isinstance(expr, e.Broadcast):
        return [evaluate(expr.value, values)] * expr.lanes
    if isinstance(expr, e.Ramp):
        base, stride = evaluate(expr.base, values), evaluate(expr.stride, values)
        return [base + lane * stride for lane in range(expr.lanes)]
    if isinstance(expr, e.BinaryOpExpr):
        a, b = evaluate(expr.a, values), evaluate(expr.b, values)
        if isinstance(a, list):
            return [wrapped(BINARY[type(expr)](x, y), expr.dtype) for x, y in zip(a, b, strict=True)]
        return wrapped(BINARY[type(expr)](a, b), expr.dtype)
    if isinstance(expr, e.Not):
        return int(not evaluate(expr.a, values))
    if isinstance(expr, e.Select):
        return evaluate(expr.true_value if evaluate(expr.condition, values) else expr.false_value, values)
    if isinstance(expr, e.Cast):
        return (
            wrapped(evaluate(expr.value, values), expr.dtype)
            if not expr.dtype.is_bool
            else int(evaluate(expr.value, values) != 0)
        )
    if isinstance(expr, e.Let):
        return evaluate(expr.body, {**values, expr.var: evaluate(expr.value, values)})
    if isinstance(expr, e.Call):
        return _call(expr, values)
    raise AssertionError(f"no value for {type(expr).__name__}")


def _call(call: e.Call, values: dict[e.Var, int]) -> int:
    name = call.op.name
    if name == "tir.if_then_else":
        condition, yes, no = call.args
        return evaluate(yes if evaluate(condition, values) else no, values)
    args = [evaluate(a, values) for a in call.args]
    if name == "tir.likely":
        return args[0]
    if name in ("tir.shift_left", "tir.shift_right"):
        return wrapped(shifted(args[0], args[1], name.endswith("left"), call.dtype.bits), call.dtype)
    results = {"tir.bitwise_and": lambda: args[0] & args[1], "tir.bitwise_or": lambda: args[0] | args[1]}
    return wrapped(results[name](), call.dtype)


def points(ranges: dict[e.Var, tuple[int, int]]) -> Iterator[dict[e.Var, int]]:
    """Every assignment of values from inclusive ranges."""
    variables = list(ranges)
    for values in itertools.product(*(range(low, high + 1) for low, high in ranges.values())):
        yield dict(zip(variables, values, strict=True))


ARITHMETIC = [e.Add, e.Sub, e.Mul, e.FloorDiv, e.FloorMod, e.Div, e.Mod, e.Min, e.Max]
COMPARISONS = [e.EQ, e.NE, e.LT, e.LE, e.GT, e.GE]


def expressions(variables: list[e.Var], dtype: str, constants: list[int]) -> st.SearchStrategy[Any]:
    """Random expressions of an integer dtype over the variables."""
    leaves = st.sampled_from(variables) | st.sampled_from([e.IntImm(dtype, c) for c in constants])

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        arithmetic = st.builds(lambda cls, a, b: cls(a, b), st.sampled_from(ARITHMETIC), inner, inner)
        by_constant = st.builds(
            lambda cls, a, c: cls(a, e.IntImm(dtype, c)),
            st.sampled_from([e.Mul, e.FloorDiv, e.FloorMod, e.Add, e.Div, e.Mod]),
            inner,
            st.sampled_from([c for c in constants if c]),
        )
        choice = st.builds(lambda c, a, b: e.Select(c, a, b), conditions_over(inner), inner, inner)
        return arithmetic | by_constant | by_constant | choice

    return st.recursive(leaves, grow, max_leaves=12)


def conditions_over(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Random conditions over given expressions."""
    comparison = st.builds(lambda cls, a, b: cls(a, b), st.sampled_from(COMPARISONS), inner, inner)
    pair = st.builds(lambda cls, a, b: cls(a, b), st.sampled_from([e.And, e.Or]), comparison, comparison)
    return comparison | pair | st.builds(e.Not, pair)
