"""Gradients against differences of function values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.error import AssertionFailure, ShapeMismatch

Values = Mapping[str, np.ndarray] | Sequence[np.ndarray]


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Values,
    grad_values: Values,
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Raises `AssertionFailure` unless gradients of a scalar function are near to its difference quotients.

    `function` takes the arrays `input_values`, by position or, if they are a mapping, by name, and returns a number;
    `grad_values` has a gradient of the same shape for each. The quotients are of steps `delta` to both sides; where
    they disagree, they are extrapolated from half steps. The distance of a gradient of n elements may be
    `atol * sqrt(n) + rtol * norm`. `function_value` is not needed.

    Raises `ShapeMismatch` for a gradient of another shape.
    """
    by_name = isinstance(input_values, Mapping)
    given, grads = _named(input_values), _named(grad_values)
    inputs = list(given.values())

    def call(arrays: list[np.ndarray]) -> Any:
        return function(**dict(zip(given, arrays, strict=True))) if by_name else function(*arrays)

    for index, name in enumerate(given):
        if name in grads:
            _check(call, inputs, index, np.asarray(grads[name]), name, (delta, atol, rtol))


def _named(values: Values) -> dict[str, np.ndarray]:
    items = values.items() if isinstance(values, Mapping) else ((str(index), v) for index, v in enumerate(values))
    return {name: np.asarray(value) for name, value in items}


def _check(
    call: Callable[[list[np.ndarray]], Any],
    inputs: list[np.ndarray],
    which: int,
    grad: np.ndarray,
    name: str,
    tolerances: tuple[float, float, float],
) -> None:
    delta, atol, rtol = tolerances
    if grad.shape != inputs[which].shape:
        raise ShapeMismatch(f"the gradient of `{name}` has the shape {grad.shape}, expected {inputs[which].shape}")

    def slope(position: int, step: float) -> float:
        """The quotient of a step to both sides of one element."""
        ends = []
        for sign in (1, -1):
            moved = inputs[which].copy()
            moved.reshape(-1)[position] += sign * step
            ends.append(float(call([*inputs[:which], moved, *inputs[which + 1 :]])))
        return (ends[0] - ends[1]) / (2 * step)

    numerical = np.zeros(grad.size)
    for position, analytical in enumerate(grad.reshape(-1)):
        numerical[position] = coarse = slope(position, delta)
        if abs(coarse - analytical) >= atol + rtol * abs(coarse):
            numerical[position] = (4 * slope(position, delta / 2) - coarse) / 3
    distance, norm = (float(np.linalg.norm(v)) for v in (numerical - grad.reshape(-1), numerical))
    allowed = atol * grad.size**0.5 + rtol * norm
    if not distance <= allowed:
        worst = int(np.nanargmax(np.abs(numerical - grad.reshape(-1)))) if np.isfinite(distance) else 0
        raise AssertionFailure(
            f"the gradient of `{name}` is {distance:.3g} from its difference quotients, allowed {allowed:.3g}; "
            f"element {np.unravel_index(worst, grad.shape)} is {grad.reshape(-1)[worst]:.6g}, "
            f"expected {numerical[worst]:.6g}"
        )
