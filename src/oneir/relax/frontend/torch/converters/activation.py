"""Activations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..dtypes import cast, dtype_name
from ..importer import Importer, fields_of
from ..registry import converter, scalars_as_vectors

if TYPE_CHECKING:
    import torch

converter("relu")(lambda g, x: g.emit(op.nn.relu(x)))
converter("relu6")(lambda g, x: g.emit(op.nn.relu6(x)))
converter("silu")(lambda g, x: g.emit(op.nn.silu(x)))
converter("selu")(lambda g, x: g.emit(op.nn.selu(x)))


@converter("gelu")
def gelu(g: Importer, x: Expr, approximate: str = "none") -> Expr:
    """x * P(X <= x) for a standard normal X."""
    if approximate not in ("none", "tanh"):
        raise UnsupportedError(f'approximate is "none" or "tanh", found {approximate!r}')
    return g.emit(op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x))


@converter("leaky_relu")
def leaky_relu(g: Importer, x: Expr, negative_slope: float = 0.01) -> Expr:
    """x, or negative_slope * x where x is negative."""
    return g.emit(op.nn.leakyrelu(x, negative_slope))


@converter("rrelu")
def rrelu(g: Importer, x: Expr, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Expr:
    """As leaky_relu, with a slope that is random in training."""
    if training:
        raise UnsupportedError("the slope of rrelu is random in training; call model.eval() before")
    return leaky_relu(g, x, (lower + upper) / 2)


@converter("prelu", "_prelu_kernel")
@scalars_as_vectors
def prelu(g: Importer, x: Expr, weight: Expr) -> Expr:
    """x, or weight * x where x is negative; one weight a channel, or one for all."""
    if g.ndim(weight) != 1:
        weight = op.reshape(weight, [-1])
    return g.emit(op.nn.prelu(x, weight, axis=1 if g.ndim(x) > 1 else 0))


@converter("elu")
def elu(g: Importer, x: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    """scale * (x, or alpha * (exp(input_scale * x) - 1) where x is negative)."""
    dtype = g.dtype(x)
    scaled = x if input_scale == 1.0 else op.multiply(x, const(input_scale, dtype))
    below = op.nn.relu(op.subtract(const(1, dtype), op.exp(scaled)))
    result = op.add(op.multiply(const(-alpha, dtype), below), op.nn.relu(x))
    return g.emit(result if scale == 1.0 else op.multiply(result, const(scale, dtype)))


@converter("celu")
def celu(g: Importer, x: Expr, alpha: float = 1.0) -> Expr:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))"""
    dtype = g.dtype(x)
    scale = const(alpha, dtype)
    # With a scale of 1, in the order in which it is published.
    grown = op.divide(op.exp(x), scale) if alpha == 1 else op.exp(op.divide(x, scale))
    below = op.minimum(const(0, dtype), op.subtract(grown, const(1, dtype)))
    return g.emit(op.add(op.multiply(scale, below), op.nn.relu(x)))


def _hard_sigmoid(x: Expr, dtype: str) -> Expr:
    return op.divide(op.clip(op.add(x, const(3, dtype)), 0, 6), const(6, dtype))


@converter("hardsigmoid")
def hardsigmoid(g: Importer, x: Expr) -> Expr:
    """min(max(x + 3, 0), 6) / 6"""
    return g.emit(_hard_sigmoid(x, g.dtype(x)))


@converter("hardswish")
def hardswish(g: Importer, x: Expr) -> Expr:
    """x * hardsigmoid(x)"""
    return g.emit(op.multiply(x, _hard_sigmoid(x, g.dtype(x))))


@converter("hardtanh")
def hardtanh(g: Importer, x: Expr, min_val: float = -1.0, max_val: float = 1.0) -> Expr:
    """x limited to [min_val, max_val]."""
    return g.emit(op.clip(x, min_val, max_val))


@converter("hardshrink")
def hardshrink(g: Importer, x: Expr, lambd: float = 0.5) -> Expr:
    """x, or 0 where |x| <= lambd."""
    dtype = g.dtype(x)
    return g.emit(op.where(op.greater(op.abs(x), const(lambd, dtype)), x, op.zeros_like(x)))


@converter("softshrink")
def softshrink(g: Importer, x: Expr, lambd: float = 0.5) -> Expr:
    """x moved by lambd towards 0, and 0 in between."""
    dtype = g.dtype(x)
    bound = const(lambd, dtype)
    above = op.multiply(op.subtract(x, bound), op.astype(op.greater(x, bound), dtype))
    below = op.multiply(op.add(x, bound), op.astype(op.less(x, op.negative(bound)), dtype))
    return g.emit(op.add(above, below))


