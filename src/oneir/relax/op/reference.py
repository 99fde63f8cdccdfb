"""What several references share: NumPy's operations with the meaning that the compiler defines for them.

Integers divided by zero give 0 (the remainder is the dividend); numbers out of an integer's range saturate; float16 and
bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.dtype import DataType
from ...runtime.dtype import numpy_dtype


def is_float(x: np.ndarray) -> bool:
    """Whether elements are floats, of NumPy's own or of its extensions."""
    return x.dtype.kind not in "biu"


def comparable(x: np.ndarray) -> np.ndarray:
    """The array in a dtype that NumPy sorts with NaN last: those of its extensions as float32."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def converted(x: np.ndarray, dtype: Any) -> np.ndarray:
    """The array in another dtype: floats are truncated to integers, saturated, and 0 if NaN."""
    target = np.dtype(numpy_dtype(dtype))
    if not is_float(x) or target.kind not in "iu":
        return x.astype(target)
    limits = np.iinfo(target)
    wide = np.trunc(x.astype(np.float64))
    low, high = wide <= limits.min, wide >= float(limits.max)
    inside = np.where(low | high | np.isnan(wide), 0, wide).astype(target)
    return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(target)


def sum_dtype(x: np.ndarray) -> np.dtype:
    """In what sums of an array are computed: float64 of floats; integers wrap."""
    return np.dtype(np.float64) if is_float(x) else x.dtype


def limits(dtype: np.dtype) -> tuple[Any, Any]:
    """The least and the greatest value of a dtype: of floats, the infinities."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = np.array([-np.inf, np.inf]).astype(dtype)
    return low, high


def nearest(number: int | float, dtype: np.dtype) -> np.ndarray:
    """A number in a dtype: of integers, truncated, and the nearest that there is."""
    if dtype.kind not in "iu" or isinstance(number, float):
        return converted(np.asarray(number), dtype.name)
    low, high = limits(dtype)
    return np.asarray(max(low, min(number, high)), dtype)


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of floats that computes short ones in float32, as the compiler does."""

    def computed(x: np.ndarray, *rest: Any, **attrs: Any) -> Any:
        if x.dtype.itemsize >= 4:
            return function(x, *rest, **attrs)
        return np.asarray(function(x.astype(np.float32), *rest, **attrs)).astype(x.dtype)

    return computed


def _nonzero(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, np.ones_like(x), x)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b; of integers, truncated towards zero."""
    if is_float(a):
        return np.divide(a, b)
    return np.where(b == 0, 0, _truncated_quotient(a, _nonzero(b))).astype(a.dtype)


def _truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = np.floor_divide(a, b)
    inexact = quotient * b != a
    return quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)


def floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b rounded down."""
    if is_float(a):
        return np.floor(np.divide(a, b))
    return np.where(b == 0, 0, np.floor_divide(a, _nonzero(b))).astype(a.dtype)


def truncated_remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The remainder of a / b with the sign of a."""
    if is_float(a):
        return np.fmod(a, b)
    return np.where(b == 0, a, np.fmod(a, _nonzero(b))).astype(a.dtype)


def floor_remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The remainder of a / b rounded down, with the sign of b."""
    if is_float(a):
        rest = np.fmod(a, b)
        return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest).astype(a.dtype)
    return np.where(b == 0, a, np.mod(a, _nonzero(b))).astype(a.dtype)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a to the power b; of integers, products wrap, and negative powers of all but 1 and -1 are 0."""
    if is_float(a):
        return np.power(a, b)
    result = np.ones(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    square = a
    for bit in range(a.dtype.itemsize * 8):
        result = np.where(b >> bit & 1, result * square, result)
        square = square * square
    return np.where((b < 0) & (a != 1) & (a != np.array(-1).astype(a.dtype)), 0, result).astype(a.dtype)


def shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a << b; 0 for counts that are negative or at least the width."""
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    return np.where(inside, np.left_shift(a, np.where(inside, b, 0)), 0).astype(a.dtype)


def shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a >> b with the sign kept; counts that are negative or at least the width leave only the sign."""
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    return (
        np.right_shift(a, np.where(inside, b, width - 1))
        if a.dtype.kind == "i"
        else np.where(inside, np.right_shift(a, np.where(inside, b, 0)), 0).astype(a.dtype)
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def sign(x: np.ndarray) -> np.ndarray:
    """-1, 0 or 1; 0 for NaN."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """A rounding function, which leaves integers as they are."""
    return lambda x: function(x) if is_float(x) else x


def dtype_or(dtype: Any, otherwise: np.dtype) -> Any:
    """NumPy's dtype of that name, or `otherwise` for "void"."""
    return otherwise if DataType(dtype) == "void" else numpy_dtype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """An array in the dtype that sums are computed in: float64 of floats, int64 of integers."""
    return x.astype(np.float64 if is_float(x) else np.int64)
