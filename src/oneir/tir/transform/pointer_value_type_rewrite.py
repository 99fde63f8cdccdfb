"""PointerValueTypeRewrite: memory that is only ever accessed as vectors of one length becomes memory of vectors.

    A = T.allocate([64], "float32")              A = T.allocate([16], "float32x4")
    A[T.Ramp(i * 4, 1, 4)] = x            ->     A[i] = x

Languages whose pointers are typed (CUDA, OpenCL) load a vector from such memory in one access.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, Ramp, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.type import PointerType, PrimType
from ...ir.visitor import Mapper, Visitor
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, BufferStore, LetStmt
from .pass_base import PrimFuncPass


class PointerValueTypeRewrite(PrimFuncPass):
    """Types allocations, pointers that are bound, and pointers among the parameters, as the vectors that they are
    accessed as.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return as_vectors(func, {param for param in func.params if _is_typed_pointer(param)})


def as_vectors(func: PrimFunc, pointers: Set[Var] = frozenset()) -> PrimFunc:
    """The function with its allocations, what it binds and the parameters `pointers` typed as they are accessed."""
    lanes = _Lanes(pointers)
    lanes(func.body)
    rewrite = _Rewrite(lanes.chosen())
    if not rewrite.lanes:
        return func
    params = Array(rewrite.renamed.get(param, param) for param in func.params)
    return func.replace(params=params, body=rewrite(func.body))


class _Lanes(Visitor):
    """The vector length with which the memory of each allocation is accessed; 0 where it must stay as it is."""

    def __init__(self, pointers: Set[Var]) -> None:
        super().__init__()
        self.analyzer = Analyzer()
        self.candidates = set(pointers)
        self.sizes: dict[Var, int] = {}
        self.lanes: dict[Var, int] = {}

    def visit_Allocate(self, node: Allocate) -> None:
        (*outer, size) = node.extents
        if not outer and isinstance(size, IntImm) and node.dtype.is_scalar:
            self.candidates.add(node.buffer_var)
            self.sizes[node.buffer_var] = size.value
        self.generic_visit(node)

    def visit_LetStmt(self, node: LetStmt) -> None:
        if _is_typed_pointer(node.var):
            self.candidates.add(node.var)
        self.generic_visit(node)

    def visit_BufferLoad(self, node: BufferLoad | BufferStore) -> None:
        self.note(node.buffer, self.lanes_of(node))
        if isinstance(node, BufferStore):
            self.visit(node.value)
        for expr in (*node.indices, node.predicate):
            if expr is not None:
                self.visit(expr)

    visit_BufferStore = visit_BufferLoad

    def visit_Var(self, var: Var) -> None:
        self.lanes[var] = 0  # the pointer itself is used

    def visit_Buffer(self, buffer: Buffer) -> None:
        pass

    def note(self, buffer: Buffer, lanes: int) -> None:
        self.lanes[buffer.data] = lanes if self.lanes.get(buffer.data, lanes) == lanes else 0

    def lanes_of(self, node: BufferLoad | BufferStore) -> int:
        """The length of an access to consecutive elements that begins at a multiple of its length."""
        index = node.indices[0] if len(node.indices) == 1 else None
        if not isinstance(index, Ramp) or not isinstance(index.lanes, int) or node.predicate is not None:
            return 0
        offset: Any = node.buffer.elem_offset
        plain = node.buffer.dtype.is_scalar and not node.buffer.strides and isinstance(offset, IntImm)
        if not plain or offset.value or not isinstance(index.stride, IntImm) or index.stride.value != 1:
            return 0
        aligned = self.analyzer.can_prove_equal(ops.floormod(index.base, index.lanes), 0)
        return index.lanes if aligned else 0

    def chosen(self) -> dict[Var, int]:
        """The memory to rewrite."""
        return {
            var: lanes
            for var, lanes in self.lanes.items()
            if lanes > 1 and var in self.candidates and self.sizes.get(var, 0) % lanes == 0
        }


class _Rewrite(Mapper):
    def __init__(self, lanes: dict[Var, int]):
        super().__init__()
        self.lanes = lanes
        self.analyzer = Analyzer()
        self.renamed = {var: _typed(var, count) for var, count in lanes.items()}

    def visit_Var(self, var: Var) -> Any:
        return self.renamed.get(var, var)

    def visit_Buffer(self, buffer: Buffer) -> Any:
        lanes = self.lanes.get(buffer.data)
        if lanes is None:
            return self._visit_shared(buffer)
        found = self._mapped.get(id(buffer))
        if found is None:
            shape = Array([self.analyzer.simplify(ops.floordiv(buffer.shape[0], lanes))])
            new = buffer.replace(data=self.renamed[buffer.data], dtype=buffer.dtype.with_lanes(lanes), shape=shape)
            found = self._mapped[id(buffer)] = (buffer, new)
        return found[1]

    def visit_Allocate(self, node: Allocate) -> Any:
        lanes = self.lanes.get(node.buffer_var)
        if lanes is None:
            return self.generic_visit(node)
        return node.replace(
            buffer_var=self.renamed[node.buffer_var],
            dtype=node.dtype.with_lanes(lanes),
            extents=Array([ops.floordiv(node.extents[0], lanes)]),
            body=self.visit(node.body),
        )

    def visit_LetStmt(self, node: LetStmt) -> Any:
        return node.replace(
            var=self.renamed.get(node.var, node.var), value=self.visit(node.value), body=self.visit(node.body)
        )

    def indices(self, node: Any) -> dict[str, Any]:
        index = self.visit(node.indices[0].base)
        index = self.analyzer.simplify(ops.floordiv(index, self.lanes[node.buffer.data]))
        return {"buffer": self.visit(node.buffer), "indices": Array([index])}

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return node.replace(**self.indices(node)) if node.buffer.data in self.lanes else self.generic_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        if node.buffer.data not in self.lanes:
            return self.generic_visit(node)
        return node.replace(value=self.visit(node.value), **self.indices(node))


def _typed(var: Var, lanes: int) -> Var:
    """A pointer to vectors."""
    kind: Any = var.type_annotation
    return Var(var.name, PointerType(PrimType(kind.element_type.dtype.with_lanes(lanes)), kind.storage_scope))


def _is_typed_pointer(var: Var) -> bool:
    kind = var.type_annotation
    return isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType)
