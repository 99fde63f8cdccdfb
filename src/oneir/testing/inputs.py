"""Random arguments for a function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.expr import Var, const
from ..ir.visitor import Visitor, post_order_visit
from ..relax.expr import Function
from ..runtime.error import InvalidValue
from ..tir.analysis import undefined_vars
from ..tir.buffer import Buffer
from ..tir.expr import BufferLoad
from ..tir.function import PrimFunc
from ..tir.stmt import BufferStore
from .graph_inputs import random_graph_inputs
from .random_values import ODD_EXTENTS, extent_value, random_array


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


def random_inputs(func: PrimFunc | Function, rng: np.random.Generator) -> list[Any]:
    """Arguments for a function: an array for each tensor, a number for each scalar; of a graph, shapes and tuples too.

    Symbolic extents get small odd values, and the scalar parameters that they name get the same. Floats are normally
    distributed. Integers are small; those that the function uses as indices are below every extent. Raises
    `InvalidValue` for a parameter of which too little is known: a pointer, an object, a function.
    """
    return random_graph_inputs(func, rng) if isinstance(func, Function) else _loop_inputs(func, rng)


def _loop_inputs(func: PrimFunc, rng: np.random.Generator) -> list[Any]:
    sources = _IndexSources()
    sources(func.body)
    symbols: dict[Var, int] = {}
    for buffer in func.buffer_map.values():
        for dim in (*buffer.shape, *buffer.strides):
            for var in undefined_vars(dim):
                if var not in symbols and (var is dim or var in func.params):
                    symbols[var] = int(rng.choice(ODD_EXTENTS))
    shapes = {param: _shape(buffer, symbols) for param, buffer in func.buffer_map.items()}
    smallest = min((d for shape in shapes.values() for d in shape if d > 0), default=1)
    args: list[Any] = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is not None:
            high = smallest if buffer.data in sources.found else None
            args.append(random_array(buffer.dtype, shapes[param], high, rng))
        elif param in symbols:
            args.append(symbols[param])
        elif param.dtype.is_handle:
            raise InvalidValue(f"no random argument can be made for `{param.name}`, a pointer to an unknown shape")
        else:
            args.append(random_array(param.dtype, (), None, rng).item())
    return args


def _shape(buffer: Buffer, symbols: dict[Var, int]) -> tuple[int, ...]:
    values = {var: const(value, var.dtype) for var, value in symbols.items()}
    shape = []
    for dim in buffer.shape:
        shape.append(extent_value(dim, values, f"the shape of buffer `{buffer.name}`"))
    if buffer.dtype.lanes > 1:
        shape.append(buffer.dtype.lanes)
    return tuple(shape)
