"""LowerMatchBuffer: accesses to a matched view become accesses to its source buffer."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.container import Array, map_array
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import AssertStmt, Block, BufferRegion, BufferStore, MatchBufferRegion, Stmt
from .pass_base import PrimFuncPass


class LowerMatchBuffer(PrimFuncPass):
    """Replaces accesses to matched buffers by accesses to their sources.

    Raises `WellFormedError` where a view does not fit its source.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_LowerMatch()(func.body))


class _LowerMatch(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Var, Any] = {}
        self.sources: dict[Buffer, BufferRegion] = {}
        self.displaced: set[Var] = set()
        """The pointers of views that say that they start elsewhere than they do."""

    def visit_Var(self, var: Var) -> Any:
        if var in self.displaced:
            raise WellFormedError(
                f"the pointer of `{var.name}` is used, but its matched region does not start where it says that it "
                "does: let the view have a symbolic offset, with match_buffer(..., offset_factor=1)"
            )
        return self.values.get(var, var)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        """A buffer with its symbolic fields replaced, but not its data pointer."""
        found = self._mapped.get(id(buffer))
        if found is None:
            fields = {"shape": map_array(buffer.shape, self.visit), "strides": map_array(buffer.strides, self.visit)}
            data = self.values.get(buffer.data, buffer.data)
            new = buffer.replace(data=data, elem_offset=self.visit(buffer.elem_offset), **fields)
            found = self._mapped[id(buffer)] = (buffer, new)
        return found[1]

    def visit_Block(self, block: Block) -> Block:
        if not block.match_buffers:
            return self.generic_visit(block)
        conditions: list[PrimExpr] = []
        for match in block.match_buffers:
            self.bind(match, conditions)
        block = self.generic_visit(block.replace(match_buffers=Array()))
        body: Stmt = block.body
        for condition in reversed(conditions):
            body = AssertStmt(condition, f"ValueError: a view in block `{block.name_hint}` is not as declared", body)
        return block.replace(body=body)

    def bind(self, match: MatchBufferRegion, conditions: list[PrimExpr]) -> None:
        """Gives the view's symbolic shape, strides and offset their values, and checks what is not symbolic."""
        view, source = match.buffer, self.visit(match.source)
        buffer = source.buffer
        self.sources[view] = source
        self.values[view.data] = buffer.data
        if view.dtype is not buffer.dtype or view.scope() != buffer.scope():
            raise WellFormedError(
                f"`{view.name}` ({view.dtype} in {view.scope()} memory) cannot view `{buffer.name}` "
                f"({buffer.dtype} in {buffer.scope()} memory)"
            )
        dropped = len(source.region) - len(view.shape)
        if dropped < 0 or any(not _is_one(r.extent) for r in source.region[:dropped]):
            raise WellFormedError(f"`{view.name}` has {len(view.shape)} dimensions and cannot view {match.source}")
        for dim, covered in zip(view.shape, source.region[dropped:], strict=True):
            self.equate(dim, covered.extent, conditions, view.name, "an extent of")
        if view.strides:
            strides = buffer.strides or compact_strides(buffer)
            for stride, actual in zip(view.strides, strides[dropped:], strict=True):
                self.equate(stride, actual, conditions, view.name, "a stride of")
        start = buffer.flat_indices([r.min for r in source.region])
        assert view.elem_offset is not None
        if len(start) == 1 and not isinstance(view.elem_offset, IntImm):
            self.equate(view.elem_offset, start[0], conditions, view.name, "an offset of")
        elif len(start) != 1 or not ops.same_expr(view.elem_offset, start[0]):
            self.displaced.add(view.data)
        if view.offset_factor > 1 and len(start) == 1:
            conditions.append(ops.equal(ops.floormod(start[0], view.offset_factor), 0))

    def equate(self, declared: PrimExpr, actual: PrimExpr, conditions: list[PrimExpr], name: str, what: str) -> None:
        if isinstance(declared, Var) and declared not in self.values:
            self.values[declared] = ops.cast(declared.dtype, actual)
            return
        declared = self.visit(declared)
        condition = ops.equal(declared, ops.cast(declared.dtype, actual))
        if isinstance(condition, IntImm) and not condition.value:
            raise WellFormedError(f"`{name}` has {what} {declared}, but what it views has {actual}")
        if not isinstance(condition, IntImm) and not ops.same_expr(declared, actual):
            conditions.append(condition)

    def indices(self, source: BufferRegion, indices: Any) -> Array[PrimExpr]:
        """Indices into the source buffer for indices into the view."""
        dropped = len(source.region) - len(indices)
        inner = [ops.add(r.min, i) for r, i in zip(source.region[dropped:], indices, strict=True)]
        return Array([*(r.min for r in source.region[:dropped]), *inner])

    def visit_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        source = self.sources.get(node.buffer)
        if source is None:
            return self.generic_visit(node)
        indices = self.indices(source, [self.visit(i) for i in node.indices])
        predicate = None if node.predicate is None else self.visit(node.predicate)
        return BufferLoad(source.buffer, indices, predicate, span=node.span)

    def visit_BufferStore(self, node: BufferStore) -> BufferStore:
        source = self.sources.get(node.buffer)
        if source is None:
            return self.generic_visit(node)
        indices = self.indices(source, [self.visit(i) for i in node.indices])
        predicate = None if node.predicate is None else self.visit(node.predicate)
        return BufferStore(source.buffer, self.visit(node.value), indices, predicate, span=node.span)

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
