"""Statements of a script that state a fact about the function or block around them.

A `Note` is what such a call gives; the parser applies it at once, and the call's value is what `apply` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Ramp, Range, Var, const
from ...ir.type import Type
from ...runtime.error import InvalidValue, ShapeMismatch, TypeMismatch
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar, IterVarType
from ...tir.stmt import BufferRegion, MatchBufferRegion
from .buffer import make_buffer
from .dtypes import var_of
from .state import FunctionState


class Note:
    """States a fact where it is written; `apply` gives the value of the call."""

    def __init__(self, apply: Callable[[FunctionState], Any]):
        self.apply = apply


def arg(name: str, obj: Any) -> Note:
    """A parameter of the function: a variable, or a buffer."""

    def apply(state: FunctionState) -> Any:
        if isinstance(obj, Buffer):
            handle = Var(f"{name}_handle", "handle")
            state.params.append(handle)
            state.buffer_map[handle] = obj
        elif isinstance(obj, Var):
            state.params.append(obj)
        else:
            raise TypeMismatch(
                f"parameter `{name}` expects an annotation such as T.int32, T.handle or "
                f'T.Buffer((128,), "float32"), found {obj!r}'
            )
        name_fresh(obj, name)
        return obj

    return Note(apply)


def func_name(name: str) -> Note:
    """The function's name."""
    return Note(lambda state: setattr(state, "name", name))


def func_attr(attrs: Mapping[str, Any]) -> Note:
    """Attributes of the function."""

    def apply(state: FunctionState) -> None:
        if state.attrs is not None:
            raise InvalidValue("T.func_attr is stated already for this function; put all attributes into one")
        state.attrs = dict(attrs)

    return Note(apply)


def func_ret(ret_type: Any) -> Note:
    """The type of the function's result."""

    def apply(state: FunctionState) -> None:
        state.ret_type = as_type(ret_type)

    return Note(apply)


def as_type(value: Any) -> Type | None:
    """A result's type from an annotation: None, T.int32, "int32" or a type."""
    if value is None or isinstance(value, Type):
        return value
    return var_of(value).type_annotation


def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: str = "float32",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "default",
    axis_separators: Any = None,
) -> Note:
    """A buffer for a parameter of the function, or, in a block, a view of a region of another buffer."""
    if shape is None:
        if not isinstance(param, BufferRegion):
            raise InvalidValue("T.match_buffer of a parameter expects the shape")
        shape, dtype = [r.extent for r in param.region], param.buffer.dtype
    buffer = make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators
    )

    def apply(state: FunctionState) -> Buffer:
        if isinstance(param, Var):
            if not any(p is param for p in state.params):
                raise InvalidValue(f"T.match_buffer expects a parameter of the function or a region, found `{param}`")
            state.buffer_map[param] = buffer
        else:
            block = state.block("T.match_buffer of a region")
            region = as_region(param)
            _check_view(buffer, region)
            block.match_buffers.append(MatchBufferRegion(buffer, region))
        return buffer

    return Note(apply)


def _check_view(buffer: Buffer, region: BufferRegion) -> None:
    """A view of a region has its extents; leading ones of 1 may be left out."""
    extents = [getattr(r.extent, "value", None) for r in region.region]
    shape = [getattr(extent, "value", None) for extent in buffer.shape]
    left_out = len(extents) - len(shape)
    pairs = [] if left_out < 0 else zip(extents, [1] * left_out + shape, strict=True)
    if left_out < 0 or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ShapeMismatch(f"a view of {region} has its extents, found the shape {buffer.shape}")


def alloc_buffer(
    shape: Any,
    dtype: str = "float32",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "default",
    axis_separators: Any = None,
) -> Note:
    """Memory of the block around it, or of the function."""
    buffer = make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators
    )

    def apply(state: FunctionState) -> Buffer:
        (state.blocks[-1] if state.blocks else state).alloc_buffers.append(buffer)
        return buffer

    return Note(apply)


def where(predicate: Any) -> Note:
    """The condition under which the block runs."""

    def apply(state: FunctionState) -> None:
        block = state.block("T.where")
        if block.predicate is not None:
            raise InvalidValue(f"block `{block.name}` has a T.where already; join the conditions with T.And")
        block.predicate = ops.as_bool(predicate)

    return Note(apply)


def as_region(value: Any) -> BufferRegion:
    """A region from a region, from an element or vector of elements, or from a whole buffer."""
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, Buffer):
        return BufferRegion.full(value)
    if not isinstance(value, BufferLoad):
        raise TypeMismatch(f"expected a buffer's region such as `A[0:16, i]`, found {value!r}")
    region = []
    for index in value.indices:
        if isinstance(index, Ramp):
            region.append(Range.from_min_extent(index.base, ops.multiply(index.stride, index.lanes)))
        else:
            region.append(Range.from_min_extent(index, const(1, index.dtype)))
    return BufferRegion(value.buffer, region)


def _regions(name: str, field: str, slices: tuple[Any, ...]) -> Note:
    values = slices[0] if len(slices) == 1 and isinstance(slices[0], (list, tuple)) else slices
    regions = [as_region(v) for v in values]

    def apply(state: FunctionState) -> None:
        block = state.block(f"T.{name}")
        if getattr(block, field) is not None:
            raise InvalidValue(f"block `{block.name}` has a T.{name} already; put all regions into one")
        setattr(block, field, regions)

    return Note(apply)


def reads(*buffer_slices: Any) -> Note:
    """What the block reads."""
    return _regions("reads", "reads", buffer_slices)


def writes(*buffer_slices: Any) -> Note:
    """What the block writes."""
    return _regions("writes", "writes", buffer_slices)


def block_attr(attrs: Mapping[str, Any]) -> Note:
    """Annotations of the block."""

    def apply(state: FunctionState) -> None:
        block = state.block("T.block_attr")
        if block.annotations is not None:
            raise InvalidValue(f"block `{block.name}` has a T.block_attr already; put all annotations into one")
        block.annotations = dict(attrs)

    return Note(apply)


def env_thread(thread_tag: str, dtype: str = "int32") -> Note:
    """The index of a thread whose extent `T.launch_thread` will state."""

    def apply(state: FunctionState) -> Var:
        var = Var("", dtype)
        state.threads[var] = IterVar(None, var, IterVarType.ThreadIndex, thread_tag)
        return var

    return Note(apply)


# -- names --


def name_fresh(value: Any, name: str) -> None:
    """Names a variable or buffer that has just been made; what has a name keeps it."""
    if isinstance(value, IterVar):
        value = value.var
    if isinstance(value, Var):
        if not value.name:
            value.name = name
    elif isinstance(value, Buffer) and not value.name:
        value.name = name
        for var, suffix in (
            (value.data, ""),
            (value.elem_offset, "_elem_offset"),
            *((stride, f"_s{i}") for i, stride in enumerate(value.strides)),
        ):
            if isinstance(var, Var) and var.name in ("", "_elem_offset"):
                var.name = name + suffix
