"""StorageRewrite: allocations that are not in use at the same time share their memory.

    with T.allocate([1024], "float32") as a:        a = T.allocate([1024], "float32")
        ... a ...                              ->   ... a ...
        with T.allocate([1024], "float32") as b:    ... a, in the place of b ...
            ... b, not a ...

Memory is shared within one region: the function, the body of a parallel loop, a kernel. What is allocated in an
iteration of a parallel loop is that iteration's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Add, IntImm, Let, Mul, PrimExpr, Ramp, Sub, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.type import PointerType
from ...ir.visitor import Mapper, Visitor
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, AllocateConst, AttrStmt, BufferStore, DeclBuffer, For, ForKind, LetStmt, Stmt, While
from .pass_base import PrimFuncPass

SMALL_BYTES = 1024
"""Memory up to this size stays where it is: it becomes registers or lies on the stack, where sharing gains nothing."""
_REGION_ATTRIBUTES = ("thread_extent", "virtual_thread", "device_scope")


class StorageRewrite(PrimFuncPass):
    """Lets allocations with disjoint lifetimes share memory, in place where a statement overwrites what it reads.

    Allocations that depend on nothing inside move out of serial loops.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        liveness = _Liveness()
        liveness(func.body)
        rewrite = _Rewrite(liveness)
        storages = rewrite.plan(liveness.open[0])
        if not storages and not liveness.regions:
            return func
        return func.with_body(rewrite.fill(storages, func.body))


@dataclass(eq=False)
class _Lifetime:
    """An allocation, the numbers of the first and the last statement that use it, and those statements.

    `depth` is the number of loops around the allocation. A use deeper down counts for the whole of the outermost loop
    that does not hold the allocation.
    """

    node: Allocate
    depth: int
    first: int = -1
    last: int = -1
    first_stmt: Stmt | None = None
    last_stmt: Stmt | None = None

    @property
    def elements(self) -> int | None:
        """The number of elements, where it is constant."""
        known = [e.value for e in self.node.extents if isinstance(e, IntImm)]
        return math.prod(known) if len(known) == len(self.node.extents) else None


@dataclass(eq=False)
class _Region:
    """A part of the function that one thread runs: what it allocates, which variables it defines."""

    depth: int
    allocations: list[_Lifetime] = field(default_factory=list[_Lifetime])
    defined: set[Var] = field(default_factory=set[Var])


