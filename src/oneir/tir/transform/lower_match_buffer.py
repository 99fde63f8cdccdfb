"""LowerMatchBuffer: accesses to a matched view become accesses to the buffer behind it."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import AssertStmt, Block, BufferRegion, BufferStore, MatchBufferRegion, Stmt
from .pass_base import PrimFuncPass, function_pass


class _LowerMatch(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Var, Any] = {}
        self.sources: dict[Buffer, BufferRegion] = {}

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_Block(self, block: Block) -> Block:
        if not block.match_buffers:
            return self.generic_visit(block)
        conditions: list[PrimExpr] = []
        for match in block.match_buffers:
            self.bind(match, conditions)
        block = self.generic_visit(block.replace(match_buffers=Array()))
        body: Stmt = block.body
        for condition in reversed(conditions):
            body = AssertStmt(condition, "the region does not fit the buffer that it is matched with", body)
        return block.replace(body=body)

    def bind(self, match: MatchBufferRegion, conditions: list[PrimExpr]) -> None:
        """Gives the view's symbolic shape, strides and offset their values, and checks what is not symbolic."""
        view, source = match.buffer, self.visit(match.source)
        buffer = source.buffer
        self.sources[view] = source
        self.values[view.data] = buffer.data
        dropped = len(source.region) - len(view.shape)
        if dropped < 0 or any(not _is_one(r.extent) for r in source.region[:dropped]):
            raise WellFormedError(f"`{view.name}` has {len(view.shape)} dimensions and cannot view {match.source}")
        for dim, covered in zip(view.shape, source.region[dropped:], strict=True):
            self.equate(dim, covered.extent, conditions)
        if view.strides:
            strides = buffer.strides or compact_strides(buffer)
            for stride, actual in zip(view.strides, strides[dropped:], strict=True):
                self.equate(stride, actual, conditions)
        start = buffer.offset_of([r.min for r in source.region])
        if len(start) == 1 and isinstance(view.elem_offset, Var):
            self.equate(view.elem_offset, start[0], conditions)
        if view.offset_factor > 1 and len(start) == 1:
            conditions.append(ops.equal(ops.floormod(start[0], view.offset_factor), 0))

    def equate(self, declared: PrimExpr, actual: PrimExpr, conditions: list[PrimExpr]) -> None:
        if isinstance(declared, Var) and declared not in self.values:
            self.values[declared] = ops.cast(declared.dtype, actual)
            return
        condition = ops.equal(self.visit(declared), actual)
        if not (isinstance(condition, IntImm) and condition.value):
            conditions.append(condition)

    def indices(self, source: BufferRegion, indices: Any) -> Array[PrimExpr]:
        """Indices into the source buffer for indices into the view."""
        dropped = len(source.region) - len(indices)
        inner = [ops.add(r.min, i) for r, i in zip(source.region[dropped:], indices, strict=True)]
        return Array([*(r.min for r in source.region[:dropped]), *inner])

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        node = node.replace(indices=Array(self.visit(i) for i in node.indices)) if node.buffer in self.sources else node
        source = self.sources.get(node.buffer)
        if source is None:
            return self.generic_visit(node)
        return BufferLoad(source.buffer, self.indices(source, node.indices), node.predicate, node.span)

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        source = self.sources.get(node.buffer)
        if source is None:
            return self.generic_visit(node)
        indices = self.indices(source, [self.visit(i) for i in node.indices])
        return BufferStore(source.buffer, self.visit(node.value), indices, node.predicate, node.span)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        source = self.sources.get(node.buffer)
        if source is None:
            return self.generic_visit(node)
        region = [self.visit(r) for r in node.region]
        dropped = len(source.region) - len(region)
        moved = [r.replace(min=ops.add(s.min, r.min)) for s, r in zip(source.region[dropped:], region, strict=True)]
        return BufferRegion(source.buffer, [*source.region[:dropped], *moved])


def _is_one(extent: PrimExpr) -> bool:
    return isinstance(extent, IntImm) and extent.value == 1


def compact_strides(buffer: Buffer) -> Array[PrimExpr]:
    """The strides of row-major memory."""
    strides: list[Any] = []
    stride: Any = IntImm(buffer.shape[-1].dtype, 1) if buffer.shape else None
    for dim in reversed(buffer.shape):
        strides.append(stride)
        stride = ops.multiply(dim, stride)
    return Array(reversed(strides))


def lower_match_buffer(func: PrimFunc) -> PrimFunc:
    """The function without matched views."""
    return func.with_body(_LowerMatch()(func.body))


def LowerMatchBuffer() -> PrimFuncPass:
    """Replaces accesses to matched buffers by accesses to their sources."""
    return function_pass(lower_match_buffer, "tir.LowerMatchBuffer")