@converter("tanhshrink")
def tanhshrink(g: Importer, x: Expr) -> Expr:
    """x - tanh(x)"""
    return g.emit(op.subtract(x, op.tanh(x)))


@converter("threshold", "_threshold")
def threshold(g: Importer, x: Expr, threshold: float, value: float) -> Expr:
    """x, or the value where x is not above the threshold."""
    dtype = g.dtype(x)
    above = op.greater(x, const(threshold, dtype))
    return g.emit(op.where(above, x, op.full_like(x, const(value, dtype))))


@converter("softplus")
def softplus(g: Importer, x: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds the threshold."""
    return g.emit(op.nn.softplus(x, beta, threshold))


@converter("mish")
def mish(g: Importer, x: Expr) -> Expr:
    """x * tanh(softplus(x))"""
    return g.emit(op.multiply(x, op.tanh(op.nn.softplus(x, 1.0, 20.0))))


@converter("softsign")
def softsign(g: Importer, x: Expr) -> Expr:
    """x / (1 + |x|)"""
    return g.emit(op.divide(x, op.add(op.abs(x), const(1, g.dtype(x)))))


@converter("logsigmoid", "log_sigmoid")
def log_sigmoid(g: Importer, x: Expr) -> Expr:
    """log(sigmoid(x))"""
    return g.emit(op.negative(op.nn.softplus(op.negative(x), 1.0, 20.0)))


@converter("glu")
def glu(g: Importer, x: Expr, dim: int = -1) -> Expr:
    """One half times the sigmoid of the other."""
    value, gate = fields_of(g.emit(op.split(x, 2, g.axis(x, dim))))
    return g.emit(op.multiply(value, op.sigmoid(gate)))


def _softmax_input(g: Importer, x: Expr, dim: int | None, dtype: torch.dtype | None) -> tuple[Expr, int]:
    if dim is None:
        dim = 0 if g.ndim(x) in (0, 1, 3) else 1
    return (x if dtype is None else cast(x, dtype_name(dtype))), dim


@converter("softmax", "special_softmax")
@scalars_as_vectors
def softmax(g: Importer, x: Expr, dim: int | None = None, dtype: torch.dtype | None = None) -> Expr:
    """exp(x) divided by its sum over a dimension."""
    x, dim = _softmax_input(g, x, dim, dtype)
    return g.emit(op.nn.softmax(x, dim))


@converter("_safe_softmax")
def safe_softmax(g: Importer, x: Expr, dim: int, dtype: torch.dtype | None = None) -> Expr:
    """As softmax; zeros where all elements are -inf."""
    x, dim = _softmax_input(g, x, dim, dtype)
    lowest = const(-math.inf, g.dtype(g.emit(x)))
    none = op.equal(op.max(x, dim, keepdims=True), lowest)
    return g.emit(op.where(none, op.zeros_like(x), op.nn.softmax(x, dim)))


@converter("_softmax")
@scalars_as_vectors
def plain_softmax(g: Importer, x: Expr, dim: int, half_to_float: bool = False) -> Expr:
    """As softmax; `half_to_float` computes halves as floats."""
    return softmax(g, x, dim, "float32" if half_to_float else None)


@converter("log_softmax", "special_log_softmax")
@scalars_as_vectors
def log_softmax(g: Importer, x: Expr, dim: int | None = None, dtype: torch.dtype | None = None) -> Expr:
    """The logarithm of softmax."""
    x, dim = _softmax_input(g, x, dim, dtype)
    return g.emit(op.nn.log_softmax(x, dim))


@converter("_log_softmax")
@scalars_as_vectors
def plain_log_softmax(g: Importer, x: Expr, dim: int, half_to_float: bool = False) -> Expr:
    """As log_softmax; `half_to_float` computes halves as floats."""
    return log_softmax(g, x, dim, "float32" if half_to_float else None)


@converter("softmin")
@scalars_as_vectors
def softmin(g: Importer, x: Expr, dim: int | None = None, dtype: torch.dtype | None = None) -> Expr:
    """softmax(-x)"""
    return softmax(g, op.negative(x), dim, dtype)


@converter(
    "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"
)
def dropout(g: Importer, x: Expr, p: float = 0.5, training: bool = True) -> Expr:
    """x itself: an imported program is for inference, where nothing is dropped."""
    return x


@converter("stochastic_depth")
def stochastic_depth(g: Importer, x: Expr, p: float, mode: str, training: bool = True) -> Expr:
    """x itself, for the same reason."""
    return x
