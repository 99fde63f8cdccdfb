"""Binding the arguments of a function: to memory, to values, to the symbols in the shapes of its buffers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir import expr as e
from ...runtime.error import ShapeMismatch, TypeMismatch
from ...tir.analysis.symbolic_extents import solve_extent
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from .layout import Layout, row_major
from .memory import Memory, Pointer, bytes_of, storage_dtype, writable_array

if TYPE_CHECKING:
    from .expressions import Evaluator


def bind_parameters(run: Evaluator, func: PrimFunc, args: Sequence[Any], outputs: Collection[int] = ()) -> list[Any]:
    """Gives the parameters of a function their arguments; those in `outputs` count as not yet written.

    Returns the memory behind each argument, None for a number.
    """
    if len(args) != len(func.params):
        names = ", ".join(p.name for p in func.params)
        raise TypeMismatch(f"expected {len(func.params)} arguments ({names}), found {len(args)}")
    known: dict[tuple[int, int], Memory] = {}
    memories: list[Any] = []
    bound: list[tuple[Buffer, tuple[int, ...], tuple[int, ...]]] = []
    for position, (param, arg) in enumerate(zip(func.params, args, strict=True)):
        buffer = func.buffer_map.get(param)
        if buffer is None and not param.dtype.is_handle:
            run.variables[param] = _number(run, param, arg)
            memories.append(None)
            continue
        pointer, shape, strides = _pointer(param, buffer, arg, known, position in outputs)
        run.variables[param] = pointer
        memories.append(None if pointer is None else pointer.memory)
        if buffer is not None:
            run.variables[buffer.data] = pointer
            bound.append((buffer, shape, strides))
    for buffer, shape, strides in bound:
        _bind_symbols(run, buffer, shape, strides)
    for buffer, shape, _ in bound:
        for declared, found in zip(buffer.shape, shape, strict=False):  # a bare pointer has no shape
            solved = solve_extent(declared, e.const(found, "int64"), run.variables)
            if solved is not None:
                run.variables[solved[0]] = storage_dtype(solved[0].dtype).type(solved[1].value)
    for buffer, shape, strides in bound:
        _check_layout(run, buffer, shape, strides)
    return memories


def _number(run: Evaluator, param: e.Var, arg: Any) -> Any:
    value = run.arithmetic.plain(arg)
    if not isinstance(value, (bool, int, float, np.generic)):
        raise TypeMismatch(f"argument `{param.name}`: expected a number ({param.dtype}), found {type(arg).__name__}")
    if isinstance(value, np.generic) and value.dtype == storage_dtype(param.dtype):
        return arg
    return run.arithmetic.constant(param.dtype, value)


def _pointer(param: e.Var, buffer: Buffer | None, arg: Any, known: dict[Any, Memory], is_output: bool) -> Any:
    """The pointer, shape and strides (in elements) of an argument."""
    if isinstance(arg, Pointer) or (arg is None and buffer is None):
        return arg, (), ()
    if arg is None or isinstance(arg, (bool, int, float, str)):
        raise TypeMismatch(f"argument `{param.name}`: expected an array, found {arg!r}")
    array = writable_array(arg)
    name = param.name if buffer is None else buffer.name
    lanes = 1
    if buffer is not None:
        lanes = buffer.dtype.lanes
        if array.dtype != storage_dtype(buffer.dtype.element):
            raise TypeMismatch(f"argument `{name}`: expected dtype {buffer.dtype}, found {array.dtype}")
    place = (array.__array_interface__["data"][0], array.nbytes)
    memory = known.get(place)
    if memory is None:
        scope = "global" if buffer is None else buffer.scope()
        memory = known[place] = Memory(bytes_of(array), name, scope, is_output)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    shape = array.shape
    if lanes > 1:
        shape, strides = shape[:-1], tuple(stride // lanes for stride in strides[:-1])
    dtype = None if buffer is None else buffer.dtype.element
    return Pointer(memory, 0, dtype), shape, strides


def _bind_symbols(run: Evaluator, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if not shape and buffer.shape:
        return  # a bare pointer, which has no shape
    if len(shape) != len(buffer.shape):
        raise ShapeMismatch(
            f"argument `{buffer.name}`: expected {len(buffer.shape)} dimensions {list(buffer.shape)}, found {shape}"
        )
    pairs: list[tuple[Any, int]] = [*zip(buffer.shape, shape, strict=True)]
    if buffer.strides:
        pairs += zip(buffer.strides, strides, strict=True)
    pairs.append((buffer.elem_offset, 0))
    for expr, found in pairs:
        if isinstance(expr, e.Var) and expr not in run.variables:
            run.variables[expr] = storage_dtype(expr.dtype).type(found)


def _check_layout(run: Evaluator, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    layout = run.evaluate_layout(buffer)
    if shape or not buffer.shape:
        if layout.shape != shape:
            raise ShapeMismatch(f"argument `{buffer.name}`: expected the shape {layout.shape}, found {shape}")
        expected = layout.strides if buffer.strides else row_major(shape)
        differs = any(d != 1 and a != b for d, a, b in zip(shape, expected, strides, strict=True))
        if differs and 0 not in shape and buffer.buffer_type != "auto_broadcast":
            raise ShapeMismatch(f"argument `{buffer.name}`: expected the strides {expected}, found {strides}")
    run.layouts[buffer] = Layout(buffer.dtype, layout.shape, layout.strides, layout.offset)
    run.depths[buffer] = 0
