"""Values of graphs: what they are in Python, and whether they are what the program says.

A tensor is a `Tensor`, a shape a `ShapeTuple`, a tuple of values a `tuple`, a number Python's; a function is anything
that can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr, Var
from ...relax.analysis import definable_tir_vars_in_struct_info
from ...relax.struct_info import (
    VOID,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ...runtime.dtype import numpy_dtype
from ...runtime.object import ShapeTuple
from ...runtime.tensor import Tensor, as_array, wrap_array
from .memory import Violation, storage_dtype

UNWRITTEN = 0xA5
"""What fresh memory is filled with; as a number, no plausible value."""


class Killed:
    """What a variable holds after its value was killed."""


def allocate(shape: Iterable[int], dtype: str) -> Tensor:
    """A tensor of which nothing was written yet."""
    shape = tuple(shape)
    element = numpy_dtype(str(dtype))
    if min(shape, default=0) < 0:
        raise Violation(f"a tensor of the shape {shape} cannot be made")
    count = int(np.prod(shape, dtype=np.int64))
    return wrap_array(np.full(count * element.itemsize, UNWRITTEN, np.uint8).view(element).reshape(shape))


def is_tuple(value: Any) -> bool:
    """Whether a value is a tuple of values."""
    return isinstance(value, (tuple, list)) and not isinstance(value, ShapeTuple)


def argument(value: Any, info: StructInfo | None) -> Any:
    """What a caller passes as a value of the program; arrays are shared, not copied."""
    if isinstance(info, ShapeStructInfo) and isinstance(value, (tuple, list)):
        return ShapeTuple(int(extent) for extent in value)
    if is_tuple(value):
        fields = info.fields if isinstance(info, TupleStructInfo) else ()
        infos = [*fields, *[None] * (len(value) - len(fields))]
        return tuple(argument(v, i) for v, i in zip(value, infos, strict=False))
    if isinstance(value, np.ndarray):
        return wrap_array(value)
    if isinstance(value, np.generic):
        return wrap_array(np.asarray(value)) if isinstance(info, TensorStructInfo) else value.item()
    if not isinstance(value, Tensor) and hasattr(value, "__dlpack__"):
        return wrap_array(as_array(value))
    return value


def result(value: Any) -> Any:
    """A value of the program as callers get it: arrays for tensors, over the same memory."""
    if is_tuple(value):
        return tuple(result(field) for field in value)
    return value._view() if isinstance(value, Tensor) else value


def computed(value: Any, info: StructInfo | None) -> Any:
    """What a Python function returned as a value of the program, in the form that `info` declares."""
    if isinstance(value, Tensor) or value is None:
        return value
    if isinstance(info, TensorStructInfo) and isinstance(value, (np.ndarray, np.generic)):
        return wrap_array(np.array(value, order="C"))
    if isinstance(info, ShapeStructInfo) and isinstance(value, (tuple, list)):
        return ShapeTuple(int(extent) for extent in value)
    if isinstance(info, TupleStructInfo) and is_tuple(value) and len(value) == len(info.fields):
        return tuple(computed(v, i) for v, i in zip(value, info.fields, strict=True))
    if is_tuple(value):
        return tuple(computed(v, None) for v in value)
    if isinstance(value, np.ndarray):
        return wrap_array(np.array(value, order="C"))
    return value.item() if isinstance(value, np.generic) else value


def described(value: Any) -> str:
    """A value as messages show it: its kind, dtype and shape, without its elements."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, ShapeTuple):
        return f"the shape {tuple(value)}"
    if is_tuple(value):
        return f"a tuple of {len(value)} values"
    if callable(value):
        return "a function"
    return f"{value!r:.60}"


