"""Pooling in NumPy, window by window."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def _spatial(layout: str, ndim: int) -> list[int]:
    """The dimensions that are neither batch nor channels; `layout` may name a block of channels."""
    letters = [c for c in layout if c.isalpha()]
    return [i for i in range(ndim) if letters[i] in "DHW"]


def poolnd_python(
    np_data: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str = "NCHW",
) -> np.ndarray:
    """The largest element ("max") or the mean ("avg") of each window; a window of padding only has 0 as its mean."""
    axes = _spatial(layout, np_data.ndim) if np_data.ndim != 3 else [2 if layout.endswith("W") else 1]
    data = np.moveaxis(np_data, axes, range(-len(axes), 0))
    extents = data.shape[-len(axes) :]
    both = list(zip(padding_before, padding_after, strict=True))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rounded = math.ceil if ceil_mode else math.floor
    out = [
        rounded((n + b + a - span) / s) + 1 for n, (b, a), span, s in zip(extents, both, spans, strides, strict=True)
    ]
    result = np.zeros((*data.shape[: -len(axes)], *out), dtype)
    for place in np.ndindex(*out):
        inside, counted = [], 1
        for p, n, (b, a), k, d, s in zip(place, extents, both, kernel, dilation, strides, strict=True):
            reached = [p * s - b + i * d for i in range(k)]
            inside.append([r for r in reached if 0 <= r < n])
            counted *= sum(r < n + a for r in reached)
        window = data[(..., *np.ix_(*inside))].reshape(*data.shape[: -len(axes)], -1)
        if pool_type == "max":
            result[(..., *place)] = window.max(-1) if window.shape[-1] else np.finfo(dtype).min
        else:
            count = counted if count_include_pad else window.shape[-1]
            result[(..., *place)] = window.sum(-1) / max(count, 1)
    return np.moveaxis(result, range(-len(axes), 0), axes)


def _windows(
    shape: Sequence[int], pool: Sequence[int], strides: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> Iterator[tuple[tuple[int, int], list[int], list[int], int]]:
    """The output's places, with the rows and columns that each one's window reaches and its size with padding."""
    top, left, bottom, right = padding
    rounded = math.ceil if ceil_mode else math.floor
    sides = [(shape[0], top, bottom), (shape[1], left, right)]
    out = [rounded((n + b + a - k) / s) + 1 for (n, b, a), k, s in zip(sides, pool, strides, strict=True)]
    for y, x in np.ndindex(*out):
        reached = [
            range(p * s - b, p * s - b + k) for p, s, (_, b, _), k in zip((y, x), strides, sides, pool, strict=True)
        ]
        rows, columns = ([r for r in span if 0 <= r < n] for span, (n, _, _) in zip(reached, sides, strict=True))
        yield (y, x), rows, columns, pool[0] * pool[1]


def pool_grad_nchw(
    a_np: np.ndarray,
    out_grad_np: np.ndarray,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> np.ndarray:
    """The gradient of a pooling's NCHW input; `padding` is top, left, bottom, right.

    Of several largest elements of a window the first one has the gradient.
    """
    result = np.zeros_like(a_np)
    for (y, x), rows, columns, size in _windows(a_np.shape[2:], pool_size, strides, padding, ceil_mode):
        grad = out_grad_np[:, :, y, x]
        if pool_type == "avg":
            count = size if count_include_pad else max(len(rows) * len(columns), 1)
            result[np.ix_(*map(range, a_np.shape[:2]), rows, columns)] += grad[:, :, None, None] / count
            continue
        window = a_np[np.ix_(*map(range, a_np.shape[:2]), rows, columns)].reshape(*a_np.shape[:2], -1)
        best = window.argmax(-1)
        for n, c in np.ndindex(*a_np.shape[:2]):
            row, column = divmod(int(best[n, c]), len(columns))
            result[n, c, rows[row], columns[column]] += grad[n, c]
    return result


def adaptive_pool(np_data: np.ndarray, out_size: int | Sequence[int], pool_type: str, layout: str) -> Any:
    """The largest element or the mean of windows that divide each dimension into so many."""
    axes = [i for i, letter in enumerate(c for c in layout if c.isalpha()) if letter in "DHW"]
    data = np.moveaxis(np_data, axes, range(-len(axes), 0))
    sizes = [out_size] * len(axes) if isinstance(out_size, int) else list(out_size)
    result = np.zeros((*data.shape[: -len(axes)], *sizes), np_data.dtype)
    for place in np.ndindex(*sizes):
        extents = data.shape[-len(axes) :]
        window = tuple(slice(p * n // s, -(-(p + 1) * n // s)) for p, n, s in zip(place, extents, sizes, strict=True))
        part = data[(..., *window)].reshape(*data.shape[: -len(axes)], -1)
        result[(..., *place)] = part.max(-1) if pool_type == "max" else part.mean(-1)
    return np.moveaxis(result, range(-len(axes), 0), axes)
