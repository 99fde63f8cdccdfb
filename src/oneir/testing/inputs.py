"""Random arguments for a function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtype import DataType
from ..ir.expr import IntImm, Var, const
from ..ir.visitor import Visitor, post_order_visit
from ..runtime.dtype import numpy_dtype
from ..runtime.error import InvalidValue
from ..tir.buffer import Buffer
from ..tir.expr import BufferLoad
from ..tir.function import PrimFunc
from ..tir.stmt import BufferStore
from ..tir.stmt_functor import substitute

_ODD_EXTENTS = (1, 3, 5, 7, 13)


class _IndexSources(Visitor):
    """The data of buffers whose elements are used as indices."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Var] = set()

    def _look(self, node: Any) -> None:
        for index in node.indices:
            post_order_visit(index, lambda e: self.found.add(e.buffer.data) if isinstance(e, BufferLoad) else None)
        self.generic_visit(node)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self._look(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self._look(node)


def random_inputs(func: PrimFunc, rng: np.random.Generator) -> list[Any]:
    """Arguments for a function: an array for each tensor, a number for each scalar.

    Symbolic extents get small odd values, and the scalar parameters that they name get the same. Floats are normally
    distributed. Integers are small; those that the function uses as indices are below every extent.
    """
    sources = _IndexSources()
    sources(func.body)
    symbols: dict[Var, int] = {}
    for buffer in func.buffer_map.values():
        for dim in (*buffer.shape, *buffer.strides):
            if isinstance(dim, Var) and dim not in symbols:
                symbols[dim] = int(rng.choice(_ODD_EXTENTS))
    shapes = {param: _shape(buffer, symbols) for param, buffer in func.buffer_map.items()}
    smallest = min((d for shape in shapes.values() for d in shape if d > 0), default=1)
    args: list[Any] = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is not None:
            high = smallest if buffer.data in sources.found else None
            args.append(_random_array(buffer.dtype, shapes[param], high, rng))
        elif param in symbols:
            args.append(symbols[param])
        elif param.dtype.is_handle:
            raise InvalidValue(f"no random argument can be made for `{param.name}`, a pointer to an unknown shape")
        else:
            args.append(_random_array(param.dtype, (), None, rng).item())
    return args


def _shape(buffer: Buffer, symbols: dict[Var, int]) -> tuple[int, ...]:
    values = {var: const(value, var.dtype) for var, value in symbols.items()}
    shape = []
    for dim in buffer.shape:
        extent = substitute(dim, values)
        if not isinstance(extent, IntImm):
            from ..arith import Analyzer

            extent = Analyzer().simplify(extent)
        if not isinstance(extent, IntImm):
            raise InvalidValue(f"no extent can be chosen for `{dim}` in the shape of buffer `{buffer.name}`")
        shape.append(extent.value)
    if buffer.dtype.lanes > 1:
        shape.append(buffer.dtype.lanes)
    return tuple(shape)


def _random_array(dtype: DataType, shape: tuple[int, ...], high: int | None, rng: np.random.Generator) -> np.ndarray:
    element = numpy_dtype(str(dtype.element))
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(element)
    if dtype.is_int:
        low, top = (0, high) if high is not None else (0 if dtype.is_uint else -100, 101)
        limit = 1 << (dtype.bits - (0 if dtype.is_uint else 1))
        return np.asarray(rng.integers(max(low, -limit), min(top, limit), shape)).astype(element)
    return np.asarray(rng.standard_normal(shape)).astype(element)
