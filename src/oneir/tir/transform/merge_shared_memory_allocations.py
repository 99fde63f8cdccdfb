"""MergeSharedMemoryAllocations: the dynamic shared memory of a kernel becomes one allocation.

a = T.allocate([64], "float32", "shared.dyn")         buf_dyn_shmem = T.allocate([384], "uint8", "shared.dyn")
b = T.allocate([32], "float32", "shared.dyn")         A = T.decl_buffer((64,), data=buf_dyn_shmem)
A = T.decl_buffer((64,), data=a)               ->     B = T.decl_buffer((32,), data=buf_dyn_shmem)
B = T.decl_buffer((32,), data=b)                      A[i] = B[j + 64]
A[i] = B[j]

A kernel can have but one allocation of dynamic shared memory. Memory that is not in use at the same time is shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import Call, IntImm, PrimExpr, Var, const, pointer_to
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import WellFormedError
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from .pass_base import PrimFuncPass

register_config_option("tir.merge_static_smem", bool)

SMALL_BITS = 32
"""Memory up to this size has a place of its own."""
MATCH_RANGE = 16
"""Memory is given to what needs at least this part of it."""


class MergeSharedMemoryAllocations(PrimFuncPass):
    """Makes one allocation of a kernel's dynamic shared memory, where memory not used at the same time is shared.

    With the option `tir.merge_static_smem`, static shared memory as well. Raises `WellFormedError` for memory that is
    not flat.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        func = merge_shared_memory(func, "shared.dyn", "buf_dyn_shmem")
        if ctx.config.get("tir.merge_static_smem", False):
            func = merge_shared_memory(func, "shared", "buf_shmem")
        return func


@dataclass(eq=False)
class _Place:
    """Memory that several allocations have one after the other; those of one layer lie side by side."""

    bits: int
    layers: list[list[Allocate]]


@dataclass(eq=False)
class _Step:
    """A statement, or the beginning or the end of one with statements inside."""

    touched: dict[Var, None] = field(default_factory=dict[Var, None])
    begins: list[Var] = field(default_factory=list[Var])
    ends: list[Var] = field(default_factory=list[Var])
    closes: _Step | None = None
    opens: bool = False


class _Uses(Visitor):
    """Lists the steps of a function, with the memory that each uses.

    A use in a nested statement counts for the whole statement directly inside of the allocation.
    """

    def __init__(self, scope: str):
        super().__init__()
        self.scope = scope
        self.allocations: dict[Var, Allocate] = {}
        self.levels: dict[Var, int] = {}
        self.steps: list[_Step] = []
        self.open: list[_Step] = []
        self.in_kernel = False

    def visit_Allocate(self, stmt: Allocate) -> None:
        if storage_scope(stmt.buffer_var) == self.scope:
            self.allocations[stmt.buffer_var] = stmt
            self.levels[stmt.buffer_var] = len(self.open)
        self.visit(stmt.body)

    def visit_Var(self, var: Var) -> None:
        level = self.levels.get(var)
        if level is not None and level < len(self.open):
            self.open[level].touched[var] = None

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        for index in load.indices:
            self.visit(index)
        self.visit(load.buffer.data)

    def _leaf(self, *parts: Any) -> None:
        step = _Step()
        self.open.append(step)
        for part in parts:
            self.visit(part)
        self.open.pop()
        if step.touched:
            self.steps.append(step)

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        self._leaf(*stmt.indices, stmt.value, stmt.buffer.data)

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        self._leaf(stmt.value)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self._leaf(stmt.value)
        self.visit(stmt.body)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self.visit(stmt.body)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        kernel = stmt.attr_key == "thread_extent" and not self.in_kernel
        if kernel or stmt.attr_key in ("extern_scope", "virtual_thread"):
            outer, self.in_kernel = self.in_kernel, self.in_kernel or kernel
            self._nested(stmt)
            self.in_kernel = outer
        else:
            self.visit(stmt.body)

    def _nested(self, stmt: Stmt) -> None:
        start = _Step(opens=True)
        end = _Step(closes=start)
        self.steps.append(start)
        self.open.append(end)
        self.generic_visit(stmt)
        self.open.pop()
        self.steps.append(end)

    def visit_For(self, stmt: For) -> None:
        self._nested(stmt)

    def visit_While(self, stmt: While) -> None:
        self._nested(stmt)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self._nested(stmt)

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        self._nested(stmt)

    def mark_lives(self) -> None:
        """Notes where each memory is used first and last."""
        seen: set[Var] = set()
        for step in reversed(self.steps):
            for var in step.touched:
                if var not in seen:
                    seen.add(var)
                    step.ends.append(var)
        seen.clear()
        ends = {id(step.closes): step for step in self.steps if step.closes is not None}
        for step in self.steps:
            if step.closes is not None:
                continue
            for var in ends[id(step)].touched if step.opens else step.touched:
                if var not in seen:
                    seen.add(var)
                    step.begins.append(var)


