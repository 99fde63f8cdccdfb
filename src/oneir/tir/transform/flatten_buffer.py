"""FlattenBuffer: every access becomes one to flat memory, its offset computed from strides and shape."""

from __future__ import annotations

import functools
import math
from typing import Any

from ...arith import iter_map_simplify
from ...ir import operators as ops
from ...ir.container import Array, map_array
from ...ir.dtype import DataType
from ...ir.expr import FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Range, Var, as_int, const
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..analysis.variables import variables
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import (
    Allocate,
    AttrStmt,
    Block,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    Stmt,
)
from .pass_base import PrimFuncPass

INT32_MAX = (1 << 31) - 1


class FlattenBuffer(PrimFuncPass):
    """Makes every buffer one-dimensional, or as many dimensions as its axis separators say.

    Parameters keep their shapes. What is left needs no declarations: a flat buffer is its data pointer.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Flatten()(func.body))


class _Flatten(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.flat: dict[Buffer, Buffer] = {}
        self.ranges: dict[Var, Range] = {}
        self.conditions: list[PrimExpr] = []

    def flat_buffer(self, buffer: Buffer) -> Buffer:
        """The one-dimensional view of the buffer's memory, from its data pointer on."""
        found = self.flat.get(buffer)
        if found is None:
            mapped = self._visit_shared(buffer)
            found = self.flat[buffer] = flattened(mapped)
        return found

    def indices(self, node: Any) -> Array[PrimExpr]:
        buffer, indices = self._visit_shared(node.buffer), [self.visit(i) for i in node.indices]
        if is_huge(buffer.shape):
            buffer = widened(buffer)
            indices = [ops.cast(DataType("int64").with_lanes(i.dtype.lanes), i) for i in indices]
        buffer, indices = without_parts(buffer, indices)
        return self.fused(buffer.flat_indices(Array(indices)))

    def fused(self, offsets: Array[PrimExpr]) -> Array[PrimExpr]:
        """Offsets in which the quotients and remainders of a fused loop by symbolic extents meet again."""
        if not all(i.dtype.is_scalar for i in offsets) or not any(map(may_meet_again, offsets)):
            return offsets
        condition = functools.reduce(ops.logical_and, self.conditions, const(True))
        return iter_map_simplify(offsets, self.ranges, condition, fused_first=False)

    def visit_For(self, node: For) -> Stmt:
        self.ranges[node.loop_var] = Range.from_min_extent(node.min, node.extent)
        new = self.generic_visit(node)
        del self.ranges[node.loop_var]
        return new

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        if isinstance(node.node, IterVar) and node.attr_key == "thread_extent":
            self.ranges[node.node.var] = Range.from_min_extent(const(0, node.value.dtype), node.value)
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        self.conditions.append(node.condition)
        then_case = self.visit(node.then_case)
        self.conditions.pop()
        else_case = None if node.else_case is None else self.visit(node.else_case)
        return node.replace(condition=self.visit(node.condition), then_case=then_case, else_case=else_case)

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
        return self.visit(node.body)

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        flat = self.flat_buffer(node.buffer)
        if flat is node.buffer:
            return self.generic_visit(node)
        first = self.indices(BufferLoad(node.buffer, [r.min for r in node.region]))
        return BufferRegion(flat, [Range.from_min_extent(i, const(1, i.dtype)) for i in first])

    def visit_Block(self, node: Block) -> Stmt:
        allocated = map_array(node.alloc_buffers, self.flat_buffer)
        return self.generic_visit(node).replace(alloc_buffers=allocated)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        declared = node.body.buffer if isinstance(node.body, DeclBuffer) else None
        node = self.generic_visit(node)
        if len(node.extents) == 1:
            return node
        if declared is not None and declared.data is node.buffer_var and declared.axis_separators:
            return node.replace(extents=self.flat_buffer(declared).shape)
        total: Any = 1
        for extent in node.extents:
            total = (ops.cast("int64", extent) if is_huge(node.extents) else extent) * total
        return node.replace(extents=Array((total,)) if node.extents else Array((1,)))


