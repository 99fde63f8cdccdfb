"""Losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..broadcast import divide
from ..index import require_ndim, shape_text
from ..reduction import sum as sum_over


def nll_loss(predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str, ignore_index: int) -> Tensor:
    """-predictions[n, t, ...] * weights[t] for each target t = targets[n, ...], and 0 for ignored targets.

    `predictions` are (N, C, ...) or (C,), `targets` integers (N, ...) or (), `weights` (C,). The reduction is "none",
    "sum", or "mean": the sum divided by the weights of the targets that count.
    """
    _check(predictions, targets, weights, reduction)
    zero = const(0, predictions.dtype)

    def of_targets(value: Callable[..., Any]) -> Tensor:
        def element(*ax: PrimExpr) -> Any:
            target = targets(*ax)
            return Select(ops.not_equal(target, ignore_index), value(target, *ax), zero)

        return te.compute(targets.shape, element, name="nll_loss", tag=tag.BROADCAST)

    def loss(target: Any, *ax: PrimExpr) -> Any:
        place = (ax[0], target, *ax[1:]) if ax else (target,)
        return (zero - predictions(*place)) * weights(target)

    total = of_targets(loss)
    if reduction == "none":
        return total
    if not targets.shape:
        return total if reduction == "sum" else divide(total, of_targets(lambda target, *ax: weights(target)))
    if reduction == "sum":
        return sum_over(total)
    return divide(sum_over(total), sum_over(of_targets(lambda target, *ax: weights(target))))


def _check(predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str) -> None:
    if reduction not in ("none", "sum", "mean"):
        raise InvalidValue(f'topi.nn.nll_loss: expected the reduction "none", "sum" or "mean", found {reduction!r}')
    if not targets.dtype.startswith("int"):
        raise TypeMismatch(f"topi.nn.nll_loss: expected targets of a signed integer dtype, found {targets.dtype}")
    require_ndim(weights, 1, "nn.nll_loss", "weights")
    # The class axis of (C,) is 0, of (N, C, ...) it is 1.
    axis = min(predictions.ndim - 1, 1)
    expected = [*predictions.shape[:axis], *predictions.shape[axis + 1 :], predictions.shape[max(axis, 0)]]
    found = [*targets.shape, weights.shape[0]]
    pairs = [(as_int(a), as_int(b)) for a, b in zip(expected, found, strict=False)]
    if len(expected) != len(found) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ShapeMismatch(
            f"topi.nn.nll_loss: predictions of shape {shape_text(predictions.shape)} need targets of shape "
            f"{shape_text(expected[:-1])} and {expected[-1]} weights, found {shape_text(targets.shape)} and "
            f"{weights.shape[0]}"
        )
