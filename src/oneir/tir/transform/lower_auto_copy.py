"""LowerAutoCopy: the threads of a kernel share the copies between its memory and the device's.

    with T.block():                                          with T.block():
        T.block_attr({"auto_copy": True,                         for o in range(4):
                      "vector_bytes": 16})                           for ty in T.thread_binding(2, "threadIdx.y"):
        for i, j in T.grid(16, 64):                      ->              for tx in T.thread_binding(32, "threadIdx.x"):
            S[i, j] = A[v + i, j]                                            for v in T.vectorized(4):
                                                                                 S[.. // 64, .. % 64] = A[...]

Neighbouring threads copy neighbouring elements, each as many as `vector_bytes` hold. With "local_stage": 1 a thread
loads all of its elements into registers before it stores the first one. Elements are taken in the order of the device's
memory: a copy to it, whose loops run in another order, is turned around. `Schedule.read_at` and `write_at` make the
blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map, inverse_affine_iter_map
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Range, Var, as_int, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, post_order_visit
from ..buffer import decl_buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt, While
from ..stmt_functor import substitute
from .analyzed import reads, uses
from .pass_base import PrimFuncPass

_THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
_WARP = 32


class LowerAutoCopy(PrimFuncPass):
    """Divides copies between global and shared memory, in blocks annotated "auto_copy", among the threads of a kernel.

    Other copies stay as they are: those of symbolic size, those between other memories, and those whose elements, or
    whether they are made, depend on the thread.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Lower()(func.body))