class _Divisors(Visitor):
    """The variables of divisors in an expression, and those that stand elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.divisors: set[Var] = set()
        self.others: set[Var] = set()

    def visit_Var(self, var: Var) -> None:
        self.others.add(var)

    def visit_FloorDiv(self, node: FloorDiv | FloorMod) -> None:
        self.visit(node.a)
        if not isinstance(node.b, IntImm):
            self.divisors |= variables(node.b)

    visit_FloorMod = visit_FloorDiv


def may_meet_again(expr: PrimExpr) -> bool:
    """Whether a quotient by what is no constant may stand beside its remainder: x // n * n + x % n.

    It is multiplied by its divisor then, whose variables stand outside of divisors, too.
    """
    found = _Divisors()
    found(expr)
    return not found.divisors.isdisjoint(found.others)


def without_parts(buffer: Buffer, indices: list[PrimExpr]) -> tuple[Buffer, list[PrimExpr]]:
    """The buffer and indices with one axis instead of two where their indices are the quotient and the remainder of one
    value by the extent of the second: those of a fused loop.

    Simplified by themselves, quotients and remainders of a sum, which a loop that was split again is, do not meet again
    where its factor does not divide the extent: (i * 6252 + j) % 9 is (i * 6 + j) % 9.
    """
    if buffer.strides or buffer.axis_separators:
        return buffer, indices
    axes = [(n, i) for n, i in zip(buffer.shape, indices, strict=True) if as_int(n) != 1 or as_int(i) != 0]
    shape, found = [extent for extent, _ in axes], [index for _, index in axes]
    for i in reversed(range(1, len(shape))):
        whole = _undivided(found[i - 1], found[i], shape[i - 1], shape[i])
        if whole is not None:
            found[i - 1 : i + 1] = [whole]
            shape[i - 1 : i + 1] = [shape[i - 1] * shape[i]]
    return (buffer, indices) if len(found) == len(axes) else (buffer.replace(shape=shape), found)


def _undivided(quotient: PrimExpr, remainder: PrimExpr, outer: PrimExpr, inner: PrimExpr) -> PrimExpr | None:
    """The value x of which the indices x // inner, or x % (outer * inner) // inner, and x % inner are parts."""
    if not (isinstance(quotient, FloorDiv) and isinstance(remainder, FloorMod) and isinstance(inner, IntImm)):
        return None
    divisors = as_int(quotient.b), as_int(remainder.b)
    if divisors != (inner.value, inner.value):
        return None
    whole = quotient.a
    if structural_equal(whole, remainder.a):
        return whole
    if not (isinstance(whole, FloorMod) and isinstance(outer, IntImm) and structural_equal(whole.a, remainder.a)):
        return None
    return whole if as_int(whole.b) == outer.value * inner.value else None


def is_flat(buffer: Buffer) -> bool:
    """Whether a buffer is a plain array from its data pointer on."""
    offset = buffer.elem_offset
    return len(buffer.shape) == 1 and not buffer.strides and isinstance(offset, IntImm) and offset.value == 0


def constant_last(product: PrimExpr) -> PrimExpr:
    """A product with its constant factor in the last place: 32 * n * n as n * n * 32."""
    constant, todo = 1, [product]
    others: list[PrimExpr] = []
    while todo:
        factor = todo.pop()
        if isinstance(factor, Mul):
            todo += [factor.b, factor.a]
        elif isinstance(factor, IntImm):
            constant *= factor.value
        else:
            others.append(factor)
    if not others:
        return product
    return functools.reduce(ops.multiply, others) * const(constant, product.dtype)


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
    shape = map_array(shape, constant_last)
    return flat.replace(shape=shape or Array((1,)), elem_offset=None, offset_factor=1)
