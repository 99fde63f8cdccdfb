"""Buffers: typed, shaped views of memory; their regions and the store of elements.

A = decl_buffer((128, 64), "float32", name="A")
A[i, j]          # BufferLoad
A[i, 0:16]       # BufferLoad of a Ramp: 16 elements
A[0:4, 0:16]     # BufferRegion
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, SupportsInt, TypeGuard

from ..arith.analyzer import Analyzer
from ..ir import operators as ops
from ..ir.container import Array, is_sequence
from ..ir.dtype import DataType
from ..ir.expr import Call, ExprLike, ExprOp, IntImm, PrimExpr, Range, Var, as_expr, const, pointer_to
from ..ir.node import Node, as_array, attr, child, meta
from ..ir.span import SequentialSpan, Span
from ..ir.type import PointerType
from ..runtime.error import InvalidValue, TypeMismatch
from .expr import BufferLoad, access_dtype, expr_array, optional_expr_array, ramp_or_scalar

DEFAULT_ALIGNMENT = 64
"""Bytes to which a buffer's data is aligned unless it says otherwise."""


class DataProducer(Node):
    """Base of the producers that a `ProducerLoad` reads."""


def _as_elem_offset(offset: ExprLike | None, shape: Sequence[PrimExpr] = ()) -> PrimExpr:
    """None is 0, of the dtype that the shape has."""
    if offset is not None:
        return as_expr(offset)
    return const(0, shape[0].dtype if shape and shape[0].dtype.is_int else "int32")


def _as_axes(axes: Iterable[SupportsInt] | None) -> Array[int]:
    return Array(int(axis) for axis in axes or ())


