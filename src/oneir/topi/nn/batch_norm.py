"""Batch normalization."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import const
from ...runtime.error import InvalidValue
from ...te.tensor import Tensor
from ..broadcast import add, divide, multiply, subtract
from ..index import require_axis
from ..math import sqrt
from ..reduction import sum as sum_over
from ..transform import reshape
from .moments import check_parameters
from .window import same_dtype


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[Tensor]:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta for each index of `axis`, and the moving moments.

    `axis` is 1 by default, `epsilon` 1e-5, `momentum` 0.1. Without `scale` there is no gamma, without `center` no
    beta; both are on by default. The moments are the moving ones, or with `training` those of the data, from which
    then the moving ones are updated: (1 - momentum) * moving + momentum * new.
    """
    axis = require_axis(1 if axis is None else axis, data.ndim, "nn.batch_norm")
    momentum = 0.1 if momentum is None else momentum
    if not 0 <= momentum <= 1:
        raise InvalidValue(f"topi.nn.batch_norm: expected a momentum in [0, 1], found {momentum}")
    parameters = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    check_parameters("batch_norm", [data.shape[axis]], **parameters)
    shape = [data.shape[axis] if d == axis else same_dtype(1, data.shape[d]) for d in range(data.ndim)]
    others = [d for d in range(data.ndim) if d != axis]
    count: Any = 1
    for d in others:
        count = ops.multiply(count, data.shape[d])

    mean, var = moving_mean, moving_var
    if training:
        mean = divide(sum_over(data, others), count)
    wide_mean = reshape(mean, shape)

    def variance() -> Tensor:
        return divide(sum_over(multiply(subtract(data, wide_mean), subtract(data, wide_mean)), others), count)

    if training:
        var = variance()
    deviation = sqrt(add(reshape(var, shape), const(1e-5 if epsilon is None else epsilon, data.dtype)))
    out = divide(subtract(data, wide_mean), deviation)
    if scale is None or scale:
        out = multiply(out, reshape(gamma, shape))
    if center is None or center:
        out = add(out, reshape(beta, shape))
    if not training:
        # A placeholder is no result, a product is.
        return [out, _times(1, moving_mean), _times(1, moving_var)]
    return [
        out,
        add(_times(1 - momentum, moving_mean), _times(momentum, mean)),
        # The variance that is kept is a stage of its own.
        add(_times(1 - momentum, moving_var), _times(momentum, variance())),
    ]


def _times(factor: float, tensor: Tensor) -> Tensor:
    return multiply(const(factor, tensor.dtype), tensor)
