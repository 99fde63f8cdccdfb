"""FlattenBuffer: every access becomes one to flat memory, its offset computed from strides and shape."""

from __future__ import annotations

import math
from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, BufferStore, DeclBuffer, Stmt
from .pass_base import PrimFuncPass

INT32_MAX = (1 << 31) - 1


class FlattenBuffer(PrimFuncPass):
    """Makes every buffer one-dimensional, or as many dimensions as its axis separators say.

    Parameters keep their shapes, and are declared flat in the body.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        mapper = _Flatten()
        body = mapper(func.body)
        for buffer in reversed(list(func.buffer_map.values())):
            flat = mapper.flat_buffer(buffer)
            if flat is not buffer:
                body = DeclBuffer(flat, body)
        return func.with_body(body)


class _Flatten(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.flat: dict[Buffer, Buffer] = {}

    def flat_buffer(self, buffer: Buffer) -> Buffer:
        """The one-dimensional view of the buffer's memory, from its data pointer on."""
        found = self.flat.get(buffer)
        if found is None:
            mapped = self._map_shared(buffer)
            found = self.flat[buffer] = flattened(mapped)
        return found

    def indices(self, node: Any) -> Array[PrimExpr]:
        buffer, indices = self._map_shared(node.buffer), [self.visit(i) for i in node.indices]
        if is_huge(buffer.shape):
            buffer = widened(buffer)
            indices = [ops.cast(DataType("int64").with_lanes(i.dtype.lanes), i) for i in indices]
        return buffer.offset_of(Array(indices))

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        flat = self.flat_buffer(node.buffer)
        if flat is node.buffer:
            return self.generic_visit(node)
        predicate = None if node.predicate is None else self.visit(node.predicate)
        return BufferLoad(flat, self.indices(node), predicate, span=node.span)

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        flat = self.flat_buffer(node.buffer)
        if flat is node.buffer:
            return self.generic_visit(node)
        predicate = None if node.predicate is None else self.visit(node.predicate)
        return BufferStore(flat, self.visit(node.value), self.indices(node), predicate, span=node.span)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        return node.replace(buffer=self.flat_buffer(node.buffer), body=self.visit(node.body))

    def visit_Allocate(self, node: Allocate) -> Stmt:
        node = self.generic_visit(node)
        if len(node.extents) == 1:
            return node
        total: Any = 1
        for extent in node.extents:
            total = (ops.cast("int64", extent) if is_huge(node.extents) else extent) * total
        return node.replace(extents=Array((total,)) if node.extents else Array((1,)))


def is_flat(buffer: Buffer) -> bool:
    """Whether a buffer is a plain array from its data pointer on."""
    offset = buffer.elem_offset
    return len(buffer.shape) == 1 and not buffer.strides and isinstance(offset, IntImm) and offset.value == 0


def is_huge(shape: Array[PrimExpr]) -> bool:
    """Whether an array has more elements than its int32 indices can count."""
    size = math.prod(dim.value for dim in shape if isinstance(dim, IntImm))
    return size > INT32_MAX and any(dim.dtype.bits < 64 for dim in shape)


def widened(buffer: Buffer) -> Buffer:
    """The buffer with extents, strides and offset in int64."""
    return buffer.replace(
        shape=Array(ops.cast("int64", dim) for dim in buffer.shape),
        strides=Array(ops.cast("int64", stride) for stride in buffer.strides),
        elem_offset=ops.cast("int64", buffer.elem_offset),
    )


def flattened(buffer: Buffer) -> Buffer:
    """The buffer's memory in one dimension (or one for each group of axes), with offset 0."""
    if is_flat(buffer):
        return buffer
    if is_huge(buffer.shape):
        buffer = widened(buffer)
    flat = buffer.get_flattened_buffer()
    zero = getattr(flat.elem_offset, "value", None) == 0
    shape = flat.shape if zero else Array([*flat.shape[:-1], flat.shape[-1] + flat.elem_offset])
    return flat.replace(shape=shape or Array((1,)), elem_offset=None, offset_factor=1)
