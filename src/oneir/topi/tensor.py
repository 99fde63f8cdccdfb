"""Tensors filled with values, and sums of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.dtype import DataType
from ..ir.expr import PrimExpr, const
from ..runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ..te.tensor import Tensor
from . import tag
from .index import Shape, is_equal, shape_text


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    if not xs:
        raise InvalidValue("topi.elemwise_sum: expected at least one tensor, found none")
    first = xs[0]
    for other in xs[1:]:
        if other.ndim != first.ndim or not all(map(is_equal, first.shape, other.shape)):
            raise ShapeMismatch(
                f"topi.elemwise_sum: expected tensors of one shape, found {shape_text(first.shape)} "
                f"and {shape_text(other.shape)}"
            )

    def element(*ax: PrimExpr) -> Any:
        total = first(*ax)
        for other in xs[1:]:
            total = ops.add(total, other(*ax))
        return total

    return te.compute(first.shape, element, name="T_elemwise_sum", tag=tag.ELEMWISE)


def full(shape: Shape, dtype: str, fill_value: Any) -> Tensor:
    """A tensor of one value."""
    value = _as_dtype(fill_value, DataType(dtype), "full")
    return te.compute(shape, lambda *ax: value, name="T_full", tag=tag.ELEMWISE)


def full_like(x: Tensor, fill_value: Any) -> Tensor:
    """A tensor of one value with the shape and dtype of `x`."""
    value = _as_dtype(fill_value, x.dtype, "full_like")
    return te.compute(x.shape, lambda *ax: value, name="T_full_like", tag=tag.ELEMWISE)


def _as_dtype(value: Any, dtype: DataType, function: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value) and not dtype.is_float:
        raise InvalidValue(f"topi.{function}: {value} needs a float dtype, found {dtype}")
    if isinstance(value, Tensor) and value.ndim:
        raise TypeMismatch(f"topi.{function}: expected a scalar, found a tensor of shape {shape_text(value.shape)}")
    return ops.cast(dtype, value)


def eye(n: int, m: int | None = None, k: int = 0, dtype: str = "float32") -> Tensor:
    """An n×m matrix (n×n unless `m` is given) of zeros, with ones on the k-th diagonal above the main one."""
    one, zero = const(1, dtype), const(0, dtype)
    return te.compute(
        (n, n if m is None else m),
        lambda i, j: te.if_then_else(ops.equal(i, ops.subtract(j, k)), one, zero),
        name="eye",
    )
