"""Constants and ranges; random operators are unsupported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....ir import operators as ops
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, ShapeExpr, const
from ..context import Context
from ..dtypes import dtype_name
from ..objects import constant_of, constant_strings
from ..registry import converter


@converter("Constant")
def constant(
    g: Context,
    *,
    value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
    sparse_value: Any = None,
) -> Expr:
    """A constant of the model."""
    if value is not None:
        return constant_of(g, value)
    for number, dtype in ((value_float, "float32"), (value_floats, "float32"), (value_int, "int64")):
        if number is not None:
            return g.constant(number, dtype)
    if value_ints is not None:
        return g.constant(value_ints, "int64")
    texts = value_string if value_strings is None else list(value_strings)
    if texts is not None:
        return constant_strings(g, np.array(texts, object))
    raise UnsupportedError("a constant of sparse values; tensors have all their elements stored")


@converter("ConstantOfShape")
def constant_of_shape(g: Context, shape: Expr, *, value: np.ndarray | None = None) -> Expr:
    """A tensor of one value."""
    filler = g.constant(np.zeros([], np.float32) if value is None else value.reshape(()))
    extents = g.extents(shape, "a shape")
    if all(isinstance(e, int) for e in extents) and math.prod(extents) <= 1024:
        return g.constant(np.full(extents, filler.data.numpy()))
    return g.emit(op.full(ShapeExpr(extents), filler, g.dtype(filler)))


@converter("Range")
def range_(g: Context, start: Expr, limit: Expr, delta: Expr) -> Expr:
    """start, start + delta, ... before the limit."""
    dtype = g.dtype(start)
    first, last, step = (g.whole(g.reshaped(x, [])) for x in (start, limit, delta))
    if first is not None and last is not None and step is not None:
        begin, end, by = first[()], last[()], step[()]
        if isinstance(by, int) and by != 0:
            if isinstance(begin, int) and isinstance(end, int):
                return g.constant(np.arange(begin, end, by), dtype)
            length = g.block_builder.analyzer.simplify(ops.floordiv(end - begin + by - (1 if by > 0 else -1), by))
            return _counted(g, start, delta, length)
    values = [g.array(x) for x in (start, limit, delta)]
    if values[0] is not None and values[1] is not None and values[2] is not None:
        count = max(math.ceil((float(values[1].item()) - float(values[0].item())) / float(values[2].item())), 0)
        return _counted(g, start, delta, count)
    wide = "float64"
    distance = op.subtract(g.cast(limit, wide), g.cast(start, wide))
    count = op.maximum(op.ceil(op.divide(distance, g.cast(delta, wide))), const(0.0, wide))
    return _counted(g, start, delta, g.extents(g.emit(op.astype(count, "int64")), "a length")[0])


def _counted(g: Context, start: Expr, delta: Expr, count: Any) -> Expr:
    """`count` numbers from `start` on."""
    steps = op.arange(0, count, 1, "int64")
    scaled = op.multiply(op.astype(steps, g.dtype(start)), g.reshaped(delta, []))
    return g.emit(op.add(scaled, g.reshaped(start, [])))


@converter("EyeLike")
def eye_like(g: Context, x: Expr, *, dtype: int | None = None, k: int = 0) -> Expr:
    """A matrix with ones on a diagonal, in the shape of another."""
    rows, columns = g.shape(x)
    return g.emit(op.eye(rows, columns, k, g.dtype(x) if dtype is None else dtype_name(dtype)))


@converter("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(g: Context, *inputs: Expr, **attributes: Any) -> Expr:
    """Random numbers: a module computes the same from the same inputs."""
    raise UnsupportedError("random numbers are not drawn in a module; make them an input of the model")