class Buffer(Node, shared=True):
    """A view of memory: the element at `indices` stands `elem_offset + sum(indices * strides)` elements after `data`.

    Without strides the elements lie in row-major order. `data_alignment` is in bytes; `elem_offset` is a multiple of
    `offset_factor` elements. `buffer_type` is "" or "auto_broadcast" (a dimension of extent 1 has stride 0).
    """

    data: Var = child(defines=True)
    dtype: DataType = attr(converter=DataType)
    shape: Array[PrimExpr] = child(converter=expr_array, defines=True)
    strides: Array[PrimExpr] = child(default=(), converter=optional_expr_array, defines=True)
    elem_offset: PrimExpr = child(default=None, converter=_as_elem_offset, deferred=True, defines=True)
    name: str = meta(default="buffer")
    data_alignment: int = DEFAULT_ALIGNMENT
    offset_factor: int = 1
    buffer_type: str = ""
    axis_separators: Array[int] = attr(default=(), converter=_as_axes)
    span: Span | None = meta(default=None)

    READ: ClassVar[int] = 1
    WRITE: ClassVar[int] = 2

    def _derive(self) -> None:
        self.elem_offset = _as_elem_offset(self.elem_offset, self.shape)
        if self.strides and len(self.strides) != len(self.shape):
            raise InvalidValue(f"buffer `{self.name}` has {len(self.shape)} dimensions but {len(self.strides)} strides")
        separators = list(self.axis_separators)
        if separators and (separators != sorted(separators) or separators[0] < 0 or separators[-1] > len(self.shape)):
            raise InvalidValue(
                f"buffer `{self.name}` has the axis separators {separators}; expected numbers of its {len(self.shape)} "
                "dimensions, in ascending order"
            )

    def scope(self) -> str:
        """The memory it lies in: "global", "shared", "local", ..."""
        annotation = self.data.type_annotation
        return (annotation.storage_scope or "global") if isinstance(annotation, PointerType) else "global"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def get_flattened_buffer(self) -> Buffer:
        """The same memory in one dimension, or one for each group of axes between `axis_separators`."""
        if len(self.shape) == 1 and not self.strides:
            return self
        groups = [0, *self.axis_separators, len(self.shape)]
        shape: list[PrimExpr] = []
        for begin, end in itertools.pairwise(groups):
            extent: Any = const(1, self.shape[begin].dtype) if begin < end else const(1, "int32")
            if self.strides and begin < end and begin == 0 and len(groups) == 2:
                extent = _strided_extent(self.shape, self.strides)
            else:
                for dim in self.shape[begin:end]:
                    extent = extent * dim
            shape.append(extent)
        return self.replace(shape=Array(shape), strides=Array(), axis_separators=Array(range(1, len(shape))))

    def offset_of(self, indices: Any) -> Array[PrimExpr]:
        """Where the element at `indices` stands in the flattened buffer, `elem_offset` included, simplified."""
        from ..arith.merge_quotients import merge_quotients

        return Array(merge_quotients(offset) for offset in self.flat_indices(indices))

    def flat_indices(self, indices: Any) -> Array[PrimExpr]:
        """As `offset_of`, in terms of the indices as they are written."""
        indices = expr_array(indices)
        groups = [0, *self.axis_separators, len(self.shape)]
        out: list[PrimExpr] = []
        for begin, end in itertools.pairwise(groups):
            offset: Any = None
            for axis in range(begin, end):
                if self.strides:
                    term = ops.multiply(indices[axis], self.strides[axis])
                    offset = term if offset is None else ops.add(offset, term)
                else:
                    offset = (
                        indices[axis]
                        if offset is None
                        else ops.add(ops.multiply(offset, self.shape[axis]), indices[axis])
                    )
            out.append(const(0, "int32") if offset is None else offset)
        if not (isinstance(self.elem_offset, IntImm) and self.elem_offset.value == 0):
            out[-1] = ops.add(self.elem_offset, out[-1])
        return Array(out)

    def vload(self, begin: Any, dtype: str | None = None, predicate: Any = None) -> PrimExpr:
        """A load of as many elements from `begin` on as `dtype` has lanes."""
        return BufferLoad(self, self._vector_indices(begin, dtype), predicate)

    def vstore(self, begin: Any, value: Any, predicate: Any = None) -> Any:
        """A store of as many elements from `begin` on as `value` has lanes."""
        value = as_expr(value)
        return BufferStore(self, value, self._vector_indices(begin, value.dtype), predicate)

    def _vector_indices(self, begin: Any, dtype: str | None) -> Array[PrimExpr]:
        indices = list(expr_array(begin))
        lanes = DataType(dtype).lanes // self.dtype.lanes if dtype else 1
        if indices and indices[-1].dtype.is_scalar:
            indices[-1] = ramp_or_scalar(indices[-1], lanes)
        return Array(indices)

    def access_ptr(
        self,
        access_mask: int | str,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: Any = 0,
        extent: Any = None,
    ) -> PrimExpr:
        """A pointer to the data from `offset` on, with how the callee accesses it: "r", "w" or "rw" (1, 2 or 3)."""
        if isinstance(access_mask, str):
            access_mask = sum({"r": 1, "w": 2}[c] for c in set(access_mask))
        element = self.dtype.with_lanes(content_lanes)
        size: Any = 1
        for dim in self.shape:
            size = ops.multiply(size, dim)
        if self.strides:
            # Rows may lie further apart than they are long.
            size = ops.multiply(self.strides[0], self.shape[0])
        size = ops.subtract(size, offset) if extent is None else extent
        begin = ops.add(self.elem_offset, offset)
        if content_lanes != 1:
            size, begin = ops.floordiv(size, content_lanes), ops.floordiv(begin, content_lanes)
        element_type = Call(element, "tir.type_annotation", ())
        return Call("handle", "tir.tvm_access_ptr", (element_type, self.data, begin, size, access_mask))

    def __getitem__(self, indices: Any) -> Any:
        items = as_items(indices)
        if not any(isinstance(item, slice) for item in items):
            return BufferLoad(self, items)
        vector = slice_as_vector(self, items)
        if vector is not None:
            return BufferLoad(self, vector)
        return BufferRegion(self, slices_as_region(self, items))

    def __call__(self, *indices: Any) -> Any:
        return self[indices]

    def __iter__(self) -> Any:
        raise InvalidValue(f"buffer `{self.name}` cannot be iterated over; index it: {self.name}[i]")


class BufferRegion(ExprOp, Node):
    """The part of a buffer that a range for each dimension covers."""

    buffer: Buffer
    region: Array[Range] = child(converter=as_array)

    @staticmethod
    def from_point(buffer: Buffer, indices: Any) -> BufferRegion:
        """The region of one element."""
        return BufferRegion(buffer, [Range.from_min_extent(i, const(1, i.dtype)) for i in expr_array(indices)])

    @staticmethod
    def full(buffer: Buffer) -> BufferRegion:
        """The region of all elements."""
        return BufferRegion(buffer, [Range(d) for d in buffer.shape])

    def __getitem__(self, indices: Any) -> Any:
        return BufferRegion(self.buffer, slices_as_region(self.buffer, as_items(indices)))

    def __prim_expr__(self) -> PrimExpr:
        """The one-dimensional slice of known extent as a vector load."""
        indices: list[PrimExpr] = []
        for axis, r in enumerate(self.region):
            extent = getattr(r.extent, "value", None)
            if extent is None or (extent != 1 and axis != len(self.region) - 1):
                raise TypeMismatch(
                    f"the region {self} is not a value: "
                    "only a slice of known extent in the last dimension can be loaded"
                )
            indices.append(ramp_or_scalar(r.min, extent))
        return BufferLoad(self.buffer, indices)


