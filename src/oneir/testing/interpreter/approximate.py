"""Arithmetic that knows how far off a float may be: what tolerances of comparisons come from.

Compilers may reorder sums, contract `a * b + c` and compute mathematical functions to a few units in the last place. So
a float carries two numbers: `total`, the sum of the magnitudes that were added up to make it (0 when it is no sum), and
`error`, how far off it may be for all other reasons. It may be off by `error + 4 * eps * total`.

A value without these is exact: loaded from an argument, or a constant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir import expr as e
from ...ir.dtype import DataType
from ...tir.intrin_rules.formula import SMALLEST_NORMAL
from .arithmetic import Arithmetic, is_vector
from .memory import storage_dtype

SUM_TOLERANCE = 4
"""Units of eps times the sum of magnitudes by which a sum may be off."""
CALL_TOLERANCE = 4
"""Units in the last place by which a mathematical function may be off."""
_GRADED = ("float16", "float64")
"""The dtypes whose exponentials may be subnormal numbers; of others, they may be 0 instead."""
_PARTS = (-1.0, 1.0, *np.random.default_rng(0).uniform(-1, 1, 126).tolist())
"""The ends of an interval, and random points inside of it, which no period of a function can match."""


@functools.cache
def precision(dtype: np.dtype) -> tuple[float, float, float]:
    """Eps, the smallest positive number and the largest number of a float dtype."""
    if dtype.isbuiltin == 1:
        info: Any = np.finfo(dtype)
    else:
        import ml_dtypes

        info = ml_dtypes.finfo(dtype)
    return float(info.eps), float(info.smallest_subnormal), float(info.max)


class Approximate:
    """A float, or a vector of floats, with what is known of its error; the three fields have one shape."""

    __slots__ = ("error", "total", "value")

    def __init__(self, value: Any, total: Any, error: Any):
        self.value, self.total, self.error = value, total, error


def _wide(value: Any) -> Any:
    return value.astype(np.float64)


def _is_inexact(value: Any) -> bool:
    return isinstance(value, Approximate)


class ApproximateArithmetic(Arithmetic):
    """The arithmetic of `Arithmetic`, with errors."""

    def plain(self, value: Any) -> Any:
        return value.value if isinstance(value, Approximate) else value

    def tolerance(self, value: Any) -> Any:
        """How far off a value may be."""
        if not isinstance(value, Approximate):
            return np.zeros(np.shape(value))
        if value.value.dtype == bool:
            return value.error
        return value.error + SUM_TOLERANCE * precision(value.value.dtype)[0] * value.total

    def tolerance_of(self, dtype: np.dtype, error: tuple[Any, Any]) -> float:
        """How far off a stored float may be."""
        return float(error[1] + SUM_TOLERANCE * precision(dtype)[0] * error[0])

    def _magnitude(self, value: Any) -> Any:
        """The sum of magnitudes that a value contributes to a sum."""
        size = np.abs(_wide(self.plain(value)))
        return np.where(value.total > 0, value.total, size) if isinstance(value, Approximate) else size

    def _close(self, value: Any, total: Any, error: Any, inexact: Any) -> Approximate:
        """A result; one that is not finite, or nearly so, is certain only when its operands were."""
        eps, _, largest = precision(value.dtype)
        size = np.abs(_wide(value))
        finite = np.isfinite(size)
        doubtful = np.where(finite, size + error + SUM_TOLERANCE * eps * total > largest, inexact)
        error = np.where(doubtful, np.inf, np.where(finite, error, 0.0))
        return Approximate(value, np.where(finite & ~doubtful, total, 0.0), error)

    def binary(self, kind: type, dtype: DataType, a: Any, b: Any) -> Any:
        x, y = self.plain(a), self.plain(b)
        value = super().binary(kind, dtype, x, y)
        if not dtype.is_float:
            return value
        off_a, off_b = self.tolerance(a), self.tolerance(b)
        inexact = (off_a > 0) | (off_b > 0)
        if kind in (e.Add, e.Sub):
            errors = sum(v.error for v in (a, b) if isinstance(v, Approximate)) + np.zeros(np.shape(value))
            return self._close(value, self._magnitude(a) + self._magnitude(b), errors, inexact)
        if kind in (e.Min, e.Max):
            return self._close(value, 0.0, np.maximum(off_a, off_b), inexact) if np.any(inexact) else value
        x, y, result = _wide(x), _wide(y), _wide(value)
        eps, smallest, _ = precision(value.dtype)
        if kind is e.Mul:
            error = np.abs(x) * off_b + np.abs(y) * off_a + off_a * off_b
        elif kind is e.Div:
            error = np.where(np.abs(y) > off_b, (off_a + np.abs(result) * off_b) / (np.abs(y) - off_b), np.inf)
            error = np.where(inexact, error, 0.0)
        else:
            error = np.where(inexact, np.inf, 0.0)
        return self._close(value, 0.0, error + eps * np.abs(result) + smallest, inexact)

    def compare(self, kind: type, a: Any, b: Any) -> Any:
        value = super().compare(kind, self.plain(a), self.plain(b))
        if not (_is_inexact(a) or _is_inexact(b)):
            return value
        slack = self.tolerance(a) + self.tolerance(b)
        undecided = np.abs(_wide(self.plain(a)) - _wide(self.plain(b))) <= slack
        return Approximate(value, 0.0, np.where(undecided & (slack > 0), 1.0, 0.0))

    def select(self, condition: Any, t: Any, f: Any) -> Any:
        chosen = self.plain(condition)
        x, y = self.plain(t), self.plain(f)
        value = super().select(chosen, x, y)
        if not any(map(_is_inexact, (condition, t, f))) or not _is_float(value):
            return value
        off_t, off_f = self.tolerance(t), self.tolerance(f)
        error = np.where(chosen, off_t, off_f)
        if _is_inexact(condition):
            either = np.maximum(off_t, off_f) + np.abs(_wide(x) - _wide(y))
            error = np.where(condition.error > 0, either, error)
        return Approximate(value, np.zeros(np.shape(value)), error)

    def _fields(self, value: Any) -> tuple[Any, Any, Any]:
        if isinstance(value, Approximate):
            shape = np.shape(value.value)
            return value.value, np.broadcast_to(value.total, shape), np.broadcast_to(value.error, shape)
        return value, np.zeros(np.shape(value)), np.zeros(np.shape(value))

    def broadcast(self, value: Any, lanes: int) -> Any:
        if not _is_inexact(value):
            return super().broadcast(value, lanes)
        return Approximate(*(super(ApproximateArithmetic, self).broadcast(f, lanes) for f in self._fields(value)))

    def shuffle(self, vectors: Sequence[Any], indices: Sequence[int]) -> Any:
        if not any(map(_is_inexact, vectors)):
            return super().shuffle(vectors, indices)
        fields = zip(*map(self._fields, vectors), strict=True)
        return Approximate(*(super(ApproximateArithmetic, self).shuffle(f, indices) for f in fields))

    def cast(self, value: Any, source: DataType, target: DataType) -> Any:
        plain = self.plain(value)
        result = super().cast(plain, source, target)
        if not target.is_float:
            return result
        eps, smallest, _ = precision(storage_dtype(target.element))
        rounded = _wide(result) != _wide(plain)
        if not (_is_inexact(value) or np.any(rounded)):
            return result
        off = self.tolerance(value)
        return self._close(result, 0.0, off + np.where(rounded, eps * np.abs(_wide(result)) + smallest, 0.0), off > 0)

    def apply(
        self, reference: Callable[..., Any], dtype: DataType, args: Sequence[Any], flushes_subnormals: bool = False
    ) -> Any:
        value = super().apply(reference, dtype, [self.plain(a) for a in args])
        if not dtype.is_float:
            return value
        eps, smallest, _ = precision(value.dtype)
        least = SMALLEST_NORMAL if flushes_subnormals and value.dtype.name not in _GRADED else 0.0
        error = CALL_TOLERANCE * (eps * np.abs(_wide(value)) + smallest) + least
        inexact = np.zeros(np.shape(value), bool)
        if any(map(_is_inexact, args)):
            wide = [_wide(v) if _is_float(v) else v for v in map(self.plain, args)]
            base = np.asarray(reference(*wide))
            for position, arg in enumerate(args):
                off = self.tolerance(arg)
                inexact = inexact | (off > 0)
                if np.any(off > 0):
                    error = error + self._effect(reference, wide, position, off, base)
        return self._close(value, 0.0, error, inexact)

    def _effect(self, reference: Callable[..., Any], wide: list[Any], position: int, off: Any, base: Any) -> Any:
        """How far the result moves when one argument is off.

        A periodic function may move further inside of the interval than at its ends, so points between them are tried.
        """
        moved = 0.0
        for part in _PARTS:
            changed = [*wide]
            changed[position] = wide[position] + part * off
            distance = np.abs(np.asarray(reference(*changed)) - base)
            moved = np.maximum(moved, np.where(np.isnan(distance), np.where(off > 0, np.inf, 0.0), distance))
        return moved

    def with_error(self, value: Any, errors: Sequence[tuple[Any, Any] | None]) -> Any:
        if not any(errors):
            return value
        total = np.array([error[0] if error else 0.0 for error in errors])
        error = np.array([error[1] if error else 0.0 for error in errors])
        return Approximate(value, total, error) if is_vector(value) else Approximate(value, total[0], error[0])

    def error_of(self, value: Any, lane: int) -> tuple[Any, Any] | None:
        if not isinstance(value, Approximate):
            return None
        _, total, error = self._fields(value)
        return (total[lane], error[lane]) if is_vector(value.value) else (total[()], error[()])


def _is_float(value: Any) -> bool:
    dtype = value.dtype
    return dtype.kind == "f" or (dtype.isbuiltin != 1 and not dtype.name.startswith(("int", "uint")))