class _Liveness(Visitor):
    """Numbers the statements and notes the lifetime of every allocation."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [_Region(0)]
        self.regions: dict[int, _Region] = {}
        self.lives: dict[Var, _Lifetime] = {}
        self.pinned: set[Var] = set()
        self.step = 0
        self.stmt: Stmt | None = None
        self.loops: list[tuple[int, Stmt, set[Var]]] = []

    def visit_Var(self, var: Var) -> None:
        life = self.lives.get(var)
        if life is None:
            return
        step, stmt = self.step, self.stmt
        if len(self.loops) > life.depth:
            step, stmt, used = self.loops[life.depth]
            used.add(var)
        if life.first < 0:
            life.first, life.first_stmt = step, stmt
        life.last, life.last_stmt = self.step, stmt

    def visit_Stmt(self, node: Stmt) -> None:
        self.step += 1
        self.stmt = node
        self.generic_visit(node)

    def visit_Allocate(self, node: Allocate) -> None:
        life = self.lives[node.buffer_var] = _Lifetime(node, len(self.loops))
        self.open[-1].allocations.append(life)
        self.visit_Stmt(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        self.visit(node.body)  # a declaration is no use

    def visit_AllocateConst(self, node: AllocateConst) -> None:
        self.open[-1].defined.add(node.buffer_var)
        self.visit_Stmt(node)

    def visit_LetStmt(self, node: LetStmt) -> None:
        self.define(node)
        self.visit_Stmt(node)

    def visit_Let(self, node: Let) -> None:
        self.define(node)
        self.generic_visit(node)

    def define(self, node: LetStmt | Let) -> None:
        self.open[-1].defined.add(node.var)
        if node.value.dtype.is_handle:
            _Collect(self.pinned)(node.value)

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        if isinstance(node.node, Var):
            self.pinned.add(node.node)
        if node.attr_key in _REGION_ATTRIBUTES:
            self.region(node)
        else:
            self.visit_Stmt(node)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.visit(node.buffer.data)
        node.visit_children(self.visit)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.step += 1
        self.stmt = node
        self.visit(node.buffer.data)
        node.visit_children(self.visit)

    def visit_For(self, node: For) -> None:
        self.open[-1].defined.add(node.loop_var)
        if node.kind is ForKind.PARALLEL:
            self.region(node)
        else:
            self.loop(node)

    def visit_While(self, node: While) -> None:
        self.loop(node)

    def loop(self, node: Stmt) -> None:
        self.step += 1
        self.stmt = node
        self.loops.append((self.step, node, set()))
        self.generic_visit(node)
        for var in self.loops.pop()[2]:
            self.lives[var].last = self.step
        self.stmt = node

    def region(self, node: Stmt) -> None:
        """A part run by one thread: its allocations live inside of it; for outer allocations it counts as a loop."""
        region = self.regions[id(node)] = _Region(len(self.loops) + 1)
        self.open.append(region)
        self.loop(node)
        self.open.pop()
        self.open[-1].defined |= region.defined


class _Collect(Visitor):
    def __init__(self, found: set[Var]):
        super().__init__()
        self.found = found

    def visit_Var(self, var: Var) -> None:
        self.found.add(var)


def _linear(expr: PrimExpr, scale: int, terms: list[tuple[int, Var]]) -> bool:
    """Adds the terms of a linear expression to `terms`, up to constants; false when it is not linear."""
    if isinstance(expr, IntImm):
        return True
    if isinstance(expr, Var):
        terms.append((scale, expr))
        return True
    if isinstance(expr, Add):
        return _linear(expr.a, scale, terms) and _linear(expr.b, scale, terms)
    if isinstance(expr, Sub):
        return _linear(expr.a, scale, terms) and isinstance(expr.b, IntImm)
    if isinstance(expr, Mul) and isinstance(expr.b, IntImm):
        return _linear(expr.a, scale * expr.b.value, terms)
    return False


class _InPlace(Visitor):
    """Whether `new` can take the memory of `old` in a statement: new[i] is written once, from old[i] alone."""

    def __init__(self, old: Var, new: Var):
        super().__init__()
        self.old, self.new = old, new
        self.loops: dict[Var, int] = {}
        self.allowed: PrimExpr | None = None
        self.stores = 0
        self.legal = True

    def visit_For(self, node: For) -> None:
        extent = node.extent.value if isinstance(node.extent, IntImm) else 0
        self.loops[node.loop_var] = extent
        self.generic_visit(node)
        del self.loops[node.loop_var]

    def visit_While(self, node: While) -> None:
        self.legal = False

    def visit_Var(self, var: Var) -> None:
        self.legal = self.legal and var is not self.old and var is not self.new

    def visit_Buffer(self, buffer: Any) -> None:
        pass

    def visit_BufferStore(self, node: BufferStore) -> None:
        data = node.buffer.data
        if data is self.new:
            self.stores += 1
            self.legal = self.legal and len(node.indices) == 1 and self.writes_each_once(node.indices[0])
            self.allowed = node.indices[0]
        self.legal = self.legal and data is not self.old
        self.generic_visit(node)
        self.allowed = None

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        data = node.buffer.data
        if data is self.old:
            same = self.allowed is not None and len(node.indices) == 1 and ops.same_expr(node.indices[0], self.allowed)
            self.legal = self.legal and same
        self.legal = self.legal and data is not self.new
        self.generic_visit(node)

    def writes_each_once(self, index: PrimExpr) -> bool:
        """Whether no two iterations of the loops here have the same index: each stride exceeds the span of the smaller
        ones.
        """
        terms: list[tuple[int, Var]] = []
        reach = 0
        if isinstance(index, Ramp):
            if not (isinstance(index.stride, IntImm) and index.stride.value == 1 and isinstance(index.lanes, int)):
                return False
            index, reach = index.base, index.lanes - 1
        if not _linear(index, 1, terms) or any(scale <= 0 for scale, _ in terms):
            return False
        inner = sorted(((scale, var) for scale, var in terms if var in self.loops), key=lambda term: term[0])
        if {var for _, var in inner} != set(self.loops) or len(inner) != len(self.loops):
            return False
        for scale, var in inner:
            if scale <= reach or self.loops[var] <= 0:
                return False
            reach += scale * (self.loops[var] - 1)
        return True


@dataclass(eq=False)
class _Storage:
    """Memory, and the allocations that use it one after the other."""

    users: list[_Lifetime]
    size: Any

    def fits(self, life: _Lifetime) -> bool:
        """Whether an allocation can follow the last user."""
        last = self.users[-1]
        a, b = last.node, life.node
        if a.dtype is not b.dtype or a.buffer_var.type_annotation != b.buffer_var.type_annotation:
            return False
        if (last.elements is None) != (life.elements is None):
            return False
        if life.elements is None and not ops.same_expr(self.size, _symbolic_size(b)):
            return False
        if last.last < life.first:
            return True
        if last.last_stmt is not life.first_stmt or last.elements != life.elements or last.first > life.first:
            return False
        check = _InPlace(a.buffer_var, b.buffer_var)
        check(life.first_stmt)
        return check.legal and check.stores == 1


def _symbolic_size(node: Allocate) -> PrimExpr:
    size = node.extents[0]
    for extent in node.extents[1:]:
        size = ops.multiply(size, extent)
    return size


def _movable(life: _Lifetime, region: _Region, pinned: set[Var]) -> bool:
    """Whether an allocation may stand at the beginning of its region."""
    node, annotation = life.node, life.node.buffer_var.type_annotation
    if life.first < 0 or node.annotations or node.buffer_var in pinned or not isinstance(annotation, PointerType):
        return False
    if annotation.storage_scope.split(".")[0] not in ("", "global", "shared"):
        return False
    if not (isinstance(node.condition, IntImm) and node.condition.value):
        return False
    if life.elements is not None:
        return life.elements * node.dtype.itemsize > SMALL_BYTES
    used: set[Var] = set()
    for extent in node.extents:
        _Collect(used)(extent)
    return not used & region.defined


def _assign(lives: list[_Lifetime]) -> list[_Storage]:
    """Linear-scan allocation: each allocation, in the order of first use, takes the best free memory or else new."""
    storages: list[_Storage] = []
    for life in sorted(lives, key=lambda life: life.first):
        size = life.elements
        free = [s for s in storages if s.fits(life)]
        if not free:
            storages.append(_Storage([life], _symbolic_size(life.node) if size is None else size))
            continue
        if size is None:
            best = free[0]
        else:
            # Best fit: the smallest that is large enough, else the largest, which then grows.
            best = min(free, key=lambda s: (s.size < size, s.size if s.size >= size else -s.size))
            best.size = max(best.size, size)
        best.users.append(life)
    return storages


class _Rewrite(Mapper):
    """Moves allocations, merged, to the beginning of their region."""

    def __init__(self, liveness: _Liveness):
        super().__init__()
        self.liveness = liveness
        self.merged: dict[Var, Var] = {}
        self.moved: set[Var] = set()

    def plan(self, region: _Region) -> list[_Storage]:
        lives = [life for life in region.allocations if _movable(life, region, self.liveness.pinned)]
        kept = [s for s in _assign(lives) if len(s.users) > 1 or s.users[0].depth > region.depth]
        for storage in kept:
            owner = storage.users[0].node.buffer_var
            for life in storage.users:
                self.moved.add(life.node.buffer_var)
                if life.node.buffer_var is not owner:
                    self.merged[life.node.buffer_var] = owner
        return kept

    def fill(self, storages: list[_Storage], body: Stmt) -> Stmt:
        body = self.visit(body)
        for storage in reversed(storages):
            node = storage.users[0].node
            size = storage.size if isinstance(storage.size, PrimExpr) else ops.cast(node.extents[0].dtype, storage.size)
            body = Allocate(node.buffer_var, node.dtype, [size], node.condition, body)
        return body

    def visit_Var(self, var: Var) -> Any:
        return self.merged.get(var, var)

    def visit_Allocate(self, node: Allocate) -> Any:
        return self.visit(node.body) if node.buffer_var in self.moved else self.generic_visit(node)

    def visit_For(self, node: For) -> Any:
        region = self.liveness.regions.get(id(node))
        if region is None:
            return self.generic_visit(node)
        storages = self.plan(region)
        low, extent = self.visit(node.min), self.visit(node.extent)
        return node.replace(min=low, extent=extent, body=self.fill(storages, node.body))

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        region = self.liveness.regions.get(id(node))
        if region is None:
            return self.generic_visit(node)
        storages = self.plan(region)
        return node.replace(value=self.visit(node.value), body=self.fill(storages, node.body))