class _Plan:
    """Assigns an offset to each allocation."""

    def __init__(self, uses: _Uses):
        self.allocations = uses.allocations
        self.places: dict[Var, _Place] = {}
        self.free: list[_Place] = []
        """Places of constant size, by size; of equal ones the oldest first."""
        self.kept: list[_Place] = []
        for step in uses.steps:
            at_once = [var for var in step.ends if not step.opens and var in step.begins]
            for var in step.ends:
                if var not in at_once:
                    self._release(var)
            for var in step.begins:
                self.places[var] = self._find(self.allocations[var])
            for var in at_once:
                self._release(var)

    def _release(self, var: Var) -> None:
        place = self.places[var]
        if place.bits <= SMALL_BITS:
            self.kept.append(place)
            return
        position = next((i for i, other in enumerate(self.free) if other.bits > place.bits), len(self.free))
        self.free.insert(position, place)

    def _find(self, allocation: Allocate) -> _Place:
        bits = _bits(allocation)
        if bits <= SMALL_BITS:
            return _Place(bits, [[allocation]])
        for place in self.free:
            if bits <= place.bits <= bits * MATCH_RANGE:
                self.free.remove(place)
                place.layers.append([allocation])
                return place
        # Several smaller places, side by side, the largest first.
        smaller: list[_Place] = []
        total = 0
        for place in reversed([place for place in self.free if place.bits < bits]):
            if total >= bits:
                break
            smaller.append(place)
            total += place.bits
        if not smaller:
            return _Place(bits, [[allocation]])
        layers: list[list[Allocate]] = [[] for _ in range(max(len(place.layers) for place in smaller))]
        for place in smaller:
            self.free.remove(place)
            for layer, more in zip(layers, place.layers, strict=False):
                layer += more
        return _Place(max(bits, total), [*layers, [allocation]])

    def offsets(self) -> tuple[dict[Var, PrimExpr], PrimExpr]:
        """Where each allocation begins, in bytes, and how many bytes there are."""
        places = [*self.free, *self.kept]
        widths: list[int] = []
        for depth in range(max((len(place.layers) for place in places), default=0)):
            layers = [place.layers[depth] for place in places if depth < len(place.layers)]
            widths.append(max(a.dtype.itemsize for layer in layers for a in layer))
        offsets: dict[Var, PrimExpr] = {}
        total: PrimExpr = const(0, "int32")
        for place in places:
            longest: PrimExpr = const(0, "int32")
            for layer, align in zip(place.layers, widths, strict=False):
                inner: PrimExpr = const(0, "int32")
                for allocation in layer:
                    offsets[allocation.buffer_var] = total + inner
                    inner = inner + allocation.extents[0] * allocation.dtype.itemsize
                    inner = inner + (align - inner % align) % align
                longest = ops.maximum(longest, inner)
            total = total + longest
        return offsets, total


def _bits(allocation: Allocate) -> int:
    """The size of an allocation; 0 where it is not known."""
    bits = allocation.dtype.itemsize * 8
    for extent in allocation.extents:
        bits *= extent.value if isinstance(extent, IntImm) else 0
    return bits


def storage_scope(var: Any) -> str:
    """The kind of memory that a pointer points to."""
    return getattr(var.type_annotation, "storage_scope", "")


class _Merger(Mapper):
    def __init__(self, scope: str, merged: Var, plan: _Plan):
        super().__init__()
        self.scope, self.merged = scope, merged
        self.offsets, self.size = plan.offsets()
        self.allocated = False

    def visit_AttrStmt(self, stmt: AttrStmt) -> Stmt:
        if stmt.attr_key != "thread_extent" or self.allocated or not isinstance(stmt.node, IterVar):
            return self.generic_visit(stmt)
        self.allocated = True
        body = self.visit(stmt.body)
        return stmt.replace(body=Allocate(self.merged, "uint8", [self.size], IntImm("bool", 1), body))

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        return self.visit(stmt.body) if stmt.buffer_var in self.offsets else self.generic_visit(stmt)

    def visit_Var(self, var: Var) -> Any:
        return self.merged if var in self.offsets else var

    def _moved(self, buffer: Buffer, indices: Iterable[PrimExpr]) -> list[PrimExpr]:
        indices = [self.visit(index) for index in indices]
        if buffer.data not in self.offsets:
            return indices
        if len(indices) != 1:
            raise WellFormedError(
                f"MergeSharedMemoryAllocations expects flat memory; buffer `{buffer.name}` has {len(indices)} "
                "dimensions: run FlattenBuffer before"
            )
        return [indices[0] + self._elements(buffer.data, buffer.dtype)]

    def _elements(self, data: Var, dtype: DataType) -> PrimExpr:
        return self.offsets[data] // dtype.itemsize

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        indices = self._moved(load.buffer, load.indices)
        return load.replace(buffer=self.visit(load.buffer), indices=indices)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = self._moved(store.buffer, store.indices)
        return store.replace(buffer=self.visit(store.buffer), value=self.visit(store.value), indices=indices)

    def visit_Call(self, call: Call) -> PrimExpr:
        name = call.op.name if isinstance(call.op, Op) else ""
        if name.startswith("tir.ptx_cp_async") and call.args and call.args[0] in self.offsets:
            data, offset, *rest = call.args
            assert isinstance(data, Var)
            moved = self._elements(data, call.dtype) + self.visit(offset)
            # The merged memory is one of bytes.
            return call.replace(args=[self.merged, moved * call.dtype.itemsize, *[self.visit(x) for x in rest]])
        if name != "tir.tvm_access_ptr" or call.args[1] not in self.offsets:
            return self.generic_visit(call)
        kind, data, offset, extent, mask = call.args
        assert isinstance(data, Var)
        moved = self._elements(data, kind.dtype) + self.visit(offset)
        return call.replace(args=[kind, self.merged, moved, self.visit(extent), mask])


def merge_shared_memory(func: PrimFunc, scope: str, name: str) -> PrimFunc:
    """The function with the allocations of a scope as one."""
    uses = _Uses(scope)
    uses(func.body)
    if len(uses.allocations) < 2:
        return func
    uses.mark_lives()
    return func.with_body(_Merger(scope, Var(name, pointer_to("uint8", scope)), _Plan(uses))(func.body))