class _Lower(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.extents: dict[str, int] | None = None
        """Of the threads of the kernel around; None outside of kernels."""
        self.threads: set[Var] = set()
        self.divergent = False

    def visit_For(self, node: For) -> Any:
        if node.thread_binding is None:
            return self.branch(node, node.min, node.extent)
        outer, whole = self.threads, self.extents is None
        if whole:
            self.extents = _thread_extents(node)
        if node.thread_binding.thread_tag in _THREADS:
            self.threads = {*outer, node.loop_var}
        new = self.generic_visit(node)
        self.threads = outer
        if whole:
            self.extents = None
        return new

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        return self.branch(node, node.condition)

    def visit_While(self, node: While) -> Any:
        return self.branch(node, node.condition)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        outer = self.threads
        if self.differs(node.value):
            self.threads = {*outer, node.var}
        new = self.generic_visit(node)
        self.threads = outer
        return new

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        if not node.block.annotations.get("auto_copy") or self.extents is None:
            return self.branch(node, node.predicate)
        if self.divergent or uses(node, self.threads):
            return node
        return node.replace(block=_divided(node.block, self.extents))

    def branch(self, node: Stmt, *decisions: PrimExpr) -> Any:
        """What only some threads may run, or not equally often, if decisions differ between them."""
        outer, self.divergent = self.divergent, self.divergent or any(map(self.differs, decisions))
        new = self.generic_visit(node)
        self.divergent = outer
        return new

    def differs(self, value: PrimExpr) -> bool:
        """Whether a value may be another one in each thread: it may lie in registers."""
        return uses(value, self.threads) or reads(value)


def _thread_extents(kernel: For) -> dict[str, int]:
    """The numbers of threads along the axes of a kernel, in their order."""
    found: dict[str, int] = {}

    def note(node: Any) -> None:
        if isinstance(node, Block) and node.annotations.get("warp_execution"):
            found["threadIdx.x"] = _WARP
        if isinstance(node, For) and node.thread_binding is not None:
            extent = as_int(node.extent)
            if node.thread_binding.thread_tag in _THREADS and extent is not None:
                found[node.thread_binding.thread_tag] = extent

    post_order_visit(kernel, note)
    return {tag: found[tag] for tag in _THREADS if tag in found}


def _divided(block: Block, threads: Mapping[str, int]) -> Block:
    """The copy that a block makes, divided among threads; the block itself where that is not possible."""
    if len(block.reads) != 1 or len(block.writes) != 1:
        return block
    loops: list[For] = []
    leaf: Stmt = block.body
    while isinstance(leaf, For) and leaf.kind is ForKind.SERIAL and is_number(leaf.min, 0):
        loops.append(leaf)
        leaf = leaf.body
    store = leaf.then_case if isinstance(leaf, IfThenElse) and leaf.else_case is None else leaf
    extents = [as_int(loop.extent) for loop in loops]
    memories = [region.buffer.scope().partition(".")[0] or "global" for region in (*block.reads, *block.writes)]
    if not isinstance(store, BufferStore) or None in extents or sorted(memories) != ["global", "shared"]:
        return block
    nest = _Nest([loop.loop_var for loop in loops], [e for e in extents if e is not None], leaf)
    if memories[1] == "global":
        nest = nest.in_order_of(store, block)
    lanes = max(1, int(block.annotations.get("vector_bytes", 1)) * 8 // block.reads[0].buffer.dtype.bits)
    staged = memories[0] == "global" and block.annotations.get("local_stage") == 1
    body, registers = nest.shared_among(threads, lanes, staged)
    return block.replace(body=body, alloc_buffers=Array([*block.alloc_buffers, *registers]))


class _Nest:
    """Serial loops of constant extents around a store, which may have a condition."""

    def __init__(self, variables: Sequence[Var], extents: Sequence[int], leaf: Stmt) -> None:
        self.variables = variables
        self.extents = extents
        self.leaf = leaf

    def in_order_of(self, store: BufferStore, block: Block) -> _Nest:
        """The same elements in the order in which they lie in the region that is written."""
        region = block.writes[0].region
        analyzer = Analyzer()
        domains = {v: Range(0, e) for v, e in zip(self.variables, self.extents, strict=True)}
        for var, domain in domains.items():
            analyzer.bind(var, domain)
        places = [analyzer.simplify(i - r.min) for i, r in zip(store.indices, region, strict=True)]
        sizes = [as_int(r.extent) for r in region]
        axes = [axis for axis, size in enumerate(sizes) if size != 1]
        indices = [places[axis] for axis in axes]
        inner = [v for v, e in zip(self.variables, self.extents, strict=True) if e != 1]
        if None in sizes or (len(indices) == len(inner) and all(map(ops.same_expr, indices, inner))):
            return self
        found = detect_iter_map(indices, domains, check_level=IterMapLevel.Bijective)
        if found.errors:
            return self
        made = [Var(f"i{n}", index.dtype) for n, index in enumerate(indices)]
        values: dict[Var, Any] = {v: const(0, v.dtype) for v in self.variables}
        values.update(inverse_affine_iter_map(found.indices, made))
        return _Nest(made, [sizes[axis] or 1 for axis in axes], substitute(self.leaf, values))

    def shared_among(self, threads: Mapping[str, int], lanes: int, staged: bool) -> tuple[Stmt, list[Any]]:
        """Loops over threads and vectors, and the registers that they need."""
        count = math.prod(self.extents)
        steps = -(-count // (math.prod(threads.values()) * lanes))
        dtype = self.variables[0].dtype if self.variables else "int32"
        name = "_".join(v.name for v in self.variables) + "_fused"
        sizes = [steps, *threads.values(), lanes]
        axes = [Var(f"{name}_{n}", dtype) for n in range(len(sizes))]
        analyzer = Analyzer()
        place: PrimExpr = const(0, dtype)
        for var, size in zip(axes, sizes, strict=True):
            analyzer.bind(var, Range(0, size))
            place = place * size + var
        values: dict[Var, Any] = {}
        rest = place
        for var, extent in reversed(list(zip(self.variables, self.extents, strict=True))):
            values[var], rest = ops.floormod(rest, extent), ops.floordiv(rest, extent)
        leaf = substitute(self.leaf, values)
        inside = ops.less(place, count)
        condition = None if analyzer.can_prove(inside) else inside
        outer, *bound, vector = zip(axes, sizes, strict=True)
        if staged:
            return _staged(leaf, condition, outer, list(zip(bound, threads, strict=True)), vector)
        body = _vectorized(leaf if condition is None else IfThenElse(condition, leaf), vector)
        for (var, size), tag in reversed(list(zip(bound, threads, strict=True))):
            body = _bound(var, size, tag, body)
        return _serial(outer, body), []


def _staged(
    leaf: Stmt, condition: PrimExpr | None, outer: Any, bound: Sequence[Any], vector: Any
) -> tuple[Stmt, list[Any]]:
    """Loads of all of a thread's elements into registers, then stores."""
    conditions = [] if condition is None else [condition]
    if isinstance(leaf, IfThenElse):
        conditions.append(leaf.condition)
        leaf = leaf.then_case
    assert isinstance(leaf, BufferStore)
    element = [outer[0], vector[0]]
    registers = decl_buffer([outer[1], vector[1]], str(leaf.value.dtype), f"{leaf.buffer.name}_local", scope="local")
    parts: list[Stmt] = []
    for store in (
        BufferStore(registers, leaf.value, element),
        leaf.replace(value=BufferLoad(registers, element)),
    ):
        part: Stmt = store
        for held in reversed(conditions):
            part = IfThenElse(held, part)
        parts.append(_serial(outer, _vectorized(part, vector)))
    body: Stmt = SeqStmt(parts)
    for (var, size), tag in reversed(bound):
        body = _bound(var, size, tag, body)
    return body, [registers]


def _serial(axis: tuple[Var, int], body: Stmt) -> Stmt:
    var, size = axis
    return For(var, IntImm(var.dtype, 0), IntImm(var.dtype, size), ForKind.SERIAL, body)


def _vectorized(body: Stmt, axis: tuple[Var, int]) -> Stmt:
    var, size = axis
    return For(var, IntImm(var.dtype, 0), IntImm(var.dtype, size), ForKind.VECTORIZED, body)


def _bound(var: Var, size: int, tag: str, body: Stmt) -> Stmt:
    thread = IterVar(None, Var(tag, var.dtype), IterVar.ThreadIndex, tag)
    return For(var, IntImm(var.dtype, 0), IntImm(var.dtype, size), ForKind.THREAD_BINDING, body, thread)
