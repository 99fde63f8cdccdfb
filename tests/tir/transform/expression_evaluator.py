"""Evaluates expressions over NumPy arrays, rounding each operation to its dtype.

Scalars are arrays of any shape (many evaluations at once); a vector has its lanes in the last axis.
"""

from __future__ import annotations

import math

import numpy as np

from oneir.ir import expr as e

_BINARY = {
    e.Add: np.add,
    e.Sub: np.subtract,
    e.Mul: np.multiply,
    e.Min: np.minimum,
    e.Max: np.maximum,
    e.FloorDiv: np.floor_divide,
    e.FloorMod: np.mod,
    e.EQ: np.equal,
    e.NE: np.not_equal,
    e.LT: np.less,
    e.LE: np.less_equal,
    e.GT: np.greater,
    e.GE: np.greater_equal,
    e.And: np.logical_and,
    e.Or: np.logical_or,
}


def _fma(a, b, c):
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


def _shift(left):
    def shift(a, count):
        return np.left_shift(a, count) if left else np.right_shift(a, count)

    return shift


_CALLS = {
    "tir.fma": _fma,
    "tir.sqrt": np.sqrt,
    "tir.nearbyint": np.rint,
    "tir.floor": np.floor,
    "tir.bitwise_and": np.bitwise_and,
    "tir.bitwise_or": np.bitwise_or,
    "tir.bitwise_xor": np.bitwise_xor,
    "tir.bitwise_not": np.bitwise_not,
    "tir.shift_left": _shift(True),
    "tir.shift_right": _shift(False),
    "tir.if_then_else": np.where,
}
_C = {"exp": np.exp, "sin": np.sin, "pow": np.power, "fmodf": np.fmod, "fmod": np.fmod, "ldexp": np.ldexp}


def evaluate(node, env):
    """The value of an expression with the variables of `env`."""
    with np.errstate(all="ignore"):
        return _evaluate(node, env)


def _evaluate(node, env):
    if isinstance(node, e.Let):
        while isinstance(node, e.Let):
            env = {**env, node.var: _evaluate(node.value, env)}
            node = node.body
        return _evaluate(node, env)
    if isinstance(node, e.Var):
        return env[node]
    numpy_dtype = node.dtype.to_numpy()
    if isinstance(node, (e.IntImm, e.FloatImm)):
        return np.asarray(node.value, numpy_dtype)
    if isinstance(node, e.Broadcast):
        return _evaluate(node.value, env)
    if isinstance(node, e.Ramp):
        return _evaluate(node.base, env) + _evaluate(node.stride, env) * np.arange(node.lanes, dtype=numpy_dtype)
    if isinstance(node, e.Select):
        return np.where(*(_evaluate(x, env) for x in (node.condition, node.true_value, node.false_value)))
    if isinstance(node, e.Not):
        return np.logical_not(_evaluate(node.a, env))
    if isinstance(node, e.Cast):
        value = _evaluate(node.value, env)
        assert not (value.dtype.kind == "f" and node.dtype.is_int), "a rule must not convert floats to integers"
        return value.astype(numpy_dtype)
    if isinstance(node, e.Div):
        a, b = _evaluate(node.a, env), _evaluate(node.b, env)
        return np.divide(a, b) if a.dtype.kind != "i" else np.trunc(a / b).astype(a.dtype)
    if isinstance(node, e.BinaryOpExpr):
        return _BINARY[type(node)](_evaluate(node.a, env), _evaluate(node.b, env))
    if type(node).__name__ == "Shuffle":
        lanes = np.concatenate([_evaluate(v, env) for v in node.vectors], axis=-1)
        return lanes[..., [int(i.value) for i in node.indices]]
    assert isinstance(node, e.Call), f"cannot evaluate {type(node).__name__}"
    if node.op.name == "tir.reinterpret":
        return np.ascontiguousarray(_evaluate(node.args[0], env)).view(numpy_dtype)
    if node.op.name == "tir.call_pure_extern":
        return np.asarray(_C[node.args[0].value](*(_evaluate(a, env) for a in node.args[1:]))).astype(numpy_dtype)
    return np.asarray(_CALLS[node.op.name](*(_evaluate(a, env) for a in node.args)))


def ulp_error(result, exact):
    """Errors in units of the last place of the float32 nearest `exact`; 1e9 where a special value is wrong."""
    nearest = exact.astype(np.float32)
    _, exponent = np.frexp(np.abs(exact))
    error = np.abs(result.astype(np.float64) - exact) / np.ldexp(1.0, np.maximum(exponent - 24, -149))
    either = np.isinf(nearest) | np.isinf(result)
    near_limit = np.abs(np.where(np.isinf(result), exact, result)) > 3.40282e38
    same = (nearest == result) | (near_limit & (np.sign(nearest) == np.sign(result)))
    error = np.where(either, np.where(same, 0.0, 1e9), error)
    error = np.where(
        np.isnan(nearest) | np.isnan(result), np.where(np.isnan(nearest) & np.isnan(result), 0, 1e9), error
    )
    return np.where((exact == 0) & (result == 0) & (np.signbit(exact) != np.signbit(result)), 1e9, error)


def float32_sample(step):
    """Every `step`-th float32 bit pattern, the special values, and the neighbourhoods of where functions change."""
    patterns = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = [
        0,
        1e-45,
        1.1754942e-38,
        1.17549435e-38,
        3.4028235e38,
        math.inf,
        math.nan,
        0.5,
        1,
        2,
        10,
        103.97,
        104,
        88.7228,
        88.72284,
    ]
    edges += [88.8, 87.4, 89.5, 38.53, 38.6, 45.2, 127.9999, 128, 149, 150, 1e-4, 1e-3, 1e4, 65535.99, 65536, 2.2e15]
    edges = np.array(edges, np.float32)
    with np.errstate(over="ignore"):
        near = [edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(np.inf))]
    return np.concatenate([patterns, *near, *(-x for x in near)])