class Stmt(Node):
    """Base of statements."""

    span: Span | SequentialSpan | None = meta(default=None)


class BufferStore(Stmt):
    """`buffer[indices] = value`; with a bool vector `predicate`, only the lanes that it selects."""

    buffer: Buffer
    value: PrimExpr = child(converter=as_expr)
    indices: Array[PrimExpr] = child(converter=expr_array)
    predicate: PrimExpr | None = None

    def _derive(self) -> None:
        buffer: Any = self.buffer
        if not isinstance(buffer, Buffer):  # what a builder gives stands for its buffer
            self.buffer = buffer.asobject()
        wanted = access_dtype(self.buffer, self.indices)
        found = self.value.dtype
        if found is not wanted:
            if not found.is_scalar and wanted.is_scalar:
                raise TypeMismatch(
                    f"cannot store {found} to one element of buffer `{self.buffer.name}` ({wanted}); "
                    "index a vector of elements"
                )
            self.value = ops.cast(wanted, self.value)


def _strided_extent(shape: Array[PrimExpr], strides: Array[PrimExpr]) -> PrimExpr:
    """The number of elements from the first to the last one in memory, both included, or those of all whole rows."""
    last: Any = const(0, shape[0].dtype)
    for dim, stride in zip(shape, strides, strict=True):
        last = last + (dim - 1) * stride
    rows = shape[0] * strides[0]
    return rows if isinstance(rows, IntImm) and isinstance(last, IntImm) and rows.value > last.value else last + 1


def as_items(indices: Any) -> tuple[Any, ...]:
    """The subscript of an access as a tuple, one item for each dimension."""
    return tuple(indices) if is_sequence(indices) else (indices,)


def _is_slice(item: object) -> TypeGuard[slice[Any, Any, Any]]:
    return isinstance(item, slice)


def slice_as_vector(buffer: Buffer, items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Indices whose last one is a slice with a step, as a ramp; None when the slices mean a region.

    `A[i, 0:16:1]` and `A[i, 0:16:2]` are vectors; `A[i, 0:16]`, without a step, is a region.
    """
    last = items[-1]
    if not _is_slice(last) or last.step is None or any(isinstance(i, slice) for i in items[:-1]):
        return None
    return (*items[:-1], vector_index(last, buffer.shape[len(items) - 1]))


def vector_index(item: slice[Any, Any, Any], dim: PrimExpr) -> PrimExpr:
    """The elements of a slice of a dimension as a ramp, or as the index of its only one."""
    begin, step = 0 if item.start is None else item.start, 1 if item.step is None else item.step
    end = dim if item.stop is None else item.stop
    count = as_expr(ops.floordiv(ops.add(ops.difference(end, begin), ops.subtract(step, 1)), step))
    lanes = count if isinstance(count, IntImm) else Analyzer().simplify(count)
    return ramp_or_scalar(begin, lanes.value if isinstance(lanes, IntImm) else lanes, step)


def slices_as_region(buffer: Buffer, items: tuple[Any, ...]) -> list[Range]:
    """Indices and slices as the ranges that they cover; missing trailing ones cover everything."""
    region: list[Range] = []
    for axis, dim in enumerate(buffer.shape):
        item: Any = items[axis] if axis < len(items) else slice(None)
        if _is_slice(item):
            if item.step not in (None, 1):
                raise InvalidValue(f"a region of buffer `{buffer.name}` cannot have the step {item.step}")
            begin = const(0, dim.dtype) if item.start is None else item.start
            region.append(Range(begin, dim if item.stop is None else item.stop))
        elif isinstance(item, Range):
            region.append(item)
        else:
            item = as_expr(item)
            region.append(Range.from_min_extent(item, const(1, item.dtype)))
    return region


def decl_buffer(
    shape: Any,
    dtype: str | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Any = None,
    span: Span | None = None,
) -> Buffer:
    """A buffer, with a data pointer of its own unless one is given.

    A positive `offset_factor` without `elem_offset` makes the offset a variable, which a
    `match_buffer` binds.
    """
    dtype = "float32" if dtype is None else dtype
    shape = expr_array(shape)
    if data is None:
        data = Var(name, pointer_to(DataType(dtype), scope), span=span)
    if elem_offset is None and offset_factor > 0:
        elem_offset = Var(f"{name}_elem_offset", shape[0].dtype if shape else "int32")
    return Buffer(
        data,
        dtype,
        shape,
        strides or (),
        elem_offset,
        data_alignment if data_alignment > 0 else DEFAULT_ALIGNMENT,
        offset_factor if offset_factor > 0 else 1,
        {"default": "", "auto": "auto_broadcast"}.get(buffer_type, buffer_type),
        axis_separators or (),
        name=name,
        span=span,
    )
