"""Steps of optimizers, as models of training have them."""

from __future__ import annotations

from collections.abc import Sequence

from .... import op
from ....expr import Expr, const
from ..context import Context
from ..registry import converter


def _optimizer(g: Context, inputs: Sequence[Expr], states: int) -> list[tuple[Expr, ...]]:
    """For each optimized tensor: itself, its gradient, its states."""
    count = len(inputs) // (states + 2)
    return [tuple(inputs[i + k * count] for k in range(states + 2)) for i in range(count)]


def _by_state(results: list[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    return tuple(value for group in zip(*results, strict=True) for value in group)


_TRAINING = "ai.onnx.preview.training"


@converter("Adagrad", domain=_TRAINING)
def adagrad(
    g: Context,
    rate: Expr,
    step: Expr,
    *inputs: Expr,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> tuple[Expr, ...]:
    """A step of Adagrad."""
    rate = g.emit(
        op.divide(rate, op.add(g.like(1, rate), op.multiply(g.cast(step, g.dtype(rate)), g.like(decay_factor, rate))))
    )
    results = []
    for x, gradient, history in _optimizer(g, inputs, 1):
        slope = op.add(op.multiply(g.like(norm_coefficient, x), x), gradient)
        squares = g.emit(op.add(history, op.multiply(slope, slope)))
        scale = op.add(op.sqrt(squares), g.like(epsilon, x))
        results.append((g.emit(op.subtract(x, op.divide(op.multiply(g.reshaped(rate, []), slope), scale))), squares))
    return _by_state(results)


@converter("Adam", domain=_TRAINING)
def adam(
    g: Context,
    rate: Expr,
    step: Expr,
    *inputs: Expr,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Expr, ...]:
    """A step of Adam."""
    results = []
    time = g.cast(step, g.dtype(rate))
    one = g.like(1, rate)
    corrected = op.divide(
        op.multiply(rate, op.sqrt(op.subtract(one, op.power(g.like(beta, rate), time)))),
        op.subtract(one, op.power(g.like(alpha, rate), time)),
    )
    first_step = op.equal(step, const(0, "int64"))
    rate = g.reshaped(g.emit(op.where(first_step, rate, corrected)), [])
    for x, gradient, first, second in _optimizer(g, inputs, 2):
        slope = op.add(op.multiply(g.like(norm_coefficient, x), x), gradient)
        v = g.emit(op.add(op.multiply(g.like(alpha, x), first), op.multiply(g.like(1 - alpha, x), slope)))
        squares = op.multiply(slope, slope)
        h = g.emit(op.add(op.multiply(g.like(beta, x), second), op.multiply(g.like(1 - beta, x), squares)))
        moved = op.subtract(x, op.divide(op.multiply(rate, v), op.add(op.sqrt(h), g.like(epsilon, x))))
        results.append((g.emit(op.multiply(g.like(1 - norm_coefficient_post, x), moved)), v, h))
    return _by_state(results)


@converter("Momentum", domain=_TRAINING)
def momentum_step(
    g: Context, rate: Expr, step: Expr, *inputs: Expr, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Expr, ...]:
    """A step with momentum."""
    results = []
    rate = g.reshaped(rate, [])
    later = op.greater(g.reshaped(step, []), const(0, "int64"))
    for x, gradient, velocity in _optimizer(g, inputs, 1):
        slope = g.emit(op.add(op.multiply(g.like(norm_coefficient, x), x), gradient))
        weight = op.where(later, g.like(beta, x), g.like(1, x))
        v = g.emit(op.add(op.multiply(g.like(alpha, x), velocity), op.multiply(weight, slope)))
        way = op.add(slope, op.multiply(g.like(alpha, x), v)) if mode == "nesterov" else v
        results.append((g.emit(op.subtract(x, op.multiply(rate, way))), v))
    return _by_state(results)
