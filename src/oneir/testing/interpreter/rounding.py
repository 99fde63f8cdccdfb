"""How far the floats of a graph may be off: it runs again and again with every rounding done differently.

Correct implementations differ in what they round: they add in another order, contract `a * b + c`, compute exp to a few
units in the last place. `Nudged` moves each float that an operator computes by a random part of what this can cause,
and the tolerance of a result is `SPREAD` times the root mean square of how far it then moves. No assumption is made of
what an operator computes:

- an elementwise operator's results move by up to 4 eps, relatively
- one that moves data only is exact
- any other one may add up n values, and sums are as exact as if each summand had an error of n eps; so its arguments
move by that, where n is estimated from the shapes of the arguments and the result
- the results of loops move by what `ApproximateArithmetic` finds while running them, which is much more exact

Integers and truth values that change on the way (an argmax, a comparison) may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.op import Op
from ...relax.operator_facts import OpPattern, TOpPattern
from ...runtime.object import ShapeTuple
from ...runtime.tensor import Tensor
from .approximate import CALL_TOLERANCE, ApproximateArithmetic, precision
from .arithmetic import Arithmetic

RUNS = 5
SPREAD = 16.0
"""With five runs, one spread in 400,000 would be found 16 times too small."""


class Exact:
    """Every operator computes what its reference computes."""

    arithmetic: Arithmetic = Arithmetic()

    def arguments(self, op: Op, args: Sequence[Any], info: Any) -> list[Any]:
        """The arguments (arrays, and values of other kinds) that an operator computes its result from."""
        return list(args)

    def result(self, op: Op | None, value: Any) -> Any:
        """What an operator's result becomes."""
        return value

    def written(self, array: np.ndarray, tolerance: np.ndarray | None) -> None:
        """Changes in place what loops wrote, which may be off by a tolerance."""


_MOVES = (OpPattern.INJECTIVE, OpPattern.TUPLE, OpPattern.OPAQUE)
"""Patterns of operators that move or compare elements, of which nothing is rounded."""


class Nudged(Exact):
    """Every float that is computed moves by a random part of what it may be off by."""

    arithmetic = ApproximateArithmetic()

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)

    def arguments(self, op: Op, args: Sequence[Any], info: Any) -> list[Any]:
        pattern = TOpPattern.of(op)
        if pattern in (OpPattern.ELEMENTWISE, OpPattern.BROADCAST, *_MOVES):
            return list(args)
        length = _summands(args, info)
        return [self._nudged(arg, length) for arg in args]

    def result(self, op: Op | None, value: Any) -> Any:
        if op is not None and TOpPattern.of(op) in _MOVES:
            return value
        return self._nudged(value, CALL_TOLERANCE)

    def _nudged(self, value: Any, eps: float) -> Any:
        if isinstance(value, (tuple, list)) and not isinstance(value, ShapeTuple):
            return tuple(self._nudged(v, eps) for v in value)
        if isinstance(value, np.ndarray) and is_float(value):
            wide = value.astype(np.float64)
            wide += np.abs(wide) * (eps * precision(value.dtype)[0]) * self.random.uniform(-1, 1, value.shape)
            return np.where(np.isfinite(wide), wide, value.astype(np.float64)).astype(value.dtype)
        return value

    def written(self, array: np.ndarray, tolerance: np.ndarray | None) -> None:
        if tolerance is not None and tolerance.any():
            # What may be anything is NaN: so is, then, what follows from it.
            moved = array.astype(np.float64) + tolerance * self.random.uniform(-1, 1, array.shape)
            array[...] = np.where(np.isinf(tolerance), np.nan, moved).astype(array.dtype)


def is_float(array: np.ndarray) -> bool:
    """Whether an array holds floats, those of ml_dtypes included."""
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def _summands(args: Sequence[Any], info: Any) -> float:
    """About how many values an operator adds up for an element of its result; at least 4.

    An element of a matrix product of (m, k) and (k, n) needs k products: the root of mk * kn / mn.
    """
    flat = [f for a in args for f in (a if isinstance(a, tuple) else (a,))]
    arrays = [a for a in flat if isinstance(a, np.ndarray) and is_float(a) and a.size]
    sizes = sorted((a.size for a in arrays), reverse=True)
    if not sizes:
        return CALL_TOLERANCE
    extents = getattr(info, "extents", None) or ()
    known = [getattr(e, "value", None) for e in extents]
    out = math.prod(k for k in known if isinstance(k, int)) or 1
    pair = math.sqrt(sizes[0] * sizes[1] / out) if len(sizes) > 1 else sizes[0] / out
    longest = max(max(a.shape, default=1) for a in arrays)
    return max(CALL_TOLERANCE, longest, math.ceil(pair))


def spread(base: Any, runs: Sequence[Any]) -> Any:
    """The tolerance of each element of a result, given the results of nudged runs: arrays, in tuples as the result is.

    None for values that are no arrays; infinity where runs differ in other elements than floats, or in being finite.
    """
    if isinstance(base, tuple) and not isinstance(base, ShapeTuple):
        return tuple(spread(b, [run[i] for run in runs]) for i, b in enumerate(base))
    if not isinstance(base, np.ndarray):
        return None
    if any(not isinstance(run, np.ndarray) or run.shape != base.shape for run in runs):
        return np.full(base.shape, np.inf)
    if not is_float(base):
        same = np.logical_and.reduce([run == base for run in runs])
        return np.where(same, 0.0, np.inf)
    wide = base.astype(np.float64)
    with np.errstate(all="ignore"):
        moves = np.stack([_distance(run.astype(np.float64), wide) for run in runs])
        eps, smallest, _ = precision(base.dtype)
        return SPREAD * np.sqrt(np.mean(moves**2, axis=0)) + CALL_TOLERANCE * (eps * _finite(np.abs(wide)) + smallest)


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))


def _finite(a: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(a), a, 0.0)


def as_arrays(value: Any) -> Any:
    """A value with arrays, over copies of their memory, in the place of tensors."""
    if isinstance(value, (tuple, list)) and not isinstance(value, ShapeTuple):
        return tuple(as_arrays(v) for v in value)
    return value.numpy() if isinstance(value, Tensor) else value
