"""Numbers at which operators break, and exact arithmetic on them: Python's integers, wrapped to their dtypes, and floats
in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from op_cases import FLOATS, wide

from oneir.ir.dtype import DataType


def special(dtype: str) -> np.ndarray:
    """The numbers around which a dtype's operators break; their count is no multiple of any vector's width."""
    kind = DataType(dtype)
    if dtype == "bool":
        return np.array([False, True, True])
    if kind.is_float:
        limits = ml_dtypes.finfo(kind.to_numpy())
        large, tiny, smallest = float(limits.max), float(limits.tiny), float(limits.smallest_subnormal)
        values = [np.nan, np.inf, 0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 100.0, large, tiny, smallest]
        return np.array([s * v for v in values for s in (1, -1)][1:]).astype(kind.to_numpy())
    limits = np.iinfo(dtype)
    if limits.min == 0:
        half = 1 << (limits.bits - 1)
        values = [
            0,
            1,
            2,
            3,
            7,
            limits.bits - 1,
            limits.bits,
            100,
            half - 1,
            half,
            half + 1,
            limits.max - 1,
            limits.max,
        ]
    else:
        values = [
            0,
            1,
            -1,
            2,
            3,
            -3,
            7,
            -7,
            limits.bits - 1,
            limits.bits,
            100,
            -100,
            limits.max,
            limits.max - 1,
            limits.min,
            limits.min + 1,
        ]
    return np.array([*values, 5], dtype)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Each special number with each."""
    values = special(dtype)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def wrapped(value: int, dtype: Any) -> int:
    """The value of an integer of a dtype whose bits are the lowest ones of `value`."""
    limits = np.iinfo(dtype)
    return (int(value) - limits.min) % (1 << limits.bits) + limits.min


def exactly(integers: Callable[..., Any] | None, floats: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """An oracle, element by element of broadcast arrays.

    Integers and bools are Python's, results of one dtype with the first argument are wrapped; floats are arrays of
    float64, with the same function unless another is given.
    """

    def computed(*arrays: Any) -> Any:
        dtype = arrays[0].dtype
        if DataType(dtype.name).is_float:
            with np.errstate(all="ignore"):
                return np.asarray((floats or integers)(*map(wide, arrays)))
        objects = np.broadcast_arrays(*[a.astype(object) for a in arrays])
        found = np.array([integers(*values) for values in zip(*[a.ravel() for a in objects], strict=True)], object)
        if dtype.kind == "b" or (found.size and isinstance(found[0], bool)):
            return found.astype(bool).reshape(objects[0].shape)
        return np.array([wrapped(v, dtype) for v in found], dtype).reshape(objects[0].shape)

    return computed


def exact(x: np.ndarray) -> np.ndarray:
    """Integers as Python's; floats as float64."""
    return wide(x) if x.dtype.name in FLOATS else x.astype(object)


def wrap(values: Any, dtype: np.dtype) -> np.ndarray:
    """Python's integers in a dtype; floats as they are."""
    if dtype.name in FLOATS:
        return np.asarray(values)
    values = np.asarray(values, object)
    return np.array([wrapped(v, dtype) for v in values.ravel()], dtype).reshape(values.shape)
