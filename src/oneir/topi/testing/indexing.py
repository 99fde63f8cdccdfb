"""Elements taken and written, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.error import InvalidValue


def gather_python(data: np.ndarray, axis: int, indices: np.ndarray) -> np.ndarray:
    """The elements along an axis that integers of as many dimensions name."""
    return np.take_along_axis(data, indices.astype("int64"), axis)


def gather_nd_python(a_np: np.ndarray, indices_np: np.ndarray) -> np.ndarray:
    """The elements at places whose coordinates the first dimension of the indices has."""
    return a_np[tuple(indices_np.astype("int64"))]


def one_hot(indices: np.ndarray, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> np.ndarray:
    """A new axis with `on_value` where the index is, `off_value` elsewhere; an index outside is nowhere."""
    hot = np.expand_dims(indices, -1) == np.arange(depth)
    return np.moveaxis(np.where(hot, on_value, off_value), -1, axis).astype(dtype)


def searchsorted_ref(sorted_sequence: np.ndarray, values: np.ndarray, right: bool, out_dtype: str) -> np.ndarray:
    """Where each value belongs in the ascending last dimension that has the same place, or in the only one."""
    side = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side).astype(out_dtype)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    wanted = values.reshape(-1, values.shape[-1])
    found = [np.searchsorted(row, v, side) for row, v in zip(rows, wanted, strict=True)]
    return np.array(found).reshape(values.shape).astype(out_dtype)


def sequence_mask(data: np.ndarray, valid_length: np.ndarray, mask_value: float, axis: int) -> np.ndarray:
    """Time along axis 0 or 1, the batch along the other: what is after a sequence's length becomes `mask_value`."""
    times = np.arange(data.shape[axis])
    valid = times[:, None] < valid_length[None, :] if axis == 0 else times[None, :] < valid_length[:, None]
    return np.where(valid.reshape(*valid.shape, *[1] * (data.ndim - 2)), data, mask_value).astype(data.dtype)


def slice_axis_python(data: np.ndarray, axis: int, begin: int, end: int | None = None) -> np.ndarray:
    """A slice of one dimension."""
    return data[tuple(slice(begin, end) if i == axis % data.ndim else slice(None) for i in range(data.ndim))]


def _slices(begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any] | None, sizes: bool) -> tuple[slice, ...]:
    slices = []
    for i in range(max(len(begin), len(end))):
        first = begin[i] if i < len(begin) else None
        last = end[i] if i < len(end) else None
        step = strides[i] if strides is not None and i < len(strides) and not sizes else None
        if sizes and last is not None:
            last = None if last < 0 else (first or 0) + last
        slices.append(slice(first, last, step))
    return tuple(slices)


def strided_slice_python(
    data: np.ndarray,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[Any] | None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> np.ndarray:
    """Slices of the first dimensions, or of `axes`. With `slice_mode="size"`, `end` has lengths, -1 for all."""
    if slice_mode not in ("end", "size"):
        raise InvalidValue(f'expected slice_mode "end" or "size", found {slice_mode!r}')
    parts = _slices(begin, end, strides, slice_mode == "size")
    if axes is None:
        return data[parts]
    whole = [slice(None)] * data.ndim
    for axis, part in zip(axes, parts, strict=True):
        whole[axis] = part
    return data[tuple(whole)]


def strided_set_python(
    data: np.ndarray, v: np.ndarray, begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any] | None
) -> np.ndarray:
    """A copy in which slices of the first dimensions are what `v` is."""
    result = data.copy()
    result[_slices(begin, end, strides, False)] = v
    return result


def matrix_set_diag(
    input_np: np.ndarray, diagonal: np.ndarray, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> np.ndarray:
    """Matrices with the diagonals from `k[0]` to `k[1]` replaced, the highest being the first row of `diagonal`.

    `align` says for those above and below the main one at which end of its row a shorter diagonal lies.
    """
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    above, below = align.split("_")
    result = input_np.copy()
    rows, columns = input_np.shape[-2:]
    longest = diagonal.shape[-1]
    for number in range(low, high + 1):
        length = min(rows + min(number, 0), columns - max(number, 0))
        row = diagonal if low == high else diagonal[..., high - number, :]
        right = (above if number >= 0 else below) == "RIGHT"
        for i in range(length):
            place = longest - length + i if right else i
            result[..., i - min(number, 0), i + max(number, 0)] = row[..., place]
    return result
