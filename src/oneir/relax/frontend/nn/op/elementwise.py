"""Elementwise operators. Two tensors are broadcast against each other."""

from __future__ import annotations

from .... import op as graph_op
from ..tensor import Tensor, wrap_nested


def add(a: Tensor, b: Tensor, name: str = "add") -> Tensor:
    """a + b"""
    return wrap_nested(graph_op.add(a._expr, b._expr), name)


def subtract(a: Tensor, b: Tensor, name: str = "subtract") -> Tensor:
    """a - b"""
    return wrap_nested(graph_op.subtract(a._expr, b._expr), name)


def multiply(a: Tensor, b: Tensor, name: str = "mul") -> Tensor:
    """a * b"""
    return wrap_nested(graph_op.multiply(a._expr, b._expr), name)


def divide(a: Tensor, b: Tensor, name: str = "divide") -> Tensor:
    """a / b"""
    return wrap_nested(graph_op.divide(a._expr, b._expr), name)


def maximum(x1: Tensor, x2: Tensor, name: str = "maximum") -> Tensor:
    """The larger of both."""
    return wrap_nested(graph_op.maximum(x1._expr, x2._expr), name)


def minimum(x1: Tensor, x2: Tensor, name: str = "minimum") -> Tensor:
    """The smaller of both."""
    return wrap_nested(graph_op.minimum(x1._expr, x2._expr), name)


def less(a: Tensor, b: Tensor, name: str = "less") -> Tensor:
    """a < b"""
    return wrap_nested(graph_op.less(a._expr, b._expr), name)


def less_equal(a: Tensor, b: Tensor, name: str = "less_equal") -> Tensor:
    """a <= b"""
    return wrap_nested(graph_op.less_equal(a._expr, b._expr), name)


def greater(a: Tensor, b: Tensor, name: str = "greater") -> Tensor:
    """a > b"""
    return wrap_nested(graph_op.greater(a._expr, b._expr), name)


def greater_equal(a: Tensor, b: Tensor, name: str = "greater_equal") -> Tensor:
    """a >= b"""
    return wrap_nested(graph_op.greater_equal(a._expr, b._expr), name)


def equal(a: Tensor, b: Tensor, name: str = "equal") -> Tensor:
    """a == b"""
    return wrap_nested(graph_op.equal(a._expr, b._expr), name)


def not_equal(a: Tensor, b: Tensor, name: str = "not_equal") -> Tensor:
    """a != b"""
    return wrap_nested(graph_op.not_equal(a._expr, b._expr), name)


def where(condition: Tensor, x1: Tensor, x2: Tensor, name: str = "where") -> Tensor:
    """x1 where the condition holds, else x2; a condition of numbers holds where it is not 0."""
    return wrap_nested(graph_op.where(astype(condition, "bool")._expr, x1._expr, x2._expr), name)


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """The tensor in another dtype; itself if it has it already."""
    return x if x.dtype == dtype else wrap_nested(graph_op.astype(x._expr, dtype), name)


def negative(x: Tensor, name: str = "neg") -> Tensor:
    """-x"""
    return wrap_nested(graph_op.negative(x._expr), name)


def exp(x: Tensor, name: str = "exp") -> Tensor:
    """e to the power of x."""
    return wrap_nested(graph_op.exp(x._expr), name)


def log(x: Tensor, name: str = "log") -> Tensor:
    """The natural logarithm."""
    return wrap_nested(graph_op.log(x._expr), name)


def floor(x: Tensor, name: str = "floor") -> Tensor:
    """x rounded down."""
    return wrap_nested(graph_op.floor(x._expr), name)


def square(x: Tensor, name: str = "square") -> Tensor:
    """x * x"""
    return wrap_nested(graph_op.square(x._expr), name)


def sqrt(x: Tensor, name: str = "sqrt") -> Tensor:
    """The square root."""
    return wrap_nested(graph_op.sqrt(x._expr), name)


def tanh(x: Tensor, name: str = "tanh") -> Tensor:
    """The hyperbolic tangent."""
    return wrap_nested(graph_op.tanh(x._expr), name)


def sigmoid(x: Tensor, name: str = "sigmoid") -> Tensor:
    """1 / (1 + exp(-x))"""
    return wrap_nested(graph_op.sigmoid(x._expr), name)


def relu(x: Tensor, name: str = "relu") -> Tensor:
    """max(x, 0)"""
    return wrap_nested(graph_op.nn.relu(x._expr), name)


def relu6(x: Tensor, name: str = "relu6") -> Tensor:
    """min(max(x, 0), 6)"""
    return wrap_nested(graph_op.nn.relu6(x._expr), name)


def silu(x: Tensor, name: str = "silu") -> Tensor:
    """x * sigmoid(x)"""
    return wrap_nested(graph_op.nn.silu(x._expr), name)


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """x * P(X <= x) for a standard normal X; with `approximate="tanh"`, the formula that uses tanh."""
    function = graph_op.nn.gelu_tanh if approximate == "tanh" else graph_op.nn.gelu
    return wrap_nested(function(x._expr), name)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus") -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds the threshold."""
    return wrap_nested(graph_op.nn.softplus(x._expr, beta=beta, threshold=threshold), name)


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """x, or alpha * x where x is negative."""
    return wrap_nested(graph_op.nn.prelu(x._expr, alpha._expr), name)
