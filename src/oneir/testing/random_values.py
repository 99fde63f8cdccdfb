"""Random extents and elements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..arith import Analyzer
from ..ir.dtype import DataType
from ..ir.expr import IntImm, PrimExpr, Var
from ..runtime.dtype import numpy_dtype
from ..runtime.error import InvalidValue
from ..tir.stmt_functor import substitute

ODD_EXTENTS = (1, 3, 5, 7, 13)
"""What symbolic extents may be."""


def extent_value(extent: PrimExpr, values: Mapping[Var, PrimExpr], where: str) -> int:
    """The value of an extent, given those of variables; raises `InvalidValue` where they do not determine it."""
    known = substitute(extent, values)
    if not isinstance(known, IntImm):
        known = Analyzer().simplify(known)
    if not isinstance(known, IntImm):
        raise InvalidValue(f"no extent can be chosen for `{extent}` in {where}")
    return known.value


def random_array(dtype: DataType, shape: tuple[int, ...], high: int | None, rng: np.random.Generator) -> np.ndarray:
    """Random elements of a dtype; of integers, those below `high`, or small ones of both signs."""
    element = numpy_dtype(str(dtype.element))
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(element)
    if dtype.is_int:
        low, top = (0, high) if high is not None else (0 if dtype.is_uint else -100, 101)
        limit = 1 << (dtype.bits - (0 if dtype.is_uint else 1))
        return np.asarray(rng.integers(max(low, -limit), min(top, limit), shape)).astype(element)
    return np.asarray(rng.standard_normal(shape)).astype(element)
