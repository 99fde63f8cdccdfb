"""What normalizations share: sums of elements and of their squares, and the checks of dtypes and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ...te.tensor import Tensor
from ...tir import op as tir_op
from ...tir.reduction import comm_reducer
from .. import tag
from ..index import Axes, require_axis, shape_text

_TUPLE_SUM = comm_reducer(
    lambda x, y: [a + b for a, b in zip(x, y, strict=True)],
    lambda *dtypes: [const(0, dtype) for dtype in dtypes],
    name="tuple_sum",
)


def accumulation_dtype(dtype: DataType) -> str:
    """The dtype that moments are computed in: float32 for floats of 16 bits or fewer."""
    return "float32" if dtype.bits < 32 else str(dtype)


def check_dtypes(function: str, data: Tensor, **others: Tensor | None) -> None:
    """Raises `TypeMismatch` unless the data is of floats, and the parameters have its dtype."""
    if not data.dtype.is_float:
        raise TypeMismatch(f"topi.nn.{function}: expected data of a float dtype, found {data.dtype}")
    for name, tensor in others.items():
        if tensor is not None and tensor.dtype != data.dtype:
            raise TypeMismatch(f"topi.nn.{function}: expected {name} of the data's {data.dtype}, found {tensor.dtype}")


def normalized_axes(axis: Axes, data: Tensor, function: str) -> list[int]:
    """The axes normalized over, sorted and each once."""
    given = axis if isinstance(axis, (list, tuple)) else [axis]
    if not given:
        raise InvalidValue(f"topi.nn.{function}: expected at least one axis")
    return sorted({require_axis(a, data.ndim, f"nn.{function}") for a in given})


def check_parameters(function: str, expected: Sequence[Any], **parameters: Tensor | None) -> None:
    """Raises `ShapeMismatch` for parameters of another shape than expected."""
    for name, tensor in parameters.items():
        if tensor is None:
            continue
        pairs = [(as_int(a), as_int(b)) for a, b in zip(tensor.shape, expected, strict=False)]
        if len(tensor.shape) != len(expected) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise ShapeMismatch(
                f"topi.nn.{function}: expected {name} of shape {shape_text(expected)}, found {shape_text(tensor.shape)}"
            )


def sums(data: Tensor, axes: list[int], name: str) -> tuple[Tensor, Tensor]:
    """The sums of the elements and of their squares over some axes."""
    dtype = accumulation_dtype(data.dtype)
    reduction = {a: te.reduce_axis((const(0, data.shape[a].dtype), data.shape[a]), name=f"k{a}") for a in axes}

    def element(*ax: PrimExpr) -> Any:
        rest = iter(ax)
        value = data(*(reduction[d] if d in reduction else next(rest) for d in range(data.ndim))).astype(dtype)
        return _TUPLE_SUM((value, value * value), list(reduction.values()))

    shape = [extent for d, extent in enumerate(data.shape) if d not in reduction]
    return te.compute(shape, element, name=f"{name}_red_temp", tag=tag.COMM_REDUCE)


def normalized(data: Tensor, temp: tuple[Tensor, Tensor], axes: list[int], epsilon: float, at: Sequence[Any]) -> Any:
    """The element less the mean, divided by the standard deviation; in the dtype of the moments."""
    total, squares = temp
    count: Any = const(1, total.dtype)
    for a in axes:
        count = count * data.shape[a].astype(total.dtype)
    outer = [index for d, index in enumerate(at) if d not in axes]
    mean = total(*outer) / count
    variance = squares(*outer) / count - mean * mean
    return (data(*at).astype(total.dtype) - mean) * tir_op.rsqrt(variance + const(epsilon, total.dtype))