class Agreement:
    """Compares values with struct info, given the values of symbolic variables.

    `symbols` maps them to NumPy integers and is added to; `evaluate` gives the value of an extent, `variable` that of a
    graph variable.
    """

    def __init__(self, symbols: dict[Any, Any], evaluate: Callable[[PrimExpr], Any], variable: Callable[[Any], Any]):
        self.symbols, self.evaluate, self.variable = symbols, evaluate, variable

    def define(self, value: Any, info: StructInfo | None) -> None:
        """Gives the symbolic variables in `info` that have no value yet the value that they have here."""
        if isinstance(info, TupleStructInfo):
            if is_tuple(value):
                for v, i in zip(value, info.fields, strict=False):
                    self.define(v, i)
        elif info is not None and definable_tir_vars_in_struct_info(info):
            if isinstance(info, TensorStructInfo) and isinstance(value, Tensor):
                self._define(info.extents or (), value.shape)
            elif isinstance(info, ShapeStructInfo) and isinstance(value, ShapeTuple):
                self._define(info.values or (), value)
            elif isinstance(info, PrimStructInfo) and isinstance(value, (int, float)):
                self._define([info.value], [value])

    def _define(self, extents: Iterable[Any], values: Iterable[Any]) -> None:
        for extent, value in zip(extents, values, strict=False):
            if isinstance(extent, Var) and extent not in self.symbols:
                self.symbols[extent] = storage_dtype(extent.dtype).type(value)

    def check(self, value: Any, info: StructInfo | None, what: str) -> None:
        """Raises `Violation` if a value is not what `info` says."""
        problem = self._problem(value, info)
        if problem is not None:
            raise Violation(f"{what}: {problem}")

    def _problem(self, value: Any, info: StructInfo | None) -> str | None:
        if isinstance(info, TensorStructInfo):
            return self._tensor(value, info)
        if isinstance(info, ShapeStructInfo):
            if not isinstance(value, ShapeTuple):
                return f"expected a shape, found {described(value)}"
            expected = None if info.values is None else tuple(int(self.evaluate(v)) for v in info.values)
            if (expected is not None and expected != tuple(value)) or info.ndim not in (-1, len(value)):
                wanted = f"{info.ndim} extents" if expected is None else f"the shape {expected}{_written(info.values)}"
                return f"expected {wanted}, found {described(value)}"
        elif isinstance(info, PrimStructInfo):
            return self._number(value, info)
        elif isinstance(info, TupleStructInfo):
            # A function of the runtime that returns nothing returns None.
            fields: Any = () if value is None else value
            if not is_tuple(fields) or len(fields) != len(info.fields):
                return f"expected a tuple of {len(info.fields)} values, found {described(value)}"
            for position, (v, i) in enumerate(zip(fields, info.fields, strict=True)):
                problem = self._problem(v, i)
                if problem is not None:
                    return f"field {position}: {problem}"
        elif isinstance(info, FuncStructInfo) and not callable(value):
            return f"expected a function, found {described(value)}"
        return None

    def _tensor(self, value: Any, info: TensorStructInfo) -> str | None:
        if not isinstance(value, Tensor):
            return f"expected a tensor, found {described(value)}"
        if info.dtype != VOID and value.dtype != info.dtype:
            return f"expected dtype {info.dtype}, found {value.dtype}"
        if info.ndim not in (-1, value.ndim):
            return f"expected {info.ndim} dimensions, found the shape {value.shape}"
        expected, symbolic = None, info.extents
        if symbolic is not None:
            expected = tuple(int(self.evaluate(extent)) for extent in symbolic)
        elif info.shape is not None:
            expected = tuple(self.variable(info.shape))
        if expected is not None and expected != value.shape:
            return f"expected the shape {expected}{_written(symbolic)}, found {value.shape}"
        return None

    def _number(self, value: Any, info: PrimStructInfo) -> str | None:
        dtype: DataType = info.dtype
        kinds = (int, float) if dtype.is_float else (int,)
        if not isinstance(value, kinds):
            return f"expected a number of dtype {dtype}, found {described(value)}"
        if info.value is not None:
            expected = self.evaluate(info.value).item()
            if expected != value and expected == expected:
                return f"expected the number {expected}{_written([info.value])}, found {value}"
        return None


def _written(symbolic: Any) -> str:
    """The extents of the program, for a message, where they say more than their values."""
    if symbolic is None or all(isinstance(extent, IntImm) for extent in symbolic):
        return ""
    texts = [str(extent.value) if isinstance(extent, IntImm) else str(extent) for extent in symbolic]
    return f" (that is, {', '.join(texts)})"
