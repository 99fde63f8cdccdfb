"""Tensors as the Open Inference Protocol writes them: datatypes, and values as JSON or as bytes.

Bytes are little-endian, in row-major order. Values in JSON are one list, or lists in lists as the shape says. Numbers
that JSON lacks are written as Python's `json` and other servers of the protocol do: NaN, Infinity, -Infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..runtime.dtype import numpy_dtype
from .http import HTTPError

DATATYPES = {
    "BOOL": "bool",
    **{f"{kind}{bits}": f"{kind.lower()}{bits}" for kind in ("UINT", "INT") for bits in (8, 16, 32, 64)},
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
}
"""The dtype of each of the protocol's datatypes. No program takes its other one, BYTES, which is texts."""

OF_DTYPE = {dtype: name for name, dtype in DATATYPES.items()}
"""The datatype of each dtype that has one."""


def from_bytes(where: str, data: memoryview, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of bytes; it shares their memory where that is aligned. Raises `HTTPError` if there are too many or few.

    `where` is how messages name the tensor.
    """
    expected = math.prod(shape) * numpy_dtype(dtype).itemsize
    if len(data) != expected:
        raise HTTPError(400, f"{where}: {dtype}{list(shape)} has {expected} bytes, found {len(data)}")
    array = np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
    if dtype == "bool" and array.view(np.uint8).max(initial=0) > 1:
        raise HTTPError(400, f"{where}: the bytes of BOOL are 0 and 1, found {int(array.view(np.uint8).max())}")
    return array if array.flags.aligned else array.copy()


def from_json(where: str, data: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of JSON values. Raises `HTTPError` for values of another kind, out of range, or too many or few."""
    if not isinstance(data, list):
        raise HTTPError(400, f"{where}: expected its values as a list, found {_shown(data)}")
    try:
        found = np.asarray(data)
    except (ValueError, OverflowError):
        raise HTTPError(400, f"{where}: its lists differ in length; expected the shape {list(shape)}") from None
    if found.ndim != 1 and found.shape != shape:
        raise HTTPError(400, f"{where}: expected the shape {list(shape)}, or one list, found {list(found.shape)}")
    if found.size != math.prod(shape):
        raise HTTPError(400, f"{where}: the shape {list(shape)} has {math.prod(shape)} values, found {found.size}")
    if not found.size:
        return np.zeros(shape, numpy_dtype(dtype))
    wanted = numpy_dtype(dtype)
    if wanted.kind in "iu":
        return _integers(where, data, found, wanted).astype(wanted).reshape(shape)
    kinds, what = ("b", "true or false") if wanted.kind == "b" else ("iuf", "numbers")
    if found.dtype.kind not in kinds:
        raise HTTPError(400, f"{where}: expected {what}, found {_odd_one(data, kinds)}")
    with np.errstate(over="ignore"):
        return found.astype(wanted).reshape(shape)


def _integers(where: str, data: list[Any], found: np.ndarray, wanted: np.dtype) -> np.ndarray:
    if found.dtype.kind in "fO":
        # So NumPy takes integers of which some exceed int64, too.
        exact = np.asarray(data, object)
        if all(type(value) is int for value in exact.reshape(-1)):
            found = exact
        else:
            raise HTTPError(400, f"{where}: expected integers, found {_odd_one(data, 'iu')}")
    elif found.dtype.kind not in "iu":
        raise HTTPError(400, f"{where}: expected integers, found {_odd_one(data, 'iu')}")
    least, most = int(found.min()), int(found.max())
    if least < np.iinfo(wanted).min or most > np.iinfo(wanted).max:
        wrong = least if least < np.iinfo(wanted).min else most
        raise HTTPError(400, f"{where}: expected values of {wanted.name}, found {wrong}")
    return found


def to_bytes(array: np.ndarray) -> memoryview:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def to_json(array: np.ndarray) -> list[Any]:
    """The values of an array, one after the other."""
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).reshape(-1).tolist()


def _odd_one(data: list[Any], kinds: str) -> str:
    """The first of the values in lists that is of another kind."""
    return next((_shown(value) for value in _leaves(data) if np.asarray(value).dtype.kind not in kinds), "other values")


def _leaves(data: list[Any]) -> Iterator[Any]:
    """The values in lists in lists, whose depth is at most that of an array."""
    for value in data:
        yield from _leaves(value) if isinstance(value, list) else (value,)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
