"""What operations do to values, as docs/architecture.md defines them.

A value is a NumPy scalar, or a one-dimensional NumPy array for a vector, of the exact dtype. Integers wrap as NumPy's
do; what NumPy does not define, or defines differently, is written here with Python's integers, lane by lane.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir import expr as e
from ...ir import operators as ops
from ...ir.dtype import DataType
from .memory import storage_dtype

_WRAPPING: dict[type, Callable[[Any, Any], Any]] = {
    e.Add: operator.add,
    e.Sub: operator.sub,
    e.Mul: operator.mul,
    e.Min: np.minimum,
    e.Max: np.maximum,
}
_INTEGER_DIVISION: dict[type, Callable[[int, int], int]] = {
    e.Div: ops.trunc_div,
    e.Mod: ops.trunc_mod,
    e.FloorDiv: lambda a, b: a // b if b else 0,
    e.FloorMod: lambda a, b: a % b if b else a,
}
_FLOOR_DIVISION: dict[type, Callable[[Any, Any], Any]] = {e.FloorDiv: operator.floordiv, e.FloorMod: operator.mod}
"""What NumPy does as Python does where the divisor is positive."""
_FLOAT_DIVISION: dict[type, Callable[[Any, Any], Any]] = {
    e.Div: operator.truediv,
    e.Mod: np.fmod,
    e.FloorDiv: lambda a, b: np.floor(a / b),
    e.FloorMod: lambda a, b: a - b * np.floor(a / b),
}
_COMPARISON: dict[type, Callable[[Any, Any], Any]] = {
    e.EQ: operator.eq,
    e.NE: operator.ne,
    e.LT: operator.lt,
    e.LE: operator.le,
    e.GT: operator.gt,
    e.GE: operator.ge,
}


def is_vector(value: Any) -> bool:
    """Whether a value has lanes."""
    return isinstance(value, np.ndarray)


def lanewise(function: Callable[..., int], dtype: DataType, *operands: Any) -> Any:
    """A function of Python integers, applied to each lane; the results wrap to `dtype`."""
    element = storage_dtype(dtype)
    if not is_vector(operands[0]):
        return element.type(ops.wrap_int(function(*map(int, operands)), dtype))
    lanes = zip(*(operand.tolist() for operand in operands), strict=True)
    return np.array([ops.wrap_int(function(*map(int, lane)), dtype) for lane in lanes], element)


IndexFunction = Callable[[Mapping[e.Var, Any]], Any]


def index_function(node: e.PrimExpr, known: dict[e.PrimExpr, IndexFunction | None]) -> IndexFunction | None:
    """A function of the values of variables that computes an index as `Arithmetic.binary` does, without visiting its
    nodes each time; None for expressions of more than variables, constants and arithmetic.

    It raises `KeyError` where a variable has no value. `known` are the functions of expressions that have been seen.
    """
    found: Any = known.get(node, known)
    if found is known:
        found = known[node] = _new_index_function(node, known) if node.dtype.is_index else None
    return found


def _new_index_function(node: e.PrimExpr, known: dict[e.PrimExpr, IndexFunction | None]) -> IndexFunction | None:
    if isinstance(node, e.Var):
        return operator.itemgetter(node)
    if isinstance(node, e.IntImm):
        constant = storage_dtype(node.dtype).type(node.value)
        return lambda values: constant
    if isinstance(node, e.BinaryOpExpr):
        a, b = index_function(node.a, known), index_function(node.b, known)
        if a is not None and b is not None:
            return _index_operation(node, a, b)
    return None


def _index_operation(node: e.BinaryOpExpr, a: IndexFunction, b: IndexFunction) -> IndexFunction:
    kind, dtype = type(node), node.dtype
    operation = _WRAPPING.get(kind)
    if isinstance(node.b, e.IntImm):
        constant = storage_dtype(dtype).type(node.b.value)
        if operation is None and constant > 0:
            operation = _FLOOR_DIVISION.get(kind)
        if operation is not None:
            return lambda values: operation(a(values), constant)
    if operation is not None:
        return lambda values: operation(a(values), b(values))
    division = _INTEGER_DIVISION[kind]
    return lambda values: lanewise(division, dtype, a(values), b(values))


class Arithmetic:
    """The exact arithmetic of each dtype."""

    def constant(self, dtype: DataType, value: Any) -> Any:
        """A scalar of a dtype."""
        return storage_dtype(dtype).type(value)

    def plain(self, value: Any) -> Any:
        """A value as NumPy has it, without error bounds."""
        return value

    def binary(self, kind: type, dtype: DataType, a: Any, b: Any) -> Any:
        """a + b, a - b, a * b, min, max and the divisions."""
        function = _WRAPPING.get(kind)
        if function is not None:
            if dtype.is_bool and kind not in (e.Min, e.Max):
                return lanewise(function, dtype, a, b)
            return function(a, b)
        if dtype.is_float:
            return _FLOAT_DIVISION[kind](a, b).astype(storage_dtype(dtype))
        return lanewise(_INTEGER_DIVISION[kind], dtype, a, b)

    def compare(self, kind: type, a: Any, b: Any) -> Any:
        """A comparison; of pointers, by identity of what they point to."""
        return _COMPARISON[kind](a, b)

    def select(self, condition: Any, t: Any, f: Any) -> Any:
        """t where the condition holds, else f."""
        if is_vector(condition):
            return np.where(condition, t, f)
        return t if condition else f

    def broadcast(self, value: Any, lanes: int) -> Any:
        """The same value in all lanes."""
        return np.full(lanes, value)

    def shuffle(self, vectors: Sequence[Any], indices: Sequence[int]) -> Any:
        """Lanes out of all lanes of several vectors laid end to end."""
        lanes = np.concatenate([np.atleast_1d(v) for v in vectors])
        return lanes[indices[0]] if len(indices) == 1 else lanes[list(indices)]

    def cast(self, value: Any, source: DataType, target: DataType) -> Any:
        """A number as another dtype."""
        if target.is_bool:
            return value != 0
        wanted = storage_dtype(target)
        if target.is_int and source.is_float:
            return _saturated(value, target)
        if target.is_int and wanted.isbuiltin != 1:
            return lanewise(lambda x: x, target, value)
        if target.is_float and source.element == "float64":
            return ops.round_once(value, wanted)
        return value.astype(wanted)

    def apply(
        self, reference: Callable[..., Any], dtype: DataType, args: Sequence[Any], flushes_subnormals: bool = False
    ) -> Any:
        """A pure function, given by its reference over NumPy arrays; one that flushes may give 0 for small results."""
        result = np.asarray(reference(*args))
        wanted = storage_dtype(dtype)
        if result.dtype != wanted:
            result = result.astype(wanted)
        return result if result.ndim else result[()]

    def with_error(self, value: Any, errors: Sequence[tuple[Any, Any] | None]) -> Any:
        """A float read from memory, with the error bounds that were stored for its lanes."""
        return value

    def error_of(self, value: Any, lane: int) -> tuple[Any, Any] | None:
        """The error bound to store with one lane of a float; None for none."""
        return None


def _saturated(value: Any, target: DataType) -> Any:
    element = storage_dtype(target)
    if is_vector(value):
        return np.array([ops.float_to_int(float(v), target) for v in value], element)
    return element.type(ops.float_to_int(float(value), target))
